package memoryd

import (
	"strings"
	"sync"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// MessageOption sets what a message has beside what it says.
type MessageOption func(*Message)

// Named gives the speaker's name, as some providers take it: at most 256 bytes.
func Named(name string) MessageOption {
	return func(m *Message) { m.Name = &name }
}

// MessageID gives a message an id of your own, unique in its session: when you import the same file again, say.
func MessageID(id string) MessageOption {
	return func(m *Message) { m.Id = id }
}

// MessageMetadata gives JSON text of your own data about the message, kept byte for byte: at most 64 KiB.
func MessageMetadata(json string) MessageOption {
	return func(m *Message) { m.Metadata = json }
}

// WithCalls adds calls behind what an assistant says.
func WithCalls(calls ...*ToolCall) MessageOption {
	return func(m *Message) {
		if len(calls) == 0 {
			return
		}
		if m.Content == nil {
			m.Content = &Content{}
		}
		for _, call := range calls {
			m.Content.Parts = append(m.Content.Parts, CallPart(call))
		}
	}
}

// ToolName gives the tool's name in a message made by [Tool] or [ToolParts], where the provider repeats it.
func ToolName(name string) MessageOption {
	return func(m *Message) {
		for _, result := range ToolResults(m) {
			result.Name = name
		}
	}
}

// ToolFailed says in a message made by [Tool] or [ToolParts] that the tool failed.
func ToolFailed() MessageOption {
	return func(m *Message) {
		for _, result := range ToolResults(m) {
			result.IsError = true
		}
	}
}

// System makes a message of role SYSTEM. SYSTEM and DEVELOPER messages that open a history are pinned in windows.
func System(text string, options ...MessageOption) *Message {
	return NewMessage(RoleSystem, []*Part{TextPart(text)}, options...)
}

// Developer makes a message of role DEVELOPER, as newer OpenAI models call the system role.
func Developer(text string, options ...MessageOption) *Message {
	return NewMessage(RoleDeveloper, []*Part{TextPart(text)}, options...)
}

// User makes a message of role USER.
func User(text string, options ...MessageOption) *Message {
	return NewMessage(RoleUser, []*Part{TextPart(text)}, options...)
}

// Assistant makes a message of role ASSISTANT. [WithCalls] adds calls behind the text; [CallTools] makes a message of
// calls alone. Where thinking, text and calls mix, [NewMessage] takes all of them in order.
func Assistant(text string, options ...MessageOption) *Message {
	return NewMessage(RoleAssistant, []*Part{TextPart(text)}, options...)
}

// CallTools makes a message of role ASSISTANT that only calls tools.
func CallTools(calls ...*ToolCall) *Message {
	return NewMessage(RoleAssistant, nil, WithCalls(calls...))
}

// Tool makes a message of role TOOL that answers the call with the id callID. The options [ToolName] and [ToolFailed] say
// more about the result.
func Tool(callID, text string, options ...MessageOption) *Message {
	return ToolParts(callID, []*Part{TextPart(text)}, options...)
}

// ToolParts makes a message of role TOOL from text, refusal, media and data parts.
func ToolParts(callID string, parts []*Part, options ...MessageOption) *Message {
	return NewMessage(RoleTool, []*Part{ResultPart(&ToolResult{CallId: callID, Parts: parts})}, options...)
}

// NewMessage makes a message of any parts, with an id of its own: appending the same message again, after a lost answer
// for instance, stores it once. To say the same thing twice, make two messages. No parts at all (nil) are a provider's
// null content, which differs from an empty list of parts.
func NewMessage(role Role, parts []*Part, options ...MessageOption) *Message {
	message := &Message{Id: NewID(), Role: role}
	if parts != nil {
		message.Content = &Content{Parts: parts}
	}
	for _, option := range options {
		option(message)
	}
	return message
}

// NewCall makes a tool call with an id of its own. The arguments are JSON text, as the model wrote them.
func NewCall(name, arguments string) *ToolCall {
	return &ToolCall{Id: "call_" + NewID(), Name: name, Arguments: arguments}
}

// TextPart makes a part of plain text.
func TextPart(text string) *Part {
	return &Part{Kind: &memorydv1.Part_Text{Text: text}}
}

// ReasoningPart makes a part of the model's thinking: its text, and the provider's opaque proof or encrypted form of it.
func ReasoningPart(text, signature string) *Part {
	return &Part{Kind: &memorydv1.Part_Reasoning{Reasoning: &Reasoning{Text: text, Signature: signature}}}
}

// RefusalPart makes a part of the model's refusal to answer.
func RefusalPart(text string) *Part {
	return &Part{Kind: &memorydv1.Part_Refusal{Refusal: text}}
}

// MediaPart makes a part of media in place. The media type is an IANA one, such as image/png; empty when not known.
func MediaPart(mediaType string, data []byte) *Part {
	media := &Media{Type: mediaType, Source: &memorydv1.Media_Data{Data: data}}
	return &Part{Kind: &memorydv1.Part_Media{Media: media}}
}

// MediaReferencePart makes a part of media by reference, which the server never follows: a URL or a provider's file id.
func MediaReferencePart(mediaType, uri string) *Part {
	media := &Media{Type: mediaType, Source: &memorydv1.Media_Uri{Uri: uri}}
	return &Part{Kind: &memorydv1.Part_Media{Media: media}}
}

// DataPart makes a part of structured data: JSON text, kept byte for byte.
func DataPart(json string) *Part {
	return &Part{Kind: &memorydv1.Part_Data{Data: json}}
}

// CallPart makes a part of a tool call.
func CallPart(call *ToolCall) *Part {
	return &Part{Kind: &memorydv1.Part_ToolCall{ToolCall: call}}
}

// ResultPart makes a part of a tool result.
func ResultPart(result *ToolResult) *Part {
	return &Part{Kind: &memorydv1.Part_ToolResult{ToolResult: result}}
}

// Text gives the texts of a message, one after another; those inside of tool results are left out.
func Text(message *Message) string {
	return texts(message.GetContent().GetParts())
}

// ResultText gives the texts of a tool result, one after another.
func ResultText(result *ToolResult) string {
	return texts(result.GetParts())
}

func texts(parts []*Part) string {
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.GetText())
	}
	return all.String()
}

// ToolCalls gives the calls of a message, in order.
func ToolCalls(message *Message) []*ToolCall {
	var calls []*ToolCall
	for _, part := range message.GetContent().GetParts() {
		if call := part.GetToolCall(); call != nil {
			calls = append(calls, call)
		}
	}
	return calls
}

// ToolResults gives the results of a message, in order.
func ToolResults(message *Message) []*ToolResult {
	var results []*ToolResult
	for _, part := range message.GetContent().GetParts() {
		if result := part.GetToolResult(); result != nil {
			results = append(results, result)
		}
	}
	return results
}

// identifying guards the ids of messages while they may be written: goroutines may append one message at once.
var identifying sync.Mutex

// identify gives messages without an id one, in place, so that every try sends the same. Whoever sends a message without
// having made it calls this before, and so reads no id that another goroutine writes.
func identify(messages []*Message) {
	identifying.Lock()
	defer identifying.Unlock()
	for _, message := range messages {
		if message != nil && message.Id == "" {
			message.Id = NewID()
		}
	}
}
