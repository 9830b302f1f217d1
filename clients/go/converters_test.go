package memoryd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	memoryd "github.com/memoryd/memoryd/clients/go"
	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
)

// shape is a provider's message, and what the Python client reads it into.
type shape struct {
	name     string
	source   any
	messages []*memoryd.Message
}

func shapes(t *testing.T, kind string) []shape {
	t.Helper()
	text, err := os.ReadFile("testdata/provider_shapes.json")
	ok(t, err)
	all, err := jsonvalue.Parse(string(text))
	ok(t, err)
	var found []shape
	for _, each := range all.(*jsonvalue.Object).Value(kind).([]any) {
		object := each.(*jsonvalue.Object)
		s := shape{name: object.Value("name").(string), source: object.Value("source")}
		for _, told := range object.Value("messages").([]any) {
			message := &memoryd.Message{}
			ok(t, protojson.Unmarshal([]byte(jsonvalue.Text(told)), message))
			s.messages = append(s.messages, message)
		}
		found = append(found, s)
	}
	return found
}

// stored is the messages as they come back from a server: over the wire, with all that a server adds.
func stored(t *testing.T, messages []*memoryd.Message) []*memoryd.Message {
	t.Helper()
	var all []*memoryd.Message
	for i, message := range messages {
		wire, err := proto.Marshal(message)
		ok(t, err)
		read := &memoryd.Message{}
		ok(t, proto.Unmarshal(wire, read))
		read.Seq, read.TokenCount, read.CreateTime = int64(i+1), 7, timestamppb.Now()
		all = append(all, read)
	}
	return all
}

