package convert

import (
	"slices"

	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	anthropic = "anthropic"
	// redacted marks reasoning that Anthropic gave in encrypted form only.
	redacted = "redacted"
	// asIs marks a call whose input is not an object.
	asIs = "as_is"
	// apart marks a message with results right behind another one, which Anthropic would want as one message.
	apart = "apart"
	// mixed marks a message with results behind something else, which Anthropic would want first.
	mixed  = "mixed"
	inline = "inline"
)

var anthropicRoles = map[memorydv1.Role]string{
	memorydv1.Role_ROLE_SYSTEM:    "system",
	memorydv1.Role_ROLE_DEVELOPER: "system",
	memorydv1.Role_ROLE_USER:      "user",
	memorydv1.Role_ROLE_ASSISTANT: "assistant",
	memorydv1.Role_ROLE_TOOL:      "user",
}

// ToAnthropic is the system prompt, whether there is one, and the messages of ours.
//
// Anthropic wants the results of a turn's calls in one message, before anything else that it says. With asBorn, a
// conversation that came from Anthropic otherwise stays as it came.
func ToAnthropic(messages []*memorydv1.Message, asBorn bool) (system any, hasSystem bool, turns []any) {
	var opening []*jsonvalue.Object
	var sources []*jsonvalue.Object
	for _, message := range messages {
		form := aligned(readForm(message.GetExtra(), anthropic), message.GetContent().GetParts())
		before := writtenAnthropic(message, form)
		if before == nil {
			continue
		}
		source := asObject(patched(before, noted(form, "patch")))
		if source == nil {
			source = before
		}
		isSystem := message.GetRole() == memorydv1.Role_ROLE_SYSTEM || message.GetRole() == memorydv1.Role_ROLE_DEVELOPER
		switch {
		case !isSystem || isTrue(form.Value(inline)):
			if !(asBorn && isTrue(form.Value(mixed))) {
				source = resultsFirst(source)
			}
			last := len(sources) - 1
			if last >= 0 && answers(sources[last]) && answers(source) && !(asBorn && isTrue(form.Value(apart))) {
				sources[last] = joinedTurns(sources[last], source)
			} else {
				sources = append(sources, source)
			}
		case len(sources) == 0:
			opening = append(opening, source)
		default:
			sources = append(sources, with(source, "role", "user"))
		}
	}
	turns = []any{}
	for _, source := range sources {
		turns = append(turns, source)
	}
	switch len(opening) {
	case 0:
		return nil, false, turns
	case 1:
		return opening[0].Value("content"), true, turns
	}
	blocks := []any{}
	for _, source := range opening {
		blocks = append(blocks, asBlocks(source.Value("content"))...)
	}
	return blocks, true, turns
}

// answers says whether a message of Anthropic's holds results of calls.
func answers(source *jsonvalue.Object) bool {
	content, isList := source.Value("content").([]any)
	return isList && is(source, "role", "user") && slices.ContainsFunc(content, isResultBlock)
}

// isMixed says whether a message of Anthropic's holds results behind something else.
func isMixed(source *jsonvalue.Object) bool {
	return answers(source) && !jsonvalue.Equal(resultsFirst(source).Value("content"), source.Value("content"))
}

func joinedTurns(first, second *jsonvalue.Object) *jsonvalue.Object {
	both := first
	for _, key := range second.Keys() {
		both = with(both, key, second.Value(key))
	}
	content := slices.Concat(first.Value("content").([]any), second.Value("content").([]any))
	return resultsFirst(with(both, "content", content))
}

func resultsFirst(source *jsonvalue.Object) *jsonvalue.Object {
	if !answers(source) {
		return source
	}
	content := slices.Clone(source.Value("content").([]any))
	slices.SortStableFunc(content, func(a, b any) int {
		switch first, second := isResultBlock(a), isResultBlock(b); {
		case first == second:
			return 0
		case first:
			return -1
		}
		return 1
	})
	return with(source, "content", content)
}

func isResultBlock(block any) bool { return is(asObject(block), "type", "tool_result") }

func asBlocks(content any) []any {
	switch content := content.(type) {
	case string:
		return []any{textBlock(content)}
	case []any:
		return content
	}
	return nil
}

// contentForm is how a message's content is written by itself.
func contentForm(parts []*memorydv1.Part) string {
	if len(parts) == 1 && isText(parts[0]) {
		return "text"
	}
	return "list"
}

// resultContentForm is how a result's content is written by itself.
func resultContentForm(parts []*memorydv1.Part) string {
	if len(parts) == 0 {
		return "missing"
	}
	return contentForm(parts)
}

