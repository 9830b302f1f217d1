package memoryd

import (
	"context"
	"iter"
	"strings"
	"time"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// MemoryIndex is the memory file of a tier that is rendered; the others are daily logs, YYYY-MM-DD.md.
const MemoryIndex = "MEMORY.md"

// MemoryFiles are the memory files of one owner in the store. [Client.UserMemory] and [Client.ProjectMemory] name them;
// nothing of them needs to exist.
//
// A file is [MemoryIndex] or the log of a day. Each write makes a new version, of which the last 50 are kept. A text that
// holds a credential is [ErrSecretFound], with its line and kind in the error's metadata, and not written; [AllowSecrets]
// overrides that where it is none. All writes but Delete are tried again by themselves, and made once.
type MemoryFiles struct {
	client *Client
	owner  *memorydv1.MemoryOwner
}

// UserMemory names the memory files of a user in the store; nothing is called.
func (c *Client) UserMemory(userID string) *MemoryFiles {
	return &MemoryFiles{client: c, owner: userOwner(userID)}
}

// ProjectMemory names the memory files of a project in the store; nothing is called.
func (c *Client) ProjectMemory(projectID string) *MemoryFiles {
	return &MemoryFiles{client: c, owner: projectOwner(projectID)}
}

func userOwner(id string) *memorydv1.MemoryOwner {
	return &memorydv1.MemoryOwner{Owner: &memorydv1.MemoryOwner_UserId{UserId: id}}
}

func projectOwner(id string) *memorydv1.MemoryOwner {
	return &memorydv1.MemoryOwner{Owner: &memorydv1.MemoryOwner_ProjectId{ProjectId: id}}
}

// MemoryFile is a memory file with its content.
type MemoryFile struct {
	// Info is what is told of the file.
	Info *MemoryFileInfo
	// Content is the bytes, as they were put.
	Content []byte
}

// Text is the content as text: U+FFFD stands for bytes that are not UTF-8.
func (f *MemoryFile) Text() string { return strings.ToValidUTF8(string(f.Content), "\uFFFD") }

type (
	// GetFileOption is an option of [MemoryFiles.Get].
	GetFileOption interface {
		applyGet(*memorydv1.GetMemoryFileRequest)
	}
	// PutOption is an option of [MemoryFiles.Put].
	PutOption interface {
		applyPut(*memorydv1.PutMemoryFileRequest)
	}
	// AddOption is an option of [MemoryFiles.Add].
	AddOption interface {
		applyAdd(*memorydv1.AddMemoryEntriesRequest)
	}
	// LogOption is an option of [MemoryFiles.Log].
	LogOption interface {
		applyLog(*memorydv1.AppendDailyLogRequest)
	}
	// DeleteFileOption is an option of [MemoryFiles.Delete].
	DeleteFileOption interface {
		applyDelete(*memorydv1.DeleteMemoryFileRequest)
	}
	// FilesOption is an option of [MemoryFiles.List].
	FilesOption interface {
		applyFiles(*memorydv1.ListMemoryFilesRequest)
	}
)

// VersionOption is made by [AtVersion].
type VersionOption int64

// AtVersion reads a memory file as it was at a version.
func AtVersion(version int64) VersionOption { return VersionOption(version) }

func (v VersionOption) applyGet(r *memorydv1.GetMemoryFileRequest) { r.Version = int64(v) }

// AuthorOption is made by [Author].
type AuthorOption string

// Author says who writes a memory file, at most 256 bytes; told in its versions.
func Author(name string) AuthorOption { return AuthorOption(name) }

func (a AuthorOption) applyPut(r *memorydv1.PutMemoryFileRequest)    { r.Author = string(a) }
func (a AuthorOption) applyAdd(r *memorydv1.AddMemoryEntriesRequest) { r.Author = string(a) }
func (a AuthorOption) applyLog(r *memorydv1.AppendDailyLogRequest)   { r.Author = string(a) }

// SecretsOption is made by [AllowSecrets].
type SecretsOption struct{}

// AllowSecrets stores a text in which credentials were found.
func AllowSecrets() SecretsOption { return SecretsOption{} }

func (SecretsOption) applyPut(r *memorydv1.PutMemoryFileRequest)    { r.AllowSecrets = true }
func (SecretsOption) applyAdd(r *memorydv1.AddMemoryEntriesRequest) { r.AllowSecrets = true }
func (SecretsOption) applyLog(r *memorydv1.AppendDailyLogRequest)   { r.AllowSecrets = true }

type putOption func(*memorydv1.PutMemoryFileRequest)

func (o putOption) applyPut(r *memorydv1.PutMemoryFileRequest) { o(r) }

// CreateOnly makes a memory file only if there is none, else [ErrEtagMismatch]. Not together with [IfEtag].
func CreateOnly() PutOption {
	return putOption(func(r *memorydv1.PutMemoryFileRequest) { r.CreateOnly = true })
}

type logOption func(*memorydv1.AppendDailyLogRequest)

func (o logOption) applyLog(r *memorydv1.AppendDailyLogRequest) { o(r) }

// OnDate says which day's log it is, as YYYY-MM-DD. Without it: today's, in the zone of [InTimeZone].
func OnDate(date string) LogOption {
	return logOption(func(r *memorydv1.AppendDailyLogRequest) { r.Date = date })
}

// OnDay is [OnDate] with the day of a time, in its location.
func OnDay(day time.Time) LogOption { return OnDate(day.Format(time.DateOnly)) }

// InTimeZone says which day is today, by the name of a zone such as Europe/Berlin. Without it: UTC. Not together with
// [OnDate].
func InTimeZone(name string) LogOption {
	return logOption(func(r *memorydv1.AppendDailyLogRequest) { r.TimeZone = name })
}

// Get reads a file, as it is now or as it was at a version ([AtVersion]). [ErrMemoryFileNotFound] without it.
func (f *MemoryFiles) Get(ctx context.Context, name string, options ...GetFileOption) (*MemoryFile, error) {
	request := &memorydv1.GetMemoryFileRequest{Owner: f.owner, Name: name}
	for _, option := range options {
		option.applyGet(request)
	}
	response, err := f.client.contexts.GetMemoryFile(ctx, request)
	if err != nil {
		return nil, err
	}
	return &MemoryFile{Info: response.GetFile(), Content: response.GetContent()}, nil
}

// Put replaces a file, or makes it: at most 1 MiB of any bytes. Nothing is written when it has this content already. Options
// are [IfEtag], [CreateOnly], [Author], [AllowSecrets] and [RequestID].
func (f *MemoryFiles) Put(
	ctx context.Context, name string, content []byte, options ...PutOption,
) (*MemoryFileInfo, error) {
	request := &memorydv1.PutMemoryFileRequest{Owner: f.owner, Name: name, Content: content, RequestId: NewID()}
	for _, option := range options {
		option.applyPut(request)
	}
	response, err := f.client.contexts.PutMemoryFile(ctx, request)
	return response.GetFile(), err
}

// List lists the files: the index, then the newest logs. It reads page after page. The option is [PageSize].
func (f *MemoryFiles) List(ctx context.Context, options ...FilesOption) iter.Seq2[*MemoryFileInfo, error] {
	request := &memorydv1.ListMemoryFilesRequest{Owner: f.owner}
	for _, option := range options {
		option.applyFiles(request)
	}
	return pages(f.client, ctx, request, f.client.contexts.ListMemoryFiles,
		func(r *memorydv1.ListMemoryFilesRequest, token string) { r.PageToken = token },
		(*memorydv1.ListMemoryFilesResponse).GetFiles)
}

// Versions lists the versions of a file that are kept, at most 50, newest first. [ErrMemoryFileNotFound] without the file.
func (f *MemoryFiles) Versions(ctx context.Context, name string) ([]*MemoryFileInfo, error) {
	request := &memorydv1.ListMemoryFileVersionsRequest{Owner: f.owner, Name: name}
	response, err := f.client.contexts.ListMemoryFileVersions(ctx, request)
	return response.GetVersions(), err
}

// Delete deletes a file with all its versions, for good, and tells whether there was one. It is not tried again by itself.
// The option is [IfEtag].
func (f *MemoryFiles) Delete(ctx context.Context, name string, options ...DeleteFileOption) (bool, error) {
	request := &memorydv1.DeleteMemoryFileRequest{Owner: f.owner, Name: name}
	for _, option := range options {
		option.applyDelete(request)
	}
	response, err := f.client.contexts.DeleteMemoryFile(ctx, request)
	return response.GetDeleted(), err
}

// Add adds lines at the end of the index, all or none, and makes it if there is none: 1 to 256, as they shall stand in the
// file, each at most 4 KiB. Lines that it holds already are skipped. Calls at once do not overwrite each other.
// [ErrMemoryFileFull] when it would be over 1 MiB. Options are [Author], [AllowSecrets] and [RequestID].
func (f *MemoryFiles) Add(ctx context.Context, entries []string, options ...AddOption) (*AddedEntries, error) {
	request := &memorydv1.AddMemoryEntriesRequest{Owner: f.owner, Entries: entries, RequestId: NewID()}
	for _, option := range options {
		option.applyAdd(request)
	}
	return f.client.contexts.AddMemoryEntries(ctx, request)
}

// Log adds text, of any number of lines, at the end of a daily log, and makes it if there is none; it gives that file. Calls
// at once do not overwrite each other. [ErrMemoryFileFull] when it would be over 1 MiB. Options are [OnDate], [OnDay],
// [InTimeZone], [Author], [AllowSecrets] and [RequestID].
func (f *MemoryFiles) Log(ctx context.Context, text string, options ...LogOption) (*MemoryFileInfo, error) {
	request := &memorydv1.AppendDailyLogRequest{Owner: f.owner, Text: text, RequestId: NewID()}
	for _, option := range options {
		option.applyLog(request)
	}
	response, err := f.client.contexts.AppendDailyLog(ctx, request)
	return response.GetFile(), err
}
