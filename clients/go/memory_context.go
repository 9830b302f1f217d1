package memoryd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	userTier    = "user"
	projectTier = "project"
)

// ContextOption is an option of [Client.RenderContext].
type ContextOption func(*rendering) error

// rendering is one rendering: its request, which is complete once the files are read.
type rendering struct {
	request *memorydv1.RenderMemoryContextRequest
	readers map[string]func() sourceReading
	owners  map[string]*memorydv1.MemoryOwner
	tiers   map[string]bool
}

func (r *rendering) choose(tier string) error {
	if r.tiers[tier] {
		return fmt.Errorf("memoryd: %s memory has one place: give either its files or the store", tier)
	}
	r.tiers[tier] = true
	return nil
}

func (r *rendering) set(tier string, source *memorydv1.MemorySource) {
	if tier == userTier {
		r.request.User = source
	} else {
		r.request.Project = source
	}
}

func (r *rendering) stored(tier, id string, owner *memorydv1.MemoryOwner) error {
	if id == "" {
		return fmt.Errorf("memoryd: the owner of %s memory is empty; give the id of a %s", tier, tier)
	}
	r.owners[tier] = owner
	r.set(tier, &memorydv1.MemorySource{Source: &memorydv1.MemorySource_Stored{Stored: id}})
	return r.choose(tier)
}

// UserFiles takes the user tier from a folder of this machine, which holds MEMORY.md and daily logs; ~ at its beginning
// stands for the home folder. Empty for the usual folder: $OH_PERSISTENCE_DIR/memory where that is set, else
// ~/.openhands/memory.
//
// MEMORY.md is read now, at most 1 MiB of it, and never written. The folder may be a symbolic link; one in it is followed
// as long as it stays in it.
func UserFiles(folder string) ContextOption {
	return func(r *rendering) error {
		r.readers[userTier] = func() sourceReading { return readUserFiles(folder) }
		return r.choose(userTier)
	}
}

// ProjectFiles takes the project tier from a workspace of this machine: the folder .openhands/memory in it, which a team can
// commit.
//
// MEMORY.md is read now, at most 1 MiB of it, and never written. The folder may be reached over symbolic links that stay in
// the workspace, which may be one itself. MEMORY.md may be one that stays in the folder, where the folder is none: whoever
// writes the repository must not choose which other file of the workspace the model is shown. A workspace that does not
// exist is unreadable, and one without the folder has no memory yet.
func ProjectFiles(workspace string) ContextOption {
	return func(r *rendering) error {
		if workspace == "" {
			return errors.New("memoryd: the workspace is empty; give the path of a folder, for example \".\"")
		}
		r.readers[projectTier] = func() sourceReading { return readProjectFiles(workspace) }
		return r.choose(projectTier)
	}
}

// StoredUser takes the user tier from the client's store, by the user who owns it.
func StoredUser(userID string) ContextOption {
	return func(r *rendering) error { return r.stored(userTier, userID, userOwner(userID)) }
}

// StoredProject takes the project tier from the client's store, by the project that owns it.
func StoredProject(projectID string) ContextOption {
	return func(r *rendering) error { return r.stored(projectTier, projectID, projectOwner(projectID)) }
}

// ForAgent says for whose prompt memory is rendered: without load_memory in the agent's settings ([LoadMemory]), nothing is
// rendered. Without this option no agent is asked, and the call itself is the opt-in.
func ForAgent(agent string) ContextOption {
	return func(r *rendering) error { r.request.Agent = agent; return nil }
}

// Budget is the most characters of headers, notices and memory together, 256 to 100,000; 6,000 without it.
func Budget(characters int32) ContextOption {
	return func(r *rendering) error { r.request.Budget = characters; return nil }
}

// WithStyle is the form of the block: [MemoryEnclosed], which is the default, or [MemoryOpenHands].
func WithStyle(style MemoryStyle) ContextOption {
	return func(r *rendering) error { r.request.Style = style; return nil }
}

// MemoryContext is memory for a prompt. [Client.RenderContext] makes it.
type MemoryContext struct {
	// Enabled says whether memory was rendered: the agent uses it, and a server answered. There may be none yet.
	Enabled bool
	// Block is for the prompt; empty when no tier holds text. Keep it out of logs.
	Block string
	// Instructions say how to keep the memory, for the prompt; they are there even when no file exists yet.
	Instructions string
	// User is what became of the user tier.
	User *TierStatus
	// Project is what became of the project tier.
	Project *TierStatus
	// Warnings tell what went wrong on the way, a sentence each. The log has them, too.
	Warnings []string
	// Tools are those that the instructions name, where the store holds a tier; none where files are.
	Tools *MemoryTools
}

