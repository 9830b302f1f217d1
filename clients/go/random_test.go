package memoryd_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	memoryd "github.com/memoryd/memoryd/clients/go"
	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
)

// maker makes providers' messages: the shapes that have a meaning, and around them any JSON at all.
type maker struct{ *rand.Rand }

func pick[Item any](m maker, of ...Item) Item { return of[m.IntN(len(of))] }

func (m maker) text() any {
	return pick(m, "", " ", "\x00", "\xed\xa0\x80", "{", "data:,", "https://e.com", "a", "🙂", "1", `{"a":1}`)
}

func (m maker) base64() any { return pick(m, "", "iVBORw0KGgo=", "iVBORw", "UklGRg==", "~~") }

func (m maker) url() any {
	return pick[any](m, m.text(), "data:image/png;base64,iVBORw0KGgo=", "data:text/plain;base64,", "file-1")
}

func (m maker) number() any {
	return pick(m, jsonvalue.Number("0"), "1.0", "-0.0", "1e300", "1180591620717411303424", "-7")
}

func (m maker) any(depth int) any {
	switch m.IntN(8) {
	case 0:
		return nil
	case 1:
		return m.IntN(2) == 0
	case 2:
		return m.number()
	case 3, 4, 5:
		return m.text()
	case 6:
		return m.list(depth, m.any)
	}
	object := jsonvalue.NewObject()
	for range m.IntN(3) * min(depth, 1) {
		object.Set(m.text().(string), m.any(depth-1))
	}
	return object
}

func (m maker) list(depth int, item func(int) any) any {
	items := []any{}
	for range m.IntN(4) * min(depth, 1) {
		items = append(items, item(depth-1))
	}
	return items
}

// object has the required keys, some of the optional ones, and now and then values of other types and unknown keys.
func (m maker) object(required map[string]any, optional map[string]any) *jsonvalue.Object {
	object := jsonvalue.NewObject()
	for key, value := range required {
		object.Set(key, value)
	}
	for key, value := range optional {
		switch m.IntN(8) {
		case 0:
			object.Set(key, m.any(2))
		case 1, 2, 3, 4:
			object.Set(key, value)
		}
	}
	if m.IntN(5) == 0 {
		if key := pick(m, "id", "cache_control", "index", "x"); object.Value(key) == nil {
			object.Set(key, m.any(2))
		}
	}
	return object
}

type keys = map[string]any

func (m maker) openAIPart(int) any {
	return pick[any](m, m.object(keys{"type": "text"}, keys{"text": m.text()}),
		m.object(keys{"type": "refusal"}, keys{"refusal": m.text()}),
		m.object(keys{"type": "image_url"}, keys{"image_url": m.object(nil, keys{"url": m.url(), "detail": m.text()})}),
		m.object(keys{"type": "input_audio"}, keys{
			"input_audio": m.object(nil, keys{"data": m.base64(), "format": pick(m, "wav", "mp3", "mpeg", "")}),
		}),
		m.object(keys{"type": "file"}, keys{
			"file": m.object(nil, keys{"file_data": m.url(), "file_id": m.text(), "filename": m.text()}),
		}), m.any(2))
}

func (m maker) openAICall(int) any {
	return m.object(nil, keys{
		"id": m.text(), "type": pick(m, "function", "custom", "x"),
		"function": m.object(nil, keys{"name": m.text(), "arguments": m.text()}),
		"custom":   m.object(nil, keys{"name": m.text(), "input": m.text()}),
	})
}

func (m maker) openAI(int) any {
	message := m.object(keys{"role": pick(m, "system", "developer", "user", "assistant", "assistant")}, keys{
		"name": m.text(), "tool_calls": m.list(2, m.openAICall), "refusal": m.text(), "reasoning_content": m.text(),
		"function_call": m.object(nil, keys{"name": m.text(), "arguments": m.text()}),
	})
	if m.IntN(3) == 0 {
		message = m.object(keys{"role": pick(m, "tool", "function")}, keys{"tool_call_id": m.text(), "name": m.text()})
	}
	if m.IntN(8) > 0 {
		message.Set("content", pick[any](m, nil, m.text(), m.list(2, m.openAIPart)))
	}
	return message
}

func (m maker) anthropicSimple(int) any {
	source := m.object(keys{"type": pick(m, "base64", "url", "file", "text")}, keys{
		"media_type": pick(m, "image/png", "application/pdf", "text/plain"), "data": m.base64(), "url": m.url(),
		"file_id": m.text(),
	})
	return pick[any](m, m.object(keys{"type": "text"}, keys{"text": m.text(), "citations": nil}),
		m.object(keys{"type": pick(m, "image", "document")}, keys{"source": source, "title": m.text()}), m.any(2))
}

func (m maker) anthropicBlock(int) any {
	return pick[any](m, m.anthropicSimple(1), m.object(keys{"type": "thinking"}, keys{"thinking": m.text(), "signature": m.text()}),
		m.object(keys{"type": "redacted_thinking"}, keys{"data": m.text()}),
		m.object(keys{"type": "tool_use"}, keys{"id": m.text(), "name": m.text(), "input": m.any(2)}),
		m.object(keys{"type": "tool_result"}, keys{
			"tool_use_id": m.text(), "content": pick[any](m, m.text(), m.list(2, m.anthropicSimple)), "is_error": m.IntN(2) == 0,
		}))
}

func (m maker) anthropic(int) any {
	message := m.object(keys{"role": pick(m, "user", "user", "assistant", "system")}, keys{"model": m.text()})
	if m.IntN(8) > 0 {
		message.Set("content", pick[any](m, nil, m.text(), m.list(2, m.anthropicBlock), m.list(2, m.anthropicBlock)))
	}
	return message
}

func TestAnyConversationComesBackEqual(t *testing.T) {
	for seed := range uint64(4_000) {
		m := maker{rand.New(rand.NewPCG(seed, 7))}
		openAI := jsonvalue.Text(m.list(1, m.openAI))
		sameJSON(t, fmt.Sprint("OpenAI, seed ", seed), memoryd.ToOpenAI(stored(t, readOpenAI(t, openAI))), []byte(openAI))
		anthropic := jsonvalue.Text(m.list(1, m.anthropic))
		messages, err := memoryd.FromAnthropic(memoryd.AnthropicPrompt{Messages: json.RawMessage(anthropic)})
		ok(t, err)
		sameJSON(t, fmt.Sprint("Anthropic, seed ", seed), memoryd.ToAnthropic(stored(t, messages)).Messages, []byte(anthropic))
		window := memoryd.Window{Messages: messages}
		window.ToAnthropic()
		window.ToOpenAI()
		if t.Failed() {
			return
		}
	}
}