// writtenAnthropic is what is written before the form's patch; nil for a message that says nothing that Anthropic takes.
func writtenAnthropic(message *memorydv1.Message, form *jsonvalue.Object) *jsonvalue.Object {
	parts := message.GetContent().GetParts()
	blocks := blocksAnthropic(parts, form)
	if _, found := form.Get("content"); !found && len(blocks) == 0 {
		return nil
	}
	role, known := anthropicRoles[message.GetRole()]
	if !known {
		role = "user"
	}
	source := jsonvalue.NewObject("role", role)
	setContentAnthropic(source, blocks, form.Value("content"), contentForm(parts))
	return source
}

func blocksAnthropic(parts []*memorydv1.Part, form *jsonvalue.Object) []any {
	blocks := []any{}
	for index, part := range parts {
		if tag := tagOf(form, index); isTrue(tag) || !isRefusedByAnthropic(part) {
			blocks = append(blocks, blockAnthropic(part, tag))
		}
	}
	return blocks
}

// isRefusedByAnthropic says whether Anthropic refuses the block of a part: empty text, and thinking without its signature.
func isRefusedByAnthropic(part *memorydv1.Part) bool {
	switch kind := part.GetKind().(type) {
	case *memorydv1.Part_Text:
		return kind.Text == ""
	case *memorydv1.Part_Refusal:
		return kind.Refusal == ""
	case *memorydv1.Part_Reasoning:
		return kind.Reasoning.GetSignature() == ""
	}
	return false
}

func setContentAnthropic(source *jsonvalue.Object, blocks []any, actual any, byItself string) {
	if actual == nil || len(blocks) > 0 && (actual == "missing" || actual == "null") {
		actual = byItself
	}
	switch actual {
	case "missing":
	case "null":
		source.Set("content", nil)
	case "text":
		source.Set("content", joined(blocks))
	default:
		source.Set("content", blocks)
	}
}

func blockAnthropic(part *memorydv1.Part, tag any) any {
	switch kind := part.GetKind().(type) {
	case *memorydv1.Part_Refusal:
		return textBlock(kind.Refusal)
	case *memorydv1.Part_Reasoning:
		if tag == redacted {
			return jsonvalue.NewObject("type", "redacted_thinking", "data", kind.Reasoning.GetSignature())
		}
		return jsonvalue.NewObject("type", "thinking", "thinking", kind.Reasoning.GetText(),
			"signature", kind.Reasoning.GetSignature())
	case *memorydv1.Part_Media:
		if block := mediaAnthropic(kind.Media); block != nil {
			return block
		}
		return textBlock(mention(kind.Media))
	case *memorydv1.Part_Data:
		if value, err := jsonvalue.Parse(kind.Data); tag == native && err == nil {
			return value
		}
		return textBlock(kind.Data)
	case *memorydv1.Part_ToolCall:
		call := kind.ToolCall
		return jsonvalue.NewObject("type", "tool_use", "id", call.GetId(), "name", call.GetName(),
			"input", inputAnthropic(call.GetArguments(), tag))
	case *memorydv1.Part_ToolResult:
		return resultAnthropic(kind.ToolResult, asObject(tag))
	}
	return textBlock(part.GetText())
}

func inputAnthropic(arguments string, tag any) any {
	if arguments == "" {
		return jsonvalue.NewObject()
	}
	value, err := jsonvalue.Parse(arguments)
	if err == nil && (asObject(value) != nil || tag == asIs) {
		return value
	}
	return jsonvalue.NewObject("arguments", arguments)
}

func resultAnthropic(result *memorydv1.ToolResult, form *jsonvalue.Object) *jsonvalue.Object {
	source := jsonvalue.NewObject("type", "tool_result", "tool_use_id", result.GetCallId())
	byItself := resultContentForm(result.GetParts())
	if _, found := form.Get("content"); !found && byItself == "text" {
		source.Set("content", result.GetParts()[0].GetText())
	} else {
		setContentAnthropic(source, blocksAnthropic(result.GetParts(), form), form.Value("content"), byItself)
	}
	if result.GetIsError() {
		source.Set("is_error", true)
	}
	return source
}

// mediaAnthropic is the block of media; nil where Anthropic has none, as for sound.
func mediaAnthropic(media *memorydv1.Media) *jsonvalue.Object {
	kind := "document"
	if isImage(media) {
		kind = "image"
	}
	if uri, is := uriOf(media); is {
		source := jsonvalue.NewObject("type", "file", "file_id", uri)
		if isURL(uri) {
			source = jsonvalue.NewObject("type", "url", "url", uri)
		}
		return jsonvalue.NewObject("type", kind, "source", source)
	}
	if !isImage(media) && media.GetType() != "application/pdf" {
		return nil
	}
	return jsonvalue.NewObject("type", kind, "source",
		jsonvalue.NewObject("type", "base64", "media_type", media.GetType(), "data", base64Text(media.GetData())))
}
