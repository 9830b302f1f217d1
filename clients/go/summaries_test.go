package memoryd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

func folding(summarizer string) *memoryd.Policy {
	return &memoryd.Policy{
		Window: &memoryd.WindowOptions{Mode: new(memoryd.WindowModeMessages), Limit: new(int64(6))},
		Summary: &memoryd.SummaryPolicy{
			Summarizer: summarizer, Keep: new(int64(3)),
		},
	}
}

func talk(t *testing.T, session *memoryd.Session, policy *memoryd.Policy, count int) {
	t.Helper()
	var messages []*memoryd.Message
	for i := range count {
		messages = append(messages, memoryd.User(fmt.Sprintf("My favourite number is %d.", i)))
	}
	_, err := session.Append(testContext(t), messages, memoryd.SessionSettings{Policy: policy})
	ok(t, err)
}

func TestSummariesOfTheServer(t *testing.T) {
	ctx, session, _ := newSession(t)
	talk(t, session, folding("extractive"), 5)
	_, err := session.Summary(ctx, "")
	failsWith(t, err, memoryd.ErrSummaryNotFound)
	folded, err := session.Summarize(ctx)
	ok(t, err)
	equal(t, "folded", folded.FoldedMessageCount, 2)
	window, err := session.Window(ctx)
	ok(t, err)
	equal(t, "state", window.Stats.SummaryState, memoryd.SummaryStateCurrent)
	if !strings.HasPrefix(memoryd.Text(window.Messages[0]), "[CONVERSATION SUMMARY]\n") {
		t.Errorf("got %v", window.Messages[0])
	}
	summary, err := session.Summary(ctx, window.Stats.SummaryId)
	ok(t, err)
	equal(t, "to seq", summary.ToSeq, 2)
	all, err := session.Summaries(ctx)
	ok(t, err)
	equal(t, "summaries", len(all), 1)
	_, err = session.RevertSummary(ctx, "another")
	failsWith(t, err, memoryd.ErrSummaryNotFound)
	before, err := session.RevertSummary(ctx, summary.Id)
	ok(t, err)
	if before != nil {
		t.Errorf("got %v", before)
	}
	for _, err := range session.SummaryTasks(ctx, memoryd.UntilNoneWaits()) {
		failsWith(t, err, memoryd.ErrSummarizerDiffers)
	}
}

func TestAnAgentSummarizesWithItsOwnModel(t *testing.T) {
	ctx, session, client := newSession(t)
	talk(t, session, folding("client"), 9)
	window, err := session.Window(ctx)
	ok(t, err)
	equal(t, "state", window.Stats.SummaryState, memoryd.SummaryStatePending)
	made, err := client.SummarizeWith(ctx, session.Agent(), func(_ context.Context, task *memoryd.SummaryTask) (string, error) {
		equal(t, "session", task.SessionID(), session.ID())
		equal(t, "messages", len(task.Messages()), 6)
		if !strings.Contains(task.Prompt(), "favourite number is 0") || task.TargetTokens() == 0 {
			t.Errorf("got %v", task)
		}
		return "Numbers were told.", nil
	}, memoryd.ModelName("mine"), memoryd.UntilNoneWaits())
	ok(t, err)
	equal(t, "made", made, 1)
	summary, err := session.Summary(ctx, "")
	ok(t, err)
	equal(t, "text", summary.Text, "Numbers were told.")
	equal(t, "model", summary.Model, "mine")
}

func TestATaskThatIsNotCommittedIsGivenUp(t *testing.T) {
	ctx, session, client := newSession(t)
	talk(t, session, folding("client"), 9)
	_, err := session.Window(ctx)
	ok(t, err)
	var abandoned *memoryd.SummaryTask
	for task, err := range session.SummaryTasks(ctx, memoryd.UntilNoneWaits()) {
		ok(t, err)
		abandoned = task
		ok(t, task.Abandon(ctx, false))
		break
	}
	_, err = abandoned.Commit(ctx, "late", "")
	failsWith(t, err, memoryd.ErrSummaryTaskVoid)
	made, err := client.SummarizeWith(ctx, session.Agent(), func(context.Context, *memoryd.SummaryTask) (string, error) {
		return "", errors.New("the model is out")
	}, memoryd.UntilNoneWaits())
	ok(t, err)
	equal(t, "made", made, 0)
	window, err := session.Window(ctx)
	ok(t, err)
	equal(t, "state", window.Stats.SummaryState, memoryd.SummaryStateFailed)
	short, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.SummarizeWith(short, session.Agent(), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestClosingAClientGivesItsTasksBack(t *testing.T) {
	ctx, session, client := newSession(t)
	talk(t, session, folding("client"), 9)
	_, err := session.Window(ctx)
	ok(t, err)
	other := newClient(t, shared.address)
	for _, err := range other.SummaryTasks(ctx, session.Agent(), memoryd.UntilNoneWaits()) {
		ok(t, err)
		ok(t, other.Close())
		break
	}
	found := 0
	for task, err := range client.SummaryTasks(ctx, session.Agent(), memoryd.UntilNoneWaits()) {
		ok(t, err)
		found++
		_, err := task.Commit(ctx, "Numbers.", "")
		ok(t, err)
	}
	equal(t, "found", found, 1)
}