// Prompt is block and instructions in one text, an empty line between them; empty when both are.
func (m *MemoryContext) Prompt() string {
	if m.Block == "" || m.Instructions == "" {
		return m.Block + m.Instructions
	}
	return m.Block + "\n\n" + m.Instructions
}

// String tells what became of the tiers, and nothing of the memory: what is logged of a context holds none.
func (m *MemoryContext) String() string {
	return fmt.Sprintf("memory context (enabled: %t, user: %s, project: %s, warnings: %d)",
		m.Enabled, m.User.GetState(), m.Project.GetState(), len(m.Warnings))
}

// GoString is String.
func (m *MemoryContext) GoString() string { return m.String() }

// RenderContext renders an agent's memory into one bounded block for its prompt, marked as unverified, with instructions for
// keeping it:
//
//	memory, err := client.RenderContext(ctx, memoryd.UserFiles(""), memoryd.ProjectFiles("."))
//	if err != nil {
//		return err
//	}
//	prompt := "You are a travel agent. " + memory.Prompt()
//
// Files of this machine are read now, in their folder alone. What cannot be read is told in the warnings and in the log, and
// the rest is rendered. So it is when no server answers in time: the context is empty then, and the agent starts all the
// same. Only an option or a request that is wrong is an error.
//
// Options are [UserFiles] or [StoredUser], [ProjectFiles] or [StoredProject], [ForAgent], [Budget] and [WithStyle].
func (c *Client) RenderContext(ctx context.Context, options ...ContextOption) (*MemoryContext, error) {
	ctx = c.pinned(ctx)
	r := &rendering{
		request: &memorydv1.RenderMemoryContextRequest{},
		readers: map[string]func() sourceReading{},
		owners:  map[string]*memorydv1.MemoryOwner{},
		tiers:   map[string]bool{},
	}
	for _, option := range options {
		if err := option(r); err != nil {
			return nil, err
		}
	}
	warnings := r.read()
	response, err := c.contexts.RenderMemoryContext(ctx, r.request)
	switch {
	case errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDeadlineExceeded):
		response = r.without(err)
	case err != nil:
		return nil, err
	case response.GetState() == memorydv1.MemoryContextState_MEMORY_CONTEXT_STATE_ENABLED:
		response.Warnings = append(response.Warnings, warnings...)
	}
	if len(response.GetWarnings()) > 0 {
		c.logger.Warn("memoryd: " + strings.Join(response.GetWarnings(), "; "))
	}
	store, _ := ctx.Value(storeKey{}).(string)
	return &MemoryContext{
		Enabled:      response.GetState() == memorydv1.MemoryContextState_MEMORY_CONTEXT_STATE_ENABLED,
		Block:        response.GetBlock(),
		Instructions: response.GetInstructions(),
		User:         response.GetUser(),
		Project:      response.GetProject(),
		Warnings:     response.GetWarnings(),
		Tools:        newMemoryTools(c, store, r, response.GetTools()),
	}, nil
}

// read reads the tiers that are files, and gives warnings. A file that is both tiers is the user tier alone: the project
// tier is not asked for then, for the agent is not to keep two memories in it.
func (r *rendering) read() []string {
	readings := map[string]sourceReading{}
	for tier, read := range r.readers {
		readings[tier] = read()
	}
	var warnings []string
	user, hasUser := readings[userTier]
	if project, hasProject := readings[projectTier]; hasUser && hasProject && project.isSameFile(user) {
		delete(readings, projectTier)
		warnings = append(warnings, "Project memory and user memory are one file: it is shown once, as user memory")
	}
	for tier, reading := range readings {
		r.set(tier, reading.source())
	}
	return warnings
}

// without is the answer where no server gives one.
func (r *rendering) without(err error) *memorydv1.RenderMemoryContextResponse {
	response := &memorydv1.RenderMemoryContextResponse{
		State:    memorydv1.MemoryContextState_MEMORY_CONTEXT_STATE_DISABLED,
		Warnings: []string{"Memory could not be rendered, and the agent does without: " + err.Error()},
	}
	unreadable := &TierStatus{State: TierUnreadable}
	if r.tiers[userTier] {
		response.User = unreadable
	}
	if r.tiers[projectTier] {
		response.Project = unreadable
	}
	return response
}
