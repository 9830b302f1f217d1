package main

import (
	"context"
	"iter"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// call is one command to a client.
type call struct {
	driver  *driver
	client  *memoryd.Client
	command *pb.Command
	ctx     context.Context // bounded by the command's timeout
}

// bounded bounds a context by the command's timeout; without one, the client's holds.
func (c *call) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.command.Timeout == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.command.GetTimeout().AsDuration())
}

func (c *call) carryOut() (*pb.Reply, error) {
	switch operation := c.command.GetOperation().(type) {
	case *pb.Command_Append:
		return c.append(operation.Append)
	case *pb.Command_AppendAll:
		return c.appendAll(operation.AppendAll)
	case *pb.Command_ListMessages:
		return c.listMessages(operation.ListMessages)
	case *pb.Command_GetMessage:
		return c.getMessage(operation.GetMessage)
	case *pb.Command_GetSession:
		return c.getSession(operation.GetSession)
	case *pb.Command_ListSessions:
		return c.listSessions(operation.ListSessions)
	case *pb.Command_UpdateSession:
		return c.updateSession(operation.UpdateSession)
	case *pb.Command_ClearHistory:
		return c.clearHistory(operation.ClearHistory)
	case *pb.Command_ClearAgent:
		return c.clearAgent(operation.ClearAgent)
	case *pb.Command_RedactMessage:
		return c.redactMessage(operation.RedactMessage)
	case *pb.Command_Rewind:
		return c.rewind(operation.Rewind)
	case *pb.Command_Fork:
		return c.fork(operation.Fork)
	case *pb.Command_EraseUser:
		return c.eraseUser(operation.EraseUser)
	case *pb.Command_OpenWatch:
		return c.openWatch(operation.OpenWatch)
	case *pb.Command_NextEvents:
		return c.nextEvents(operation.NextEvents)
	case *pb.Command_CloseWatch:
		return c.closeWatch(operation.CloseWatch.GetName())
	case *pb.Command_LoadWindow:
		return c.loadWindow(operation.LoadWindow)
	case *pb.Command_Summarize:
		return c.summarize(operation.Summarize)
	case *pb.Command_GetSummary:
		return c.getSummary(operation.GetSummary)
	case *pb.Command_ListSummaries:
		return c.listSummaries(operation.ListSummaries)
	case *pb.Command_RevertSummary:
		return c.revertSummary(operation.RevertSummary)
	case *pb.Command_LeaseSummaryTask:
		return c.leaseSummaryTask(operation.LeaseSummaryTask)
	case *pb.Command_CommitSummary:
		return c.commitSummary(operation.CommitSummary)
	case *pb.Command_AbandonSummaryTask:
		return c.abandonSummaryTask(operation.AbandonSummaryTask)
	case *pb.Command_SummarizeWith:
		return c.summarizeWith(operation.SummarizeWith)
	case *pb.Command_RenderMemory:
		return c.renderMemory(operation.RenderMemory)
	case *pb.Command_ToolDefinitions:
		return c.toolDefinitions(operation.ToolDefinitions)
	case *pb.Command_CallTool:
		return c.callTool(operation.CallTool)
	case *pb.Command_GetMemoryFile:
		return c.getMemoryFile(operation.GetMemoryFile)
	case *pb.Command_PutMemoryFile:
		return c.putMemoryFile(operation.PutMemoryFile)
	case *pb.Command_ListMemoryFiles:
		return c.listMemoryFiles(operation.ListMemoryFiles)
	case *pb.Command_DeleteMemoryFile:
		return c.deleteMemoryFile(operation.DeleteMemoryFile)
	case *pb.Command_ListMemoryFileVersions:
		return c.listMemoryFileVersions(operation.ListMemoryFileVersions)
	case *pb.Command_AddMemoryEntries:
		return c.addMemoryEntries(operation.AddMemoryEntries)
	case *pb.Command_AppendDailyLog:
		return c.appendDailyLog(operation.AppendDailyLog)
	case *pb.Command_EnqueueRun:
		return c.enqueueRun(operation.EnqueueRun)
	case *pb.Command_GetRun:
		return c.getRun(operation.GetRun)
	case *pb.Command_ListRuns:
		return c.listRuns(operation.ListRuns)
	case *pb.Command_UpdateRun:
		return c.updateRun(operation.UpdateRun)
	case *pb.Command_DeleteRun:
		return c.deleteRun(operation.DeleteRun)
	case *pb.Command_ListRunSteps:
		return c.listRunSteps(operation.ListRunSteps)
	case *pb.Command_BeginRun:
		return c.beginRun(operation.BeginRun)
	case *pb.Command_ClaimRun:
		return c.claimRun(operation.ClaimRun)
	case *pb.Command_LookAtRun:
		return c.lookAtRun(operation.LookAtRun.GetName())
	case *pb.Command_CommitRunStep:
		return c.commitRunStep(operation.CommitRunStep)
	case *pb.Command_ResumeRun:
		return c.resumeRun(operation.ResumeRun.GetName())
	case *pb.Command_PauseRun:
		return c.endRun(operation.PauseRun, (*memoryd.Run).Pause)
	case *pb.Command_FinishRun:
		return c.endRun(operation.FinishRun, (*memoryd.Run).Finish)
	case *pb.Command_LeaveRun:
		return c.leaveRun(operation.LeaveRun)
	case *pb.Command_GetAgent:
		return c.getAgent(operation.GetAgent)
	case *pb.Command_UpdateAgent:
		return c.updateAgent(operation.UpdateAgent)
	case *pb.Command_ListAgents:
		return c.listAgents(operation.ListAgents)
	case *pb.Command_GetStore:
		return c.getStore(operation.GetStore)
	case *pb.Command_ListStores:
		return c.listStores()
	case *pb.Command_SwitchStore:
		return c.switchStore(operation.SwitchStore)
	case *pb.Command_StoreType:
		return c.storeType()
	case *pb.Command_Measure:
		return c.measure(operation.Measure)
	}
	return nil, faultf("the command says nothing that this driver knows: %s", c.command)
}

func (c *call) session(key *memorydv1.SessionKey) *memoryd.Session {
	return c.client.Session(key.GetAgent(), key.GetSessionId())
}

// name names something for later commands of the client.
func (c *call) name(name string, something any) {
	c.driver.mutex.Lock()
	defer c.driver.mutex.Unlock()
	c.driver.named[naming{c.command.GetClient(), name}] = something
}

// named is what an earlier command of the client gave a name.
func named[Something any](c *call, name string) (Something, error) {
	c.driver.mutex.Lock()
	defer c.driver.mutex.Unlock()
	found, isOne := c.driver.named[naming{c.command.GetClient(), name}].(Something)
	if !isOne {
		return found, faultf("no %T of client %q is called %q", found, c.command.GetClient(), name)
	}
	return found, nil
}

// all reads a list to its end, or until so many items are read; 0 is no limit.
func all[Item any](list iter.Seq2[Item, error], most int32) ([]Item, error) {
	var items []Item
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if len(items) == int(most) {
			break
		}
	}
	return items, nil
}

func one[Item any](item *Item) []*Item {
	if item == nil {
		return nil
	}
	return []*Item{item}
}