func sameJSON(t *testing.T, what string, got, want []byte) {
	t.Helper()
	a, err := jsonvalue.Parse(string(got))
	ok(t, err)
	b, err := jsonvalue.Parse(string(want))
	ok(t, err)
	if !jsonvalue.Equal(a, b) {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func sameMessages(t *testing.T, got, want []*memoryd.Message) {
	t.Helper()
	equal(t, "messages", len(got), len(want))
	for i := range min(len(got), len(want)) {
		a, b := proto.CloneOf(got[i]), proto.CloneOf(want[i])
		a.Id, b.Id = "", ""
		if a.Extra != "" && b.Extra != "" {
			sameJSON(t, "extra", []byte(a.Extra), []byte(b.Extra))
			a.Extra, b.Extra = "", ""
		}
		if !proto.Equal(a, b) {
			t.Errorf("got %v, want %v", a, b)
		}
	}
}

func readOpenAI(t *testing.T, source string) []*memoryd.Message {
	t.Helper()
	messages, err := memoryd.FromOpenAI([]byte(source))
	ok(t, err)
	return messages
}

func readAnthropic(t *testing.T, source string) []*memoryd.Message {
	t.Helper()
	messages, err := memoryd.FromAnthropic(memoryd.AnthropicPrompt{Messages: json.RawMessage(source)})
	ok(t, err)
	return messages
}

func TestEveryShapeOfOpenAIComesBackEqualAndIsReadAsInPython(t *testing.T) {
	var all []any
	for _, s := range shapes(t, "openai") {
		t.Run(s.name, func(t *testing.T) {
			source := jsonvalue.Text([]any{s.source})
			messages := readOpenAI(t, source)
			sameMessages(t, messages, s.messages)
			sameJSON(t, "after it was stored", memoryd.ToOpenAI(stored(t, messages)), []byte(source))
			plain := &memoryd.Message{Role: messages[0].Role, Content: messages[0].Content, Name: messages[0].Name}
			sameJSON(t, "for Anthropic", memoryd.ToAnthropic(messages).Messages,
				memoryd.ToAnthropic([]*memoryd.Message{plain}).Messages)
		})
		all = append(all, s.source)
	}
	together := jsonvalue.Text(all)
	sameJSON(t, "all together", memoryd.ToOpenAI(stored(t, readOpenAI(t, together))), []byte(together))
}

func TestEveryShapeOfAnthropicComesBackEqualAndIsReadAsInPython(t *testing.T) {
	var all []any
	for _, s := range shapes(t, "anthropic") {
		t.Run(s.name, func(t *testing.T) {
			source := jsonvalue.Text([]any{s.source})
			messages := readAnthropic(t, source)
			sameMessages(t, messages, s.messages)
			sameJSON(t, "after it was stored", memoryd.ToAnthropic(stored(t, messages)).Messages, []byte(source))
		})
		all = append(all, s.source)
	}
	together := jsonvalue.Text(all)
	sameJSON(t, "all together", memoryd.ToAnthropic(stored(t, readAnthropic(t, together))).Messages, []byte(together))
	for _, s := range shapes(t, "anthropic_systems") {
		prompt := memoryd.AnthropicPrompt{System: json.RawMessage(jsonvalue.Text(s.source)), Messages: json.RawMessage("[]")}
		messages, err := memoryd.FromAnthropic(prompt)
		ok(t, err)
		sameMessages(t, messages, s.messages)
		sameJSON(t, s.name, memoryd.ToAnthropic(stored(t, messages)).System, prompt.System)
	}
}

func TestMessagesMadeByHandForOpenAI(t *testing.T) {
	one, two := memoryd.NewCall("f", "{}"), memoryd.NewCall("g", "{}")
	one.Id, two.Id = "a", "b"
	result := func(id, text string) *memoryd.Part {
		return memoryd.ResultPart(&memoryd.ToolResult{CallId: id, Parts: []*memoryd.Part{memoryd.TextPart(text)}})
	}
	window := memoryd.Window{Messages: []*memoryd.Message{
		memoryd.System("Be brief."),
		memoryd.NewMessage(memoryd.RoleUser, nil),
		memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{
			memoryd.DataPart(`{"b": 1}`), memoryd.MediaReferencePart("", "https://e.com/a.pdf"),
			memoryd.MediaPart("image/png", []byte("\x89PNG\r\n\x1a\n")),
		}),
		memoryd.Assistant("Let me see.", memoryd.WithCalls(one, two)),
		memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{memoryd.TextPart("One is done."), result("a", "1")}),
		memoryd.NewMessage(memoryd.RoleAssistant, []*memoryd.Part{memoryd.ReasoningPart("hm", "")}),
		memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{result("b", "2"), memoryd.TextPart("Two is done.")}),
		{Role: memoryd.RoleTool},
		memoryd.User("Go on."),
	}}
	sameJSON(t, "messages", window.ToOpenAI(), []byte(`[
		{"role": "system", "content": "Be brief."},
		{"role": "user", "content": null},
		{"role": "user", "content": [
			{"type": "text", "text": "{\"b\": 1}"}, {"type": "text", "text": "[file: https://e.com/a.pdf]"},
			{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]},
		{"role": "assistant", "content": "Let me see.", "tool_calls": [
			{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
			{"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "a", "content": "1"},
		{"role": "tool", "tool_call_id": "b", "content": "2"},
		{"role": "tool", "tool_call_id": "", "content": ""},
		{"role": "user", "content": "One is done."},
		{"role": "user", "content": "Two is done."},
		{"role": "user", "content": "Go on."}]`))
}

