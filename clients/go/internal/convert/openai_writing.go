package convert

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const openAI = "openai"

var (
	audioTypes   = map[string]string{"mp3": "audio/mpeg", "wav": "audio/wav"}
	audioFormats = map[string]string{"audio/mpeg": "mp3", "audio/wav": "wav"}
	openAIRoles  = map[memorydv1.Role]string{
		memorydv1.Role_ROLE_SYSTEM:    "system",
		memorydv1.Role_ROLE_DEVELOPER: "developer",
		memorydv1.Role_ROLE_USER:      "user",
		memorydv1.Role_ROLE_ASSISTANT: "assistant",
		memorydv1.Role_ROLE_TOOL:      "tool",
	}
)

// ToOpenAI is the OpenAI messages of ours. What a message says beside its results waits for the results that follow: they
// stand directly behind their calls.
func ToOpenAI(messages []*memorydv1.Message) []any {
	sources, waiting := []any{}, []any{}
	for _, message := range messages {
		said := writeOpenAI(message, readForm(message.GetExtra(), openAI))
		answers := len(results(message))
		if answers == 0 && message.GetRole() == memorydv1.Role_ROLE_TOOL {
			answers = 1
		}
		switch {
		case answers > 0:
			sources = append(sources, said[:answers]...)
			waiting = append(waiting, said[answers:]...)
		case len(said) > 0:
			sources = append(append(sources, waiting...), said...)
			waiting = nil
		}
	}
	return append(sources, waiting...)
}

// writeOpenAI is the OpenAI messages of ours: one as a rule, several when it answers several calls.
func writeOpenAI(message *memorydv1.Message, form *jsonvalue.Object) []any {
	sources := writtenOpenAI(message, form)
	if patch, found := form.Get("patch"); found && len(sources) == 1 {
		return []any{patched(sources[0], patch)}
	}
	return sources
}

// writtenOpenAI is what is written before the form's patch.
func writtenOpenAI(message *memorydv1.Message, form *jsonvalue.Object) []any {
	parts := message.GetContent().GetParts()
	answers := results(message)
	if len(answers) == 0 && message.GetRole() != memorydv1.Role_ROLE_TOOL {
		isThinking := len(parts) > 0 && !slices.ContainsFunc(parts, func(part *memorydv1.Part) bool {
			return part.GetReasoning() == nil
		})
		if isThinking && !isTrue(form.Value("reasoning")) {
			return nil
		}
		return []any{spokenOpenAI(message.GetRole(), message.Name, message.GetContent() != nil, parts, form)}
	}
	var sources []any
	for _, answer := range answers {
		sources = append(sources, resultOpenAI(answer, form))
	}
	rest := slices.DeleteFunc(slices.Clone(parts), isResult)
	if len(answers) == 0 {
		// A tool's message without a result: nothing to name a call by, but what it says is kept in its place.
		said := slices.DeleteFunc(rest, func(part *memorydv1.Part) bool {
			return part.GetReasoning() != nil || part.GetToolCall() != nil
		})
		return append(sources, resultOpenAI(&memorydv1.ToolResult{Parts: said}, form))
	}
	if len(rest) > 0 {
		sources = append(sources, spokenOpenAI(memorydv1.Role_ROLE_USER, message.Name, true, rest, jsonvalue.NewObject()))
	}
	return sources
}

// spokenContentForm is how content is written by itself; alone tells that the message is there and has nothing else.
func spokenContentForm(said []*memorydv1.Part, alone bool) string {
	switch {
	case len(said) == 0 && alone:
		return "list"
	case len(said) == 0:
		return "null"
	case len(said) == 1 && isText(said[0]):
		return "text"
	}
	return "list"
}

// resultContentFormOpenAI is how a tool's content is written by itself.
func resultContentFormOpenAI(parts []*memorydv1.Part) string {
	if len(parts) == 0 {
		return "text"
	}
	return spokenContentForm(parts, true)
}

