package memoryd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	memoryd "github.com/memoryd/memoryd/clients/go"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func appended(t *testing.T, session *memoryd.Session, messages ...*memoryd.Message) []*memoryd.AppendedMessage {
	t.Helper()
	done, err := session.Append(testContext(t), messages)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func textsOf(messages []*memoryd.Message) []string {
	var texts []string
	for _, message := range messages {
		texts = append(texts, memoryd.Text(message))
	}
	return texts
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equalSlices[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func failsWith(t *testing.T, err, target error) *memoryd.Error {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got the error %v, want %v", err, target)
	}
	var typed *memoryd.Error
	if !errors.As(err, &typed) {
		t.Fatalf("%v is no *memoryd.Error", err)
	}
	return typed
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryMessageComesBackAsItWasSent(t *testing.T) {
	ctx, session, _ := newSession(t)
	call := memoryd.NewCall("weather", `{"n": 9007199254740993, "city" : "Oslo"}`)
	sent := []*memoryd.Message{
		memoryd.System("You are a travel agent.", memoryd.Named("boss")),
		memoryd.Developer("Be kind."),
		memoryd.User("a\x00b 🙂 日本語", memoryd.Named(""), memoryd.MessageMetadata(`{ "a":1}`)),
		memoryd.NewMessage(memoryd.RoleUser, nil),
		memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{}),
		memoryd.NewMessage(memoryd.RoleAssistant, []*memoryd.Part{
			memoryd.ReasoningPart("hm", "sig=="), memoryd.TextPart("Let me see."), memoryd.CallPart(call),
		}),
		memoryd.ToolParts(call.Id, []*memoryd.Part{
			memoryd.TextPart("4 degrees"), memoryd.MediaPart("image/png", []byte("\x89PNG")), memoryd.DataPart(`[1.0]`),
		}, memoryd.ToolName("weather"), memoryd.ToolFailed()),
		memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{
			memoryd.MediaReferencePart("image/*", "https://example.com/cat.png"), memoryd.MediaPart("", nil),
			memoryd.RefusalPart("No."),
		}),
		memoryd.User(strings.Repeat("x", 1<<20)),
	}
	answer := appended(t, session, sent...)
	got, err := memoryd.Collect(session.Messages(ctx, memoryd.AllStored(), memoryd.PageSize(2)))
	ok(t, err)
	equal(t, "messages", len(got), len(sent))
	for i, message := range got {
		equal(t, "seq", message.Seq, answer[i].Seq)
		if message.CreateTime == nil {
			t.Error("a stored message has no time")
		}
		bare := proto.CloneOf(message)
		bare.Seq, bare.CreateTime, bare.TokenCount = 0, nil, 0
		if !proto.Equal(bare, sent[i]) {
			t.Errorf("message %d: got %.200v, want %.200v", i, bare, sent[i])
		}
	}
	byID, err := session.MessageByID(ctx, sent[2].Id)
	ok(t, err)
	bySeq, err := session.Message(ctx, 3)
	ok(t, err)
	if !proto.Equal(byID, bySeq) {
		t.Errorf("got %v by id, %v by seq", byID, bySeq)
	}
}

func TestAnAppendThatIsRepeatedIsStoredOnce(t *testing.T) {
	ctx, session, _ := newSession(t)
	messages := []*memoryd.Message{memoryd.User("yes"), {Role: memoryd.RoleUser, Content: &memoryd.Content{}}}
	first, err := session.Append(ctx, messages, memoryd.ExpectedLastSeq(0))
	ok(t, err)
	second, err := session.Append(ctx, messages, memoryd.ExpectedLastSeq(0))
	ok(t, err)
	for i := range first {
		if !proto.Equal(first[i], second[i]) {
			t.Errorf("got %v, then %v", first[i], second[i])
		}
	}
	info, err := session.Info(ctx)
	ok(t, err)
	equal(t, "messages", info.MessageCount, 2)
	changed := memoryd.User("no", memoryd.MessageID(messages[0].Id))
	_, err = session.Append(ctx, []*memoryd.Message{changed})
	equal(t, "the id", failsWith(t, err, memoryd.ErrMessageIDConflict).Metadata["message_id"], messages[0].Id)
	_, err = session.Append(ctx, []*memoryd.Message{memoryd.User("a")}, memoryd.RequestID("r"))
	ok(t, err)
	_, err = session.Append(ctx, []*memoryd.Message{memoryd.User("b")}, memoryd.RequestID("r"))
	failsWith(t, err, memoryd.ErrRequestIDConflict)
	_, err = session.Append(ctx, []*memoryd.Message{memoryd.User("c")}, memoryd.ExpectedLastSeq(7))
	equal(t, "the last seq", failsWith(t, err, memoryd.ErrLastSeqMismatch).Actual(), 3)
}

// Run with -race: the id that one goroutine gives the message is the one that all send.
func TestOneMessageIsAppendedByManyGoroutinesAtOnce(t *testing.T) {
	ctx, session, _ := newSession(t)
	message := &memoryd.Message{Role: memoryd.RoleUser, Content: &memoryd.Content{Parts: []*memoryd.Part{memoryd.TextPart("yes")}}}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := session.Append(ctx, []*memoryd.Message{message}); err != nil {
				t.Error(err)
			}
			if _, err := session.AppendAll(ctx, slices.Values([]*memoryd.Message{message}), nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	stored, err := memoryd.Collect(session.Messages(ctx))
	ok(t, err)
	equal(t, "messages", len(stored), 1)
	equal(t, "id", stored[0].Id, message.Id)
}

func TestAnyNumberOfMessagesIsAppendedInBatches(t *testing.T) {
	ctx, session, _ := newSession(t)
	var messages []*memoryd.Message
	for i := range 300 {
		messages = append(messages, memoryd.User(fmt.Sprint(i)))
	}
	for range 4 {
		messages = append(messages, memoryd.User(strings.Repeat("x", 1<<20)))
	}
	var sizes []int
	for batch := range memoryd.Batches(slices.Values(messages)) {
		sizes = append(sizes, len(batch))
	}
	equalSlices(t, "batches", sizes, []int{256, 47, 1})
	settings := &memoryd.SessionSettings{UserID: "mia"}
	done, err := session.AppendAll(ctx, slices.Values(messages), settings)
	ok(t, err)
	equal(t, "last seq", done[len(done)-1].Seq, 304)
	info, err := session.Info(ctx)
	ok(t, err)
	equal(t, "user", info.UserId, "mia")
	again, err := session.AppendAll(ctx, slices.Values(messages), settings)
	ok(t, err)
	equal(t, "last seq of the repeat", again[len(again)-1].Seq, 304)
}

func TestListsFilterAndOrder(t *testing.T) {
	ctx, session, _ := newSession(t)
	before := time.Now().Add(-time.Minute)
	call := memoryd.NewCall("f", "{}")
	appended(t, session, memoryd.User("a"), memoryd.CallTools(call), memoryd.Tool(call.Id, "r"), memoryd.User("b"))
	list := func(options ...memoryd.MessagesOption) []int64 {
		t.Helper()
		messages, err := memoryd.Collect(session.Messages(ctx, append(options, memoryd.PageSize(1))...))
		ok(t, err)
		var seqs []int64
		for _, message := range messages {
			seqs = append(seqs, message.Seq)
		}
		return seqs
	}
	equalSlices(t, "newest first", list(memoryd.NewestFirst()), []int64{4, 3, 2, 1})
	equalSlices(t, "by role", list(memoryd.WithRoles(memoryd.RoleUser, memoryd.RoleTool)), []int64{1, 3, 4})
	equalSlices(t, "by seq", list(memoryd.FromSeq(2), memoryd.ToSeq(3)), []int64{2, 3})
	equalSlices(t, "by run", list(memoryd.OfRun("r")), nil)
	equalSlices(t, "since", list(memoryd.StoredSince(before)), []int64{1, 2, 3, 4})
	equalSlices(t, "before", list(memoryd.StoredBefore(before)), nil)
	for message, err := range session.Messages(ctx) {
		ok(t, err)
		equal(t, "the first", message.Seq, 1)
		break
	}
	_, err := memoryd.Collect(session.Messages(ctx, memoryd.PageSize(-5)))
	equal(t, "field", failsWith(t, err, memoryd.ErrInvalidArgument).Field(), "page_size")
}

func TestWindowsFit(t *testing.T) {
	ctx, session, _ := newSession(t)
	call := memoryd.NewCall("weather", `{"city":"Oslo"}`)
	open := memoryd.NewCall("weather", `{"city":"Rome"}`)
	appended(t, session, memoryd.System("Be brief."), memoryd.User("Weather?"), memoryd.CallTools(call),
		memoryd.Tool(call.Id, "4 degrees"), memoryd.Assistant("4."), memoryd.CallTools(open))
	window, err := session.Window(ctx, memoryd.MaxMessages(3), memoryd.Explain())
	ok(t, err)
	equalSlices(t, "texts", textsOf(window.Messages), []string{"Be brief.", "4."})
	equal(t, "mode", window.Stats.GetMode(), memoryd.WindowModeMessages)
	equal(t, "left out", window.Stats.GetLeftOut().GetOpenToolCallCount(), 1)
	equal(t, "explained", len(window.Stats.GetLeftOut().GetMessages()), 1)
	window, err = session.Window(ctx, memoryd.MaxTokens(1_000), memoryd.WithOpenCalls(memoryd.OpenCallsSynthesize),
		memoryd.PinSystem(false), memoryd.StartWithUser(true), memoryd.WithOversize(memoryd.OversizeReturn),
		memoryd.WithSummary(false), memoryd.WaitForSummary(false))
	ok(t, err)
	last := window.Messages[len(window.Messages)-1]
	equal(t, "seq of the synthesized result", last.Seq, 0)
	equal(t, "its call", memoryd.ToolResults(last)[0].CallId, open.Id)
	equal(t, "call", memoryd.ToolCalls(window.Messages[2])[0].Arguments, call.Arguments)
	appended(t, session, memoryd.User(strings.Repeat("word ", 500)))
	_, err = session.Window(ctx, memoryd.MaxTokens(10), memoryd.WithOversize(memoryd.OversizeFail))
	failsWith(t, err, memoryd.ErrWindowTooSmall)
	_, err = session.Window(ctx, memoryd.MaxTokens(0))
	failsWith(t, err, memoryd.ErrFieldInvalid)
	for _, both := range [][]memoryd.WindowOption{
		{memoryd.MaxTokens(5), memoryd.MaxMessages(5)}, {memoryd.MaxMessages(5), memoryd.MaxTokens(5)},
	} {
		if _, err = session.Window(ctx, both...); err == nil || !strings.Contains(err.Error(), "one limit") {
			t.Errorf("got %v", err)
		}
	}
}

func TestALargeWindowIsStreamed(t *testing.T) {
	ctx, session, _ := newSession(t)
	for i := range 5 {
		appended(t, session, memoryd.User(fmt.Sprint(i, strings.Repeat("x", 1<<20))))
	}
	window, err := session.Window(ctx)
	ok(t, err)
	equal(t, "messages", len(window.Messages), 5)
	equal(t, "stats", window.Stats.GetWindowMessageCount(), 5)
	equal(t, "the last", memoryd.Text(window.Messages[4])[:2], "4x")
}

func TestSettingsOfASession(t *testing.T) {
	ctx, session, client := newSession(t)
	_, err := session.Info(ctx)
	equal(t, "agent", failsWith(t, err, memoryd.ErrSessionNotFound).Metadata["agent"], session.Agent())
	if !errors.Is(err, memoryd.ErrNotFound) || errors.Is(err, memoryd.ErrUnavailable) {
		t.Errorf("%v is of the wrong class", err)
	}
	policy := &memoryd.Policy{Window: &memoryd.WindowOptions{
		Mode: new(memoryd.WindowModeTokens), Limit: new(int64(8_000)),
	}}
	_, err = session.Append(ctx, []*memoryd.Message{memoryd.User("Hello!")}, memoryd.SessionSettings{
		UserID: "user " + session.ID(), Labels: map[string]string{"channel": "web"}, Policy: policy, TTL: time.Hour,
		Tokenizer: memoryd.TokenizerEstimate,
	})
	ok(t, err)
	info, err := session.Info(ctx)
	ok(t, err)
	equal(t, "label", info.Labels["channel"], "web")
	equal(t, "ttl", info.Ttl.AsDuration(), time.Hour)
	equal(t, "tokenizer", info.Tokenizer, memoryd.TokenizerEstimate)
	equal(t, "limit", info.Policy.GetWindow().GetLimit(), 8_000)
	changed, err := session.Update(ctx, memoryd.SetTTL(0), memoryd.SetLabels(nil), memoryd.IfEtag(info.Etag))
	ok(t, err)
	equal(t, "labels", len(changed.Labels), 0)
	if changed.Ttl != nil || changed.Policy == nil {
		t.Errorf("got %v", changed)
	}
	_, err = session.Update(ctx, memoryd.SetUser(""), memoryd.IfEtag(info.Etag))
	failsWith(t, err, memoryd.ErrEtagMismatch)
	_, err = session.Update(ctx, memoryd.IfEtag(info.Etag))
	if err == nil {
		t.Error("an update of nothing is no error")
	}
	sessions, err := memoryd.Collect(client.Sessions(ctx, memoryd.OfUser(info.UserId), memoryd.OfAgent(session.Agent())))
	ok(t, err)
	equal(t, "sessions", len(sessions), 1)
	erased, err := client.EraseUser(ctx, info.UserId)
	ok(t, err)
	equal(t, "erased", erased.ErasedMessageCount, 1)
	_, err = client.EraseUser(ctx, "")
	equal(t, "field", failsWith(t, err, memoryd.ErrFieldRequired).Field(), "user_id")
}

func TestClearRewindRedactFork(t *testing.T) {
	ctx, session, client := newSession(t)
	appended(t, session, memoryd.User("a"), memoryd.User("b"), memoryd.User("c"))
	fork, err := session.Fork(ctx, memoryd.ThroughSeq(2))
	ok(t, err)
	window, err := fork.Window(ctx)
	ok(t, err)
	equalSlices(t, "fork", textsOf(window.Messages), []string{"a", "b"})
	_, err = session.Fork(ctx, memoryd.ForkTo(fork))
	failsWith(t, err, memoryd.ErrSessionExists)
	_, err = session.Rewind(ctx, 2, memoryd.ExpectedLastSeq(9))
	failsWith(t, err, memoryd.ErrLastSeqMismatch)
	rewound, err := session.Rewind(ctx, 2, memoryd.ExpectedLastSeq(3), memoryd.RequestID("once"))
	ok(t, err)
	equal(t, "removed", rewound.RemovedMessageCount, 1)
	redacted, err := session.Redact(ctx, 1, "a card number")
	ok(t, err)
	equal(t, "text", memoryd.Text(redacted), "[REDACTED]")
	equal(t, "reason", redacted.GetRedaction().GetReason(), "a card number")
	_, err = session.RedactByID(ctx, "nothing", "")
	failsWith(t, err, memoryd.ErrMessageNotFound)
	cleared, err := session.Clear(ctx, memoryd.RequestID("r"))
	ok(t, err)
	equal(t, "cleared", cleared, 2)
	cleared, err = session.Clear(ctx, memoryd.RequestID("r"))
	ok(t, err)
	equal(t, "cleared, repeated", cleared, 2)
	all, err := client.ClearAgent(ctx, session.Agent())
	ok(t, err)
	equal(t, "cleared of the agent", all.ClearedMessageCount, 2)
}

func TestAgents(t *testing.T) {
	ctx, session, client := newSession(t)
	agent := client.Agent(session.Agent())
	info, err := agent.Info(ctx)
	ok(t, err)
	equal(t, "load_memory", info.GetLoadMemory(), false)
	policy := &memoryd.Policy{Window: &memoryd.WindowOptions{Limit: new(int64(1))}}
	changed, err := agent.Update(ctx, memoryd.SetPolicy(policy), memoryd.LoadMemory(true), memoryd.KeepRuns(time.Hour))
	ok(t, err)
	equal(t, "run retention", changed.RunRetention.AsDuration(), time.Hour)
	_, err = agent.Update(ctx, memoryd.KeepRunsByDefault(), memoryd.IfEtag("other"))
	failsWith(t, err, memoryd.ErrEtagMismatch)
	changed, err = agent.Update(ctx, memoryd.KeepRunsByDefault(), memoryd.IfEtag(changed.Etag))
	ok(t, err)
	if changed.RunRetention != nil || !changed.GetLoadMemory() {
		t.Errorf("got %v", changed)
	}
	found := false
	for info, err := range client.Agents(ctx, memoryd.PageSize(1)) {
		ok(t, err)
		found = found || info.Agent == agent.Name()
	}
	equal(t, "found in the list", found, true)
}

func TestStoresAreSwitched(t *testing.T) {
	ctx, session, client := newSession(t)
	appended(t, session, memoryd.User("in main"))
	list := session.Messages(ctx)
	stores, err := client.Stores(ctx)
	ok(t, err)
	equal(t, "stores", len(stores), 2)
	_, err = client.SwitchStore(ctx, "nowhere")
	failsWith(t, err, memoryd.ErrStoreUnknown)
	_, err = client.SwitchStore(ctx, "ö")
	if err == nil {
		t.Error("a name that no store has is taken")
	}
	store, err := client.SwitchStore(ctx, "other")
	ok(t, err)
	equal(t, "store", store.Name, "other")
	_, err = session.Info(ctx)
	failsWith(t, err, memoryd.ErrSessionNotFound)
	messages, err := memoryd.Collect(list)
	ok(t, err)
	equalSlices(t, "a list that was begun", textsOf(messages), []string{"in main"})
	kind, err := client.StoreType(ctx)
	ok(t, err)
	equal(t, "type", kind, "in_memory")
	other := newClient(t, shared.address, memoryd.WithStore("main"))
	info, err := other.Session(session.Agent(), session.ID()).Info(ctx)
	ok(t, err)
	equal(t, "messages", info.MessageCount, 1)
}

func TestTheBareStubsHaveTheClientsStoreAndErrors(t *testing.T) {
	ctx, session, client := newSession(t)
	_, err := memorydv1.NewHistoryServiceClient(client.Conn()).GetSession(ctx, &memorydv1.GetSessionRequest{
		Session: &memoryd.SessionKey{Agent: session.Agent(), SessionId: session.ID()},
	})
	failsWith(t, err, memoryd.ErrSessionNotFound)
}

func TestManyGoroutinesShareAClient(t *testing.T) {
	ctx, session, _ := newSession(t)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 5 {
				if _, err := session.Append(ctx, []*memoryd.Message{memoryd.User(fmt.Sprint(worker, i))}); err != nil {
					t.Error(err)
				}
				if _, err := session.Window(ctx, memoryd.MaxMessages(3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	info, err := session.Info(context.WithoutCancel(ctx))
	ok(t, err)
	equal(t, "messages", info.MessageCount, 40)
}