func TestMessagesMadeByHandForAnthropic(t *testing.T) {
	calls := []*memoryd.ToolCall{
		{Id: "c", Name: "weather", Arguments: `{"n":9007199254740993}`}, {Id: "d", Name: "rain", Arguments: `{"a`},
		{Id: "e", Name: "wind"}, {Id: "f", Name: "deep", Arguments: strings.Repeat("[", 100_000)},
	}
	prompt := memoryd.ToAnthropic([]*memoryd.Message{
		memoryd.System("Be brief."),
		memoryd.NewMessage(memoryd.RoleDeveloper, []*memoryd.Part{memoryd.TextPart("Be kind."), memoryd.DataPart("1")}),
		memoryd.User("Weather?", memoryd.Named("ada")),
		memoryd.Assistant("", memoryd.WithCalls(calls[:3]...)),
		memoryd.ToolParts("c", []*memoryd.Part{
			memoryd.TextPart("12 C"), memoryd.MediaPart("image/png", []byte("\x89PNG\r\n\x1a\n")),
		}),
		memoryd.Tool("d", "no such tool", memoryd.ToolFailed(), memoryd.ToolName("rain")),
		memoryd.ToolParts("e", nil),
		memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{
			memoryd.TextPart("Go on."), memoryd.MediaPart("audio/wav", []byte("1234")),
			memoryd.MediaReferencePart("application/pdf", "https://e.com/a"),
		}),
		memoryd.Assistant(""),
		memoryd.System("Be brief again."),
	})
	sameJSON(t, "system", prompt.System, []byte(`[{"type": "text", "text": "Be brief."},
		{"type": "text", "text": "Be kind."}, {"type": "text", "text": "1"}]`))
	sameJSON(t, "messages", prompt.Messages, []byte(`[
		{"role": "user", "content": "Weather?"},
		{"role": "assistant", "content": [
			{"type": "tool_use", "id": "c", "name": "weather", "input": {"n": 9007199254740993}},
			{"type": "tool_use", "id": "d", "name": "rain", "input": {"arguments": "{\"a"}},
			{"type": "tool_use", "id": "e", "name": "wind", "input": {}}]},
		{"role": "user", "content": [
			{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "12 C"},
				{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
			{"type": "tool_result", "tool_use_id": "d", "content": "no such tool", "is_error": true},
			{"type": "tool_result", "tool_use_id": "e"}]},
		{"role": "user", "content": [
			{"type": "text", "text": "Go on."}, {"type": "text", "text": "[audio/wav, 4 bytes]"},
			{"type": "document", "source": {"type": "url", "url": "https://e.com/a"}}]},
		{"role": "user", "content": "Be brief again."}]`))
	for _, arguments := range []string{calls[3].Arguments, `{"a": ` + strings.Repeat("9", 5_000) + "}", "nonsense"} {
		call := &memoryd.ToolCall{Id: "a", Name: "f", Arguments: arguments}
		text := string(memoryd.ToAnthropic([]*memoryd.Message{memoryd.CallTools(call)}).Messages)
		if !strings.Contains(text, `"input":{"arguments":"`) {
			t.Errorf("%.20s… is not kept as text", arguments)
		}
	}
	encoded, err := json.Marshal(memoryd.ToAnthropic(nil))
	ok(t, err)
	equal(t, "an empty prompt", string(encoded), `{"messages":[]}`)
}

func TestAWindowHasTheResultsOfATurnInOneMessage(t *testing.T) {
	const use = `{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}},
		{"type": "tool_use", "id": "b", "name": "f", "input": {}}]}`
	const one, two = `{"type": "tool_result", "tool_use_id": "a", "content": "1"}`,
		`{"type": "tool_result", "tool_use_id": "b", "content": "2"}`
	const said = `{"type": "text", "text": "One."}`
	by := func(blocks ...string) string {
		return fmt.Sprintf(`{"role": "user", "content": [%s]}`, strings.Join(blocks, ", "))
	}
	valid := fmt.Sprintf("[%s, %s]", use, by(one, two, said))
	for _, turn := range []string{
		by(one, said) + "," + by(two), by(said, one) + "," + by(two), by(one) + "," + by(two, said), by(one, said, two),
	} {
		source := fmt.Sprintf("[%s, %s]", use, turn)
		messages := stored(t, readAnthropic(t, source))
		sameJSON(t, "a list", memoryd.ToAnthropic(messages).Messages, []byte(source))
		window := memoryd.Window{Messages: messages}
		sameJSON(t, "a window", window.ToAnthropic().Messages, []byte(valid))
	}
}

func TestResultsThatAWindowLeftOutTakeTheirNotesAlong(t *testing.T) {
	const cached = `"cache_control": {"type": "ephemeral"}`
	blocks := []string{
		`{"type": "tool_result", "tool_use_id": "a", "content": "1", "is_error": false, ` + cached + `}`,
		`{"type": "text", "text": "Go on.", ` + cached + `}`,
		`{"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}], "is_error": false}`,
		`{"type": "hologram"}`,
	}
	by := func(blocks ...string) string {
		return fmt.Sprintf(`[{"role": "user", "content": [%s]}]`, strings.Join(blocks, ", "))
	}
	message := readAnthropic(t, by(blocks...))[0]
	for _, left := range [][]int{{0, 1, 2, 3}, {1, 3}, {1, 2, 3}} {
		shown := proto.CloneOf(message)
		shown.Content.Parts = nil
		for _, index := range left {
			shown.Content.Parts = append(shown.Content.Parts, message.Content.Parts[index])
		}
		want := by(blocks...)
		switch len(left) {
		case 2:
			want = by(blocks[1], blocks[3])
		case 3:
			want = by(blocks[1], `{"type": "tool_result", "tool_use_id": "b", "content": "2"}`, blocks[3])
		}
		sameJSON(t, fmt.Sprint(left), memoryd.ToAnthropic([]*memoryd.Message{shown}).Messages, []byte(want))
	}
}

