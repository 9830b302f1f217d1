package memoryd

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/memoryd/memoryd/clients/go/internal/convert"
	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
)

// FromOpenAI makes one message of each chat-completions message in a JSON array, such as json.Marshal makes of a request's
// messages. Each gets a new id; the field Id takes another. The error names the message that is none.
//
// What a message has no field for is noted in its extra, so that the way there and back loses nothing. A message is only
// read together with the notes of the format that is written, so a conversation may come from one provider and go on with
// another.
func FromOpenAI(messages []byte) ([]*Message, error) {
	sources, err := readArray(messages)
	if err != nil {
		return nil, err
	}
	return identified(convert.FromOpenAI(sources))
}

// ToOpenAI makes the JSON array of chat-completions messages.
//
// What FromOpenAI read comes back equal, also after it was stored. What comes from elsewhere is said as well as chat
// completions can:
//
//   - A message that answers several calls becomes several tool messages. What else it says becomes a user message behind
//     them and behind the results that follow, since nothing may stand between a call and its results.
//   - Reasoning is left out (with the message, when that is all of it), and so is whether a result is an error.
//   - Data becomes text; media become text such as [image/png, 2048 bytes] outside of user messages.
func ToOpenAI(messages []*Message) json.RawMessage {
	return json.RawMessage(jsonvalue.Text(convert.ToOpenAI(messages)))
}

// ToOpenAI makes the JSON array of chat-completions messages of a window, as [ToOpenAI] does.
func (w *Window) ToOpenAI() json.RawMessage { return ToOpenAI(w.Messages) }

// AnthropicPrompt is a conversation as Anthropic's Messages take it: as JSON, it is a part of the request.
type AnthropicPrompt struct {
	// System is the system prompt as JSON, text or an array of blocks; nil when there is none.
	System json.RawMessage `json:"system,omitempty"`
	// Messages are the JSON array of the messages.
	Messages json.RawMessage `json:"messages"`
}

// FromAnthropic makes one message of each Anthropic message in a JSON array, and a SYSTEM one of the JSON of a system
// prompt, which is nil where there is none. Each gets a new id. The error names the message that is not Anthropic's.
func FromAnthropic(prompt AnthropicPrompt) ([]*Message, error) {
	sources, err := readArray(prompt.Messages)
	if err != nil {
		return nil, err
	}
	messages, err := convert.FromAnthropic(sources)
	if err != nil || len(prompt.System) == 0 {
		return identified(messages, err)
	}
	system, err := jsonvalue.Parse(string(prompt.System))
	if err != nil {
		return nil, fmt.Errorf("memoryd: the system prompt: %w", err)
	}
	if system == nil {
		return identified(messages, nil)
	}
	opening, err := convert.SystemFromAnthropic(system)
	return identified(append([]*Message{opening}, messages...), err)
}

// ToAnthropic makes what Anthropic's Messages take. For a model, use [Window.ToAnthropic]: only that is always made what
// Anthropic accepts.
//
// What [FromAnthropic] read comes back equal, also after it was stored. What comes from elsewhere is said as well as
// Anthropic can:
//
//   - SYSTEM and DEVELOPER messages that open the conversation are the system prompt; later ones speak as the user.
//   - The results of the calls of one turn are joined in one user message, results first, then what else was said beside
//     them. What FromAnthropic read otherwise stays as it was; in a window it does not, since Anthropic refuses it.
//   - Arguments that are not a JSON object become {"arguments": "…"}.
//   - Names, thinking without a signature and empty texts are left out, and so is a message that says nothing else.
//   - Data becomes text, and so do media that Anthropic has no block for, as [audio/wav, 2048 bytes].
func ToAnthropic(messages []*Message) AnthropicPrompt { return toAnthropic(messages, true) }

// ToAnthropic makes what Anthropic's Messages take of a window, always in the order that Anthropic accepts.
func (w *Window) ToAnthropic() AnthropicPrompt { return toAnthropic(w.Messages, false) }

func toAnthropic(messages []*Message, asBorn bool) AnthropicPrompt {
	system, hasSystem, turns := convert.ToAnthropic(messages, asBorn)
	prompt := AnthropicPrompt{Messages: json.RawMessage(jsonvalue.Text(turns))}
	if hasSystem {
		prompt.System = json.RawMessage(jsonvalue.Text(system))
	}
	return prompt
}

func readArray(text []byte) ([]any, error) {
	value, err := jsonvalue.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("memoryd: the messages: %w", err)
	}
	items, isArray := value.([]any)
	if !isArray {
		return nil, errors.New("memoryd: the messages are no JSON array")
	}
	return items, nil
}

func identified(messages []*Message, err error) ([]*Message, error) {
	if err != nil {
		return nil, fmt.Errorf("memoryd: %w", err)
	}
	identify(messages)
	return messages, nil
}
