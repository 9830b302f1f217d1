package memoryd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	firstTaskPause   = 200 * time.Millisecond
	longestTaskPause = 5 * time.Second
)

// TasksOption is an option of [Client.SummaryTasks] and [Client.SummarizeWith].
type TasksOption interface{ applyTasks(*taskAsker) }

type tasksOption func(*taskAsker)

func (o tasksOption) applyTasks(a *taskAsker) { o(a) }

// LeaseFor is how long one summary may take: 1 second to 10 minutes. Without it, a minute.
func LeaseFor(lease time.Duration) TasksOption {
	return tasksOption(func(a *taskAsker) { a.request.LeaseDuration = durationpb.New(lease) })
}

// UntilNoneWaits ends the loop over summary tasks when no task waits, rather than to wait for the next one. What fails
// ends it at once.
func UntilNoneWaits() TasksOption {
	return tasksOption(func(a *taskAsker) { a.once = true })
}

// ModelName names the model that makes the summaries of [Client.SummarizeWith], for the record.
func ModelName(model string) TasksOption {
	return tasksOption(func(a *taskAsker) { a.model = model })
}

// SummaryTask is the work for one summary, leased to the loop that gave it.
type SummaryTask struct {
	client  *Client
	store   string
	task    *memorydv1.SummaryTask
	settled atomic.Bool
}

// Agent is the agent of the session that is summarized.
func (t *SummaryTask) Agent() string { return t.task.GetSession().GetAgent() }

// SessionID is the id of the session that is summarized.
func (t *SummaryTask) SessionID() string { return t.task.GetSession().GetSessionId() }

// Previous is the text of the summary so far, which has to be part of the new one; empty for none.
func (t *SummaryTask) Previous() string { return t.task.GetPreviousSummary() }

// Messages are the messages to fold, oldest first. Empty where they are one group larger than 3 MiB: Input has it, with its
// longest texts shortened.
func (t *SummaryTask) Messages() []*Message { return t.task.GetMessages() }

// Instructions say what a model is to do and to keep: its system prompt.
func (t *SummaryTask) Instructions() string { return t.task.GetInstructions() }

// Input is the previous summary and the messages, fenced and escaped, for a model to read after the instructions.
func (t *SummaryTask) Input() string { return t.task.GetInput() }

// Prompt is instructions and input in one text, for a model that takes one.
func (t *SummaryTask) Prompt() string { return t.Instructions() + "\n\n" + t.Input() }

// TargetTokens is how many tokens the summary should have.
func (t *SummaryTask) TargetTokens() int64 { return t.task.GetTargetTokens() }

// MaxTokens is how many tokens the summary may have: what is over it is cut at the end of a sentence.
func (t *SummaryTask) MaxTokens() int64 { return t.task.GetMaxTokens() }

// Attempts is how often this fold was tried before.
func (t *SummaryTask) Attempts() int { return int(t.task.GetAttempts()) }

// Expires is when the lease ends.
func (t *SummaryTask) Expires() time.Time { return t.task.GetExpireTime().AsTime() }

// String names the task, without what it holds.
func (t *SummaryTask) String() string {
	return fmt.Sprintf("summary task of session %q of agent %q", t.SessionID(), t.Agent())
}

// Commit commits the summary, at most 1 MiB, with the name of the model that made it, and gives it. It is safe to repeat:
// the first answer comes again.
//
// [ErrSummaryTaskVoid] when the lease is over or the history changed where the task lies; [ErrFieldInvalid] or
// [ErrFieldRequired] for a text that is empty or white, which is no summary: abandon the task instead.
func (t *SummaryTask) Commit(ctx context.Context, text, model string) (*Summary, error) {
	response, err := t.client.summary.CommitSummary(withStore(ctx, t.store), &memorydv1.CommitSummaryRequest{
		Session: t.task.GetSession(), TaskToken: t.task.GetTaskToken(), Text: text, Model: model,
	})
	if err == nil || errors.Is(err, ErrSummaryTaskVoid) {
		t.settle()
	}
	return response.GetSummary(), err
}

// Abandon gives the task up: as free for others at once, or as failed, to wait before it is leased again. Nothing happens
// when it is committed or its lease is over.
func (t *SummaryTask) Abandon(ctx context.Context, failed bool) error {
	if !t.settle() {
		return nil
	}
	_, err := t.client.summary.AbandonSummaryTask(withStore(ctx, t.store), &memorydv1.AbandonSummaryTaskRequest{
		Session: t.task.GetSession(), TaskToken: t.task.GetTaskToken(), Failed: failed,
	})
	return err
}

// settle says whether the task was still to be settled.
func (t *SummaryTask) settle() bool {
	t.client.forget(t)
	return !t.settled.Swap(true)
}

func (t *SummaryTask) giveBack(ctx context.Context) { t.leave(ctx, false) }

// leave gives up the task that a loop has left, if it is not settled; a lease that cannot be given up ends by itself.
func (t *SummaryTask) leave(ctx context.Context, failed bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := t.Abandon(ctx, failed); err != nil {
		t.client.logger.Warn("memoryd: a summary task could not be given up", "task", t.String(), "error", err)
	}
}

// taskAsker asks for tasks.
type taskAsker struct {
	client  *Client
	store   string
	request *memorydv1.LeaseSummaryTaskRequest
	once    bool
	model   string
	outage  outage
	pauses  pauses
}