func TestShortenedTextsStayShortened(t *testing.T) {
	long := strings.Repeat("0123456789", 100)
	message := readOpenAI(t, fmt.Sprintf(`[{"role": "user", "content": [{"type": "text", "text": %q, "x": 1}]}]`, long))[0]
	if len(message.Extra) > 200 {
		t.Errorf("content is kept twice: %s", message.Extra)
	}
	message.Content.Parts[0] = memoryd.TextPart("012[shortened]")
	sameJSON(t, "shortened", memoryd.ToOpenAI([]*memoryd.Message{message}),
		[]byte(`[{"role": "user", "content": [{"type": "text", "text": "012[shortened]", "x": 1}]}]`))
}

func TestAConversationGoesFromProviderToProvider(t *testing.T) {
	const conversation = `[
		{"role": "system", "content": "You are a travel agent."},
		{"role": "user", "content": "Weather in Oslo and Rome? 🙂"},
		{"role": "assistant", "content": "Let me see.", "tool_calls": [
			{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"}},
			{"id": "b", "type": "function", "function": {"name": "search", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "a", "content": "4 C"},
		{"role": "tool", "tool_call_id": "b", "content": ""},
		{"role": "assistant", "content": "4 degrees."}]`
	prompt := memoryd.ToAnthropic(stored(t, readOpenAI(t, conversation)))
	sameJSON(t, "system", prompt.System, []byte(`"You are a travel agent."`))
	messages, err := memoryd.FromAnthropic(prompt)
	ok(t, err)
	sameJSON(t, "there and back", memoryd.ToOpenAI(stored(t, messages)), []byte(conversation))
}

func TestAnExtraThatSaysNothingIsPassedOver(t *testing.T) {
	const call = `{"role": "assistant", "content": "Hello!", "tool_calls": [
		{"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}`
	message := readOpenAI(t, "["+call+"]")[0]
	for _, extra := range []string{
		"", "{", "[]", "null", `{"openai":7}`,
		`{"openai":{"parts":[1],"calls":3,"patch":{"in":5,"set":6}}}`, `{"openai":{"patch":7}}`,
		`{"openai":{"patch":{"in":{"tool_calls":8},"del":9}}}`,
	} {
		message.Extra = extra
		sameJSON(t, extra, memoryd.ToOpenAI([]*memoryd.Message{message}), []byte("["+call+"]"))
	}
}

func TestWhatIsNoMessageIsNamed(t *testing.T) {
	for source, complaint := range map[string]string{
		`["text"]`:                         "messages[0] is not an object",
		`[{"content": "a"}]`:               "messages[0] has the role null; it can be one of ",
		`[{"role": "critic"}]`:             `messages[0] has the role "critic"`,
		`[{"role": "user", "content": 7}]`: "messages[0] has content",
		`{}`:                               "no JSON array",
		`[`:                                "no JSON at byte 1",
		"[\"\xff\"]":                       "not UTF-8",
	} {
		_, openAI := memoryd.FromOpenAI([]byte(source))
		_, anthropic := memoryd.FromAnthropic(memoryd.AnthropicPrompt{Messages: json.RawMessage(source)})
		for _, err := range []error{openAI, anthropic} {
			if err == nil || !strings.Contains(err.Error(), complaint) {
				t.Errorf("%s: got %v, want %s", source, err, complaint)
			}
		}
	}
}

func TestIDsOfReadMessagesAreTheirOwn(t *testing.T) {
	messages := readOpenAI(t, `[{"role": "user", "content": "yes"}, {"role": "user", "content": "yes"}]`)
	if messages[0].Id == "" || messages[0].Id == messages[1].Id {
		t.Error("two messages have one id")
	}
	ids := []string{memoryd.NewID(), memoryd.NewID()}
	equal(t, "length", len(ids[0]), 32)
	equal(t, "version", ids[0][12], '7')
	if ids[0] == ids[1] {
		t.Error("two ids are one")
	}
}