func spokenOpenAI(
	role memorydv1.Role, name *string, present bool, parts []*memorydv1.Part, form *jsonvalue.Object,
) *jsonvalue.Object {
	roleName, known := openAIRoles[role]
	if !known {
		roleName = "user"
	}
	source := jsonvalue.NewObject("role", roleName)
	byUser := role == memorydv1.Role_ROLE_USER
	var said []*memorydv1.Part
	var blocks []any
	reasoning, calls := "", []*memorydv1.ToolCall{}
	for index, part := range parts {
		switch {
		case part.GetReasoning() != nil:
			reasoning += part.GetReasoning().GetText()
		case part.GetToolCall() != nil:
			calls = append(calls, part.GetToolCall())
		default:
			said = append(said, part)
			blocks = append(blocks, blockOpenAI(part, tagOf(form, index), byUser))
		}
	}
	var refusal *memorydv1.Part
	if last := len(said) - 1; role == memorydv1.Role_ROLE_ASSISTANT && last >= 0 && isRefusal(said[last]) &&
		form.Value("refusal") != "part" {
		refusal, said, blocks = said[last], said[:last], blocks[:last]
	}
	setContentOpenAI(source, blocks, spokenContentForm(said, present && len(said) == len(parts)), form)
	if name != nil {
		source.Set("name", *name)
	}
	if isTrue(form.Value("reasoning")) {
		source.Set("reasoning_content", reasoning)
	}
	if refusal != nil {
		source.Set("refusal", refusal.GetRefusal())
	}
	if len(calls) > 0 && isTrue(form.Value("function_call")) {
		legacy := calls[len(calls)-1]
		calls = calls[:len(calls)-1]
		source.Set("function_call", jsonvalue.NewObject("name", legacy.GetName(), "arguments", legacy.GetArguments()))
	}
	if len(calls) > 0 {
		entries := make([]any, len(calls))
		for i, call := range calls {
			entries[i] = callOpenAI(call, noted(form, "calls").Value(strconv.Itoa(i)))
		}
		source.Set("tool_calls", entries)
	}
	return source
}

func resultOpenAI(result *memorydv1.ToolResult, form *jsonvalue.Object) *jsonvalue.Object {
	isFunction := isTrue(form.Value("function"))
	source := jsonvalue.NewObject("role", "tool", "tool_call_id", result.GetCallId())
	if isFunction {
		source = jsonvalue.NewObject("role", "function")
	}
	if result.GetName() != "" || isFunction {
		source.Set("name", result.GetName())
	}
	var blocks []any
	for index, part := range result.GetParts() {
		blocks = append(blocks, blockOpenAI(part, tagOf(form, index), false))
	}
	setContentOpenAI(source, blocks, resultContentFormOpenAI(result.GetParts()), form)
	return source
}

func setContentOpenAI(source *jsonvalue.Object, blocks []any, byItself string, form *jsonvalue.Object) {
	actual, found := form.Get("content")
	if !found || len(blocks) > 0 && (actual == "missing" || actual == "null") {
		actual = byItself
	}
	switch actual {
	case "missing":
	case "null":
		source.Set("content", nil)
	case "text":
		source.Set("content", joined(blocks))
	default:
		source.Set("content", append([]any{}, blocks...))
	}
}

func blockOpenAI(part *memorydv1.Part, tag any, byUser bool) any {
	switch kind := part.GetKind().(type) {
	case *memorydv1.Part_Refusal:
		return jsonvalue.NewObject("type", "refusal", "refusal", kind.Refusal)
	case *memorydv1.Part_Media:
		if byUser || tag == native {
			if block := mediaOpenAI(kind.Media); block != nil {
				return block
			}
		}
		return textBlock(mention(kind.Media))
	case *memorydv1.Part_Data:
		if value, err := jsonvalue.Parse(kind.Data); tag == native && err == nil {
			return value
		}
		return textBlock(kind.Data)
	}
	return textBlock(part.GetText())
}

// mediaOpenAI is the content part of media; nil where chat completions have none, as for a document by URL.
func mediaOpenAI(media *memorydv1.Media) *jsonvalue.Object {
	imageURL := func(url string) *jsonvalue.Object {
		return jsonvalue.NewObject("type", "image_url", "image_url", jsonvalue.NewObject("url", url))
	}
	if uri, is := uriOf(media); is {
		switch {
		case !isURL(uri):
			return jsonvalue.NewObject("type", "file", "file", jsonvalue.NewObject("file_id", uri))
		case isImage(media):
			return imageURL(uri)
		}
		return nil
	}
	if isImage(media) {
		return imageURL(dataURL(media.GetType(), media.GetData()))
	}
	if strings.HasPrefix(media.GetType(), "audio/") {
		audio, known := audioFormats[media.GetType()]
		if !known {
			audio = strings.TrimPrefix(media.GetType(), "audio/")
		}
		return jsonvalue.NewObject("type", "input_audio", "input_audio",
			jsonvalue.NewObject("data", base64Text(media.GetData()), "format", audio))
	}
	return jsonvalue.NewObject("type", "file", "file",
		jsonvalue.NewObject("file_data", dataURL(media.GetType(), media.GetData())))
}

func callOpenAI(call *memorydv1.ToolCall, form any) any {
	if form == "custom" {
		return jsonvalue.NewObject("id", call.GetId(), "type", "custom",
			"custom", jsonvalue.NewObject("name", call.GetName(), "input", call.GetArguments()))
	}
	var arguments any = call.GetArguments()
	if form == "object" || form == "other" {
		if value, err := jsonvalue.Parse(call.GetArguments()); err == nil {
			if form == "other" {
				return value
			}
			arguments = value
		}
	}
	return jsonvalue.NewObject("id", call.GetId(), "type", "function",
		"function", jsonvalue.NewObject("name", call.GetName(), "arguments", arguments))
}
