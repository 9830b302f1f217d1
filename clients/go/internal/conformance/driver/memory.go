package main

import (
	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func (c *call) renderMemory(told *pb.RenderMemory) (*pb.Reply, error) {
	var given options[memoryd.ContextOption]
	given.when(told.GetAgent() != "", memoryd.ForAgent(told.GetAgent()))
	given.when(told.GetBudget() != 0, memoryd.Budget(told.GetBudget()))
	given.when(told.GetStyle() != 0, memoryd.WithStyle(told.GetStyle()))
	for _, tier := range []struct {
		source        *pb.TierSource
		stored, files func(string) memoryd.ContextOption
	}{
		{told.GetUser(), memoryd.StoredUser, memoryd.UserFiles},
		{told.GetProject(), memoryd.StoredProject, memoryd.ProjectFiles},
	} {
		switch source := tier.source.GetSource().(type) {
		case nil:
		case *pb.TierSource_Stored:
			given = append(given, tier.stored(source.Stored))
		case *pb.TierSource_Files:
			given = append(given, tier.files(source.Files))
		default:
			return nil, faultf("the SDK renders memory of the store and of files alone")
		}
	}
	rendered, err := c.client.RenderContext(c.ctx, given...)
	if err != nil {
		return nil, err
	}
	if told.GetName() != "" {
		c.name(told.GetName(), rendered)
	}
	context := &memorydv1.RenderMemoryContextResponse{
		State:        memorydv1.MemoryContextState_MEMORY_CONTEXT_STATE_DISABLED,
		Block:        rendered.Block,
		Instructions: rendered.Instructions,
		User:         rendered.User,
		Project:      rendered.Project,
		Warnings:     rendered.Warnings,
	}
	if rendered.Enabled {
		context.State = memorydv1.MemoryContextState_MEMORY_CONTEXT_STATE_ENABLED
	}
	for _, name := range rendered.Tools.Names() {
		context.Tools = append(context.Tools, &memorydv1.MemoryTool{Name: name})
	}
	return &pb.Reply{Rendered: &pb.Rendered{Context: context, Prompt: rendered.Prompt()}}, nil
}

func (c *call) toolDefinitions(told *pb.ToolDefinitions) (*pb.Reply, error) {
	rendered, err := named[*memoryd.MemoryContext](c, told.GetName())
	if err != nil {
		return nil, err
	}
	switch told.GetFormat() {
	case pb.Format_FORMAT_OPENAI_CHAT:
		return &pb.Reply{Json: string(rendered.Tools.OpenAI())}, nil
	case pb.Format_FORMAT_ANTHROPIC:
		return &pb.Reply{Json: string(rendered.Tools.Anthropic())}, nil
	}
	return nil, faultf("the SDK has no definitions for %s", told.GetFormat())
}

func (c *call) callTool(told *pb.CallTool) (*pb.Reply, error) {
	rendered, err := named[*memoryd.MemoryContext](c, told.GetName())
	if err != nil {
		return nil, err
	}
	text, err := rendered.Tools.Call(c.ctx, told.GetTool(), told.GetArguments())
	return &pb.Reply{Text: text}, err
}

func (c *call) files(owner *memorydv1.MemoryOwner) (*memoryd.MemoryFiles, error) {
	switch owner := owner.GetOwner().(type) {
	case *memorydv1.MemoryOwner_UserId:
		return c.client.UserMemory(owner.UserId), nil
	case *memorydv1.MemoryOwner_ProjectId:
		return c.client.ProjectMemory(owner.ProjectId), nil
	}
	return nil, faultf("the SDK names memory files of a user or a project alone")
}

func filesReply(files []*memoryd.MemoryFileInfo, err error) (*pb.Reply, error) {
	return &pb.Reply{MemoryFiles: &pb.MemoryFiles{Files: files}}, err
}

func fileReply(file *memoryd.MemoryFileInfo, err error) (*pb.Reply, error) {
	return filesReply(one(file), err)
}

func (c *call) getMemoryFile(request *memorydv1.GetMemoryFileRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.GetFileOption]
	given.when(request.GetVersion() != 0, memoryd.AtVersion(request.GetVersion()))
	file, err := files.Get(c.ctx, request.GetName(), given...)
	if err != nil {
		return nil, err
	}
	return &pb.Reply{MemoryFile: &memorydv1.GetMemoryFileResponse{File: file.Info, Content: file.Content}}, nil
}

func (c *call) putMemoryFile(request *memorydv1.PutMemoryFileRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.PutOption]
	given.when(request.GetAuthor() != "", memoryd.Author(request.GetAuthor()))
	given.when(request.GetEtag() != "", memoryd.IfEtag(request.GetEtag()))
	given.when(request.GetCreateOnly(), memoryd.CreateOnly())
	given.when(request.GetAllowSecrets(), memoryd.AllowSecrets())
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	return fileReply(files.Put(c.ctx, request.GetName(), request.GetContent(), given...))
}

func (c *call) listMemoryFiles(request *memorydv1.ListMemoryFilesRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.FilesOption]
	given.when(request.GetPageSize() != 0, memoryd.PageSize(int(request.GetPageSize())))
	return filesReply(all(files.List(c.ctx, given...), 0))
}

func (c *call) deleteMemoryFile(request *memorydv1.DeleteMemoryFileRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.DeleteFileOption]
	given.when(request.GetEtag() != "", memoryd.IfEtag(request.GetEtag()))
	deleted, err := files.Delete(c.ctx, request.GetName(), given...)
	return &pb.Reply{Flag: deleted}, err
}

func (c *call) listMemoryFileVersions(request *memorydv1.ListMemoryFileVersionsRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	return filesReply(files.Versions(c.ctx, request.GetName()))
}

func (c *call) addMemoryEntries(request *memorydv1.AddMemoryEntriesRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.AddOption]
	given.when(request.GetAuthor() != "", memoryd.Author(request.GetAuthor()))
	given.when(request.GetAllowSecrets(), memoryd.AllowSecrets())
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	added, err := files.Add(c.ctx, request.GetEntries(), given...)
	return &pb.Reply{Added: added}, err
}

func (c *call) appendDailyLog(request *memorydv1.AppendDailyLogRequest) (*pb.Reply, error) {
	files, err := c.files(request.GetOwner())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.LogOption]
	given.when(request.GetDate() != "", memoryd.OnDate(request.GetDate()))
	given.when(request.GetTimeZone() != "", memoryd.InTimeZone(request.GetTimeZone()))
	given.when(request.GetAuthor() != "", memoryd.Author(request.GetAuthor()))
	given.when(request.GetAllowSecrets(), memoryd.AllowSecrets())
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	return fileReply(files.Log(c.ctx, request.GetText(), given...))
}