func (c *Client) taskAsker(request *memorydv1.LeaseSummaryTaskRequest, options []TasksOption) *taskAsker {
	a := &taskAsker{
		client:  c,
		store:   *c.store.Load(),
		request: request,
		outage: outage{
			logger: c.logger, begins: "no summary task can be leased", ends: "summary tasks are served again",
		},
		pauses: pauses{first: firstTaskPause, longest: longestTaskPause},
	}
	for _, option := range options {
		option.applyTasks(a)
	}
	return a
}

// next leases the next task; nil when none waits and the loop does not either.
func (a *taskAsker) next(ctx context.Context) (*SummaryTask, error) {
	for {
		response, err := a.client.summary.LeaseSummaryTask(withStore(ctx, a.store), a.request)
		switch {
		case err == nil && response.GetTask() != nil:
			a.outage.ended()
			a.pauses.inVain = 0
			task := &SummaryTask{client: a.client, store: a.store, task: response.GetTask()}
			a.client.hold(task)
			return task, nil
		case err == nil:
			a.outage.ended()
			if a.once {
				return nil, nil
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case a.once || !a.outage.passes(err):
			return nil, err
		}
		if err := sleep(ctx, a.pauses.next()); err != nil {
			return nil, err
		}
	}
}

func (a *taskAsker) all(ctx context.Context) iter.Seq2[*SummaryTask, error] {
	return func(yield func(*SummaryTask, error) bool) {
		for {
			task, err := a.next(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if task == nil || !a.give(ctx, task, yield) {
				return
			}
		}
	}
}

// give hands a task to the loop's body, and gives it up when that has not settled it, also when the body panics.
func (a *taskAsker) give(ctx context.Context, task *SummaryTask, yield func(*SummaryTask, error) bool) bool {
	defer func() { task.leave(ctx, ctx.Err() == nil) }()
	return yield(task, nil)
}

// SummaryTasks iterates over the summaries that an agent's sessions wait for, to make them with a model of your own, until
// the context ends, whose error comes then.
//
// A session has a task when its stored policy has the summarizer client and a load finds that it must fold. Each task is
// leased to this loop alone; [SummaryTask.Commit] ends it. Where none waits, the loop asks again after a pause of 0.2
// seconds, which grows to 5; while the server is unavailable too.
//
// A task that a turn of the loop leaves without a commit is given up at once. It then waits, 5 seconds and longer with each
// time, before it is leased again: the model failed. [SummaryTask.Abandon], or the end of the context, leaves it free for
// others at once. Options are [LeaseFor], [UntilNoneWaits] and [RetryFor].
func (c *Client) SummaryTasks(ctx context.Context, agent string, options ...TasksOption) iter.Seq2[*SummaryTask, error] {
	request := &memorydv1.LeaseSummaryTaskRequest{Of: &memorydv1.LeaseSummaryTaskRequest_Agent{Agent: agent}}
	return c.taskAsker(request, options).all(ctx)
}

// SummaryTasks iterates over the session's summary tasks, like [Client.SummaryTasks]. [ErrSummariesDisabled] or
// [ErrSummarizerDiffers] when its stored policies have no summarizer client; [ErrSessionNotFound] without the session.
func (s *Session) SummaryTasks(ctx context.Context, options ...TasksOption) iter.Seq2[*SummaryTask, error] {
	request := &memorydv1.LeaseSummaryTaskRequest{Of: &memorydv1.LeaseSummaryTaskRequest_Session{Session: s.key}}
	return s.client.taskAsker(request, options).all(ctx)
}

// Summarizer makes the text of a summary, with a model as a rule: of [SummaryTask.Prompt], or of its instructions and its
// input.
type Summarizer func(ctx context.Context, task *SummaryTask) (string, error)

// SummarizeWith summarizes an agent's sessions with a function, and gives the number of summaries. Where the function fails,
// or gives a text that is empty, the log says so, the task waits before it is tried again, and the next one is served.
// Options are those of [Client.SummaryTasks] and [ModelName].
func (c *Client) SummarizeWith(
	ctx context.Context, agent string, summarize Summarizer, options ...TasksOption,
) (int, error) {
	request := &memorydv1.LeaseSummaryTaskRequest{Of: &memorydv1.LeaseSummaryTaskRequest_Agent{Agent: agent}}
	return c.taskAsker(request, options).serve(ctx, summarize)
}

// SummarizeWith summarizes the session with a function, like [Client.SummarizeWith].
func (s *Session) SummarizeWith(ctx context.Context, summarize Summarizer, options ...TasksOption) (int, error) {
	request := &memorydv1.LeaseSummaryTaskRequest{Of: &memorydv1.LeaseSummaryTaskRequest_Session{Session: s.key}}
	return s.client.taskAsker(request, options).serve(ctx, summarize)
}

func (a *taskAsker) serve(ctx context.Context, summarize Summarizer) (int, error) {
	made := 0
	for task, err := range a.all(ctx) {
		if err != nil {
			return made, err
		}
		text, err := summarize(ctx, task)
		if err == nil {
			_, err = task.Commit(ctx, text, a.model)
		}
		switch {
		case err == nil:
			made++
		case errors.Is(err, ErrSummaryTaskVoid):
			a.client.logger.Info("memoryd: a summary task is void", "task", task.String(), "error", err)
		default:
			a.client.logger.Warn("memoryd: a session was not summarized",
				"task", task.String(), "error", err)
		}
	}
	return made, nil
}
