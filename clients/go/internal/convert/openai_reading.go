package convert

import (
	"fmt"
	"strconv"

	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

var rolesOfOpenAI = map[string]memorydv1.Role{
	"system":    memorydv1.Role_ROLE_SYSTEM,
	"developer": memorydv1.Role_ROLE_DEVELOPER,
	"user":      memorydv1.Role_ROLE_USER,
	"assistant": memorydv1.Role_ROLE_ASSISTANT,
	"tool":      memorydv1.Role_ROLE_TOOL,
	"function":  memorydv1.Role_ROLE_TOOL,
}

// FromOpenAI is our message of each OpenAI one, without ids. The error names the message that is none.
func FromOpenAI(sources []any) ([]*memorydv1.Message, error) {
	messages := make([]*memorydv1.Message, len(sources))
	for i, source := range sources {
		message, err := readOpenAI(source, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return nil, err
		}
		messages[i] = message
	}
	return messages, nil
}

// check is the source as an object with a role and content that can be read. The error says what is wrong.
func check(value any, where, roles string, known func(role string) bool) (*jsonvalue.Object, error) {
	source := asObject(value)
	if source == nil {
		return nil, fmt.Errorf(`%s is not an object; a message is like {"role":"user","content":"Hello!"}`, where)
	}
	role, isText := text(source, "role")
	if !isText || !known(role) {
		return nil, fmt.Errorf("%s has the role %s; it can be one of %s", where, jsonvalue.Text(source.Value("role")), roles)
	}
	switch source.Value("content").(type) {
	case nil, string, []any:
		return source, nil
	}
	return nil, fmt.Errorf("%s has content that is neither text nor an array nor null", where)
}

func readOpenAI(value any, where string) (*memorydv1.Message, error) {
	source, err := check(value, where, "system, developer, user, assistant, tool, function", func(role string) bool {
		return rolesOfOpenAI[role] != 0
	})
	if err != nil {
		return nil, err
	}
	roleName, _ := text(source, "role")
	message := &memorydv1.Message{Role: rolesOfOpenAI[roleName]}
	form := jsonvalue.NewObject()
	if message.Role == memorydv1.Role_ROLE_TOOL {
		message.Content = &memorydv1.Content{Parts: []*memorydv1.Part{resultOfOpenAI(source, roleName, form)}}
	} else {
		if name, isText := text(source, "name"); isText {
			message.Name = new(kept(name))
		}
		if parts, present := spokenOfOpenAI(source, message.Role, form); present {
			message.Content = &memorydv1.Content{Parts: parts}
		}
	}
	// What the parts and the form do not say of the source is in its difference from what would be written.
	if patch := difference(source, writtenOpenAI(message, form)[0]); patch != nil {
		form.Set("patch", patch)
	}
	message.Extra = writeForm(form, openAI)
	return message, nil
}

// spokenOfOpenAI is the parts of a message that is not a tool's, and whether there is content: reasoning, content, refusal,
// calls.
func spokenOfOpenAI(source *jsonvalue.Object, role memorydv1.Role, form *jsonvalue.Object) ([]*memorydv1.Part, bool) {
	var reasoning, refusal, calls []*memorydv1.Part
	byAssistant := role == memorydv1.Role_ROLE_ASSISTANT
	if byAssistant {
		if thought, isText := text(source, "reasoning_content"); isText {
			form.Set("reasoning", true)
			reasoning = append(reasoning, reasoningPart(kept(thought), ""))
		}
		if refused, isText := text(source, "refusal"); isText {
			refusal = append(refusal, refusalPart(kept(refused)))
		}
		calls = callsOfOpenAI(source, form)
	}
	content := source.Value("content")
	said := saidOfOpenAI(content, form, len(reasoning), role == memorydv1.Role_ROLE_USER)
	if byAssistant && len(refusal) == 0 && len(said) > 0 && isRefusal(said[len(said)-1]) {
		form.Set("refusal", "part")
	}
	parts := append(append(append(reasoning, said...), refusal...), calls...)
	_, isList := content.([]any)
	present := len(parts) > 0 || isList
	noteContentForm(source, spokenContentForm(said, present && len(parts) == len(said)), form)
	return parts, present
}

func callsOfOpenAI(source *jsonvalue.Object, form *jsonvalue.Object) []*memorydv1.Part {
	var calls []*memorydv1.Part
	entries, _ := source.Value("tool_calls").([]any)
	forms := jsonvalue.NewObject()
	for i, entry := range entries {
		call, callForm := callOfOpenAI(entry)
		calls = append(calls, call)
		if callForm != "" {
			forms.Set(strconv.Itoa(i), callForm)
		}
	}
	if forms.Len() > 0 {
		form.Set("calls", forms)
	}
	legacy := asObject(source.Value("function_call"))
	name, hasName := text(legacy, "name")
	arguments, hasArguments := text(legacy, "arguments")
	if hasName && hasArguments {
		form.Set("function_call", true)
		calls = append(calls, callPart("", kept(name), kept(arguments)))
	}
	return calls
}

// callOfOpenAI is a call and its form: none for a function's, `object` where its arguments are not text, `custom`, or
// `other`.
func callOfOpenAI(value any) (*memorydv1.Part, string) {
	entry := asObject(value)
	id := kept(entry.Value("id"))
	custom, function := asObject(entry.Value("custom")), asObject(entry.Value("function"))
	if name, hasName := text(custom, "name"); hasName && is(entry, "type", "custom") {
		if input, hasInput := text(custom, "input"); hasInput {
			return callPart(id, kept(name), kept(input)), "custom"
		}
	}
	if name, hasName := text(function, "name"); hasName {
		if arguments := asObject(function.Value("arguments")); arguments != nil {
			return callPart(id, kept(name), jsonvalue.Text(arguments)), "object"
		}
		return callPart(id, kept(name), kept(function.Value("arguments"))), ""
	}
	if kind, hasKind := text(entry, "type"); hasKind {
		return callPart(id, kept(kind), jsonvalue.Text(entry)), "other"
	}
	return callPart(id, "unknown", jsonvalue.Text(value)), "other"
}

// resultOfOpenAI is the result in a message of role tool or function.
func resultOfOpenAI(source *jsonvalue.Object, role string, form *jsonvalue.Object) *memorydv1.Part {
	if role == "function" {
		form.Set("function", true)
	}
	parts := saidOfOpenAI(source.Value("content"), form, 0, false)
	noteContentForm(source, resultContentFormOpenAI(parts), form)
	return resultPart(&memorydv1.ToolResult{
		CallId: kept(source.Value("tool_call_id")), Name: kept(source.Value("name")), Parts: parts,
	})
}

func noteContentForm(source *jsonvalue.Object, byItself string, form *jsonvalue.Object) {
	if actual := actualContentForm(source); actual != byItself {
		form.Set("content", actual)
	}
}

// saidOfOpenAI is the parts of a message's content. The form notes those, counted from first, that only OpenAI says so.
func saidOfOpenAI(content any, form *jsonvalue.Object, first int, byUser bool) []*memorydv1.Part {
	if said, isText := content.(string); isText {
		return []*memorydv1.Part{textPart(kept(said))}
	}
	blocks, _ := content.([]any)
	parts := make([]*memorydv1.Part, len(blocks))
	tags := jsonvalue.NewObject()
	for i, block := range blocks {
		parts[i] = partOfOpenAI(block)
		if isData(parts[i]) || parts[i].GetMedia() != nil && !byUser {
			tags.Set(strconv.Itoa(first+i), native)
		}
	}
	if tags.Len() > 0 {
		form.Set("parts", tags)
	}
	return parts
}

func partOfOpenAI(value any) *memorydv1.Part {
	block := asObject(value)
	if said, isText := text(block, "text"); isText && is(block, "type", "text") {
		return textPart(kept(said))
	}
	if said, isText := text(block, "refusal"); isText && is(block, "type", "refusal") {
		return refusalPart(kept(said))
	}
	if media := mediaOfOpenAI(block); media != nil {
		return mediaPart(media)
	}
	// JSON is kept for what our Media would not give back as it was.
	return dataPart(jsonvalue.Text(value))
}

func mediaOfOpenAI(block *jsonvalue.Object) *memorydv1.Media {
	var media *memorydv1.Media
	var core *jsonvalue.Object
	kind, _ := text(block, "type")
	inner := asObject(block.Value(kind))
	switch kind {
	case "image_url":
		url, isText := text(inner, "url")
		if !isText {
			return nil
		}
		if media = dataURLMedia(url); media == nil {
			media = reference(anyImage, kept(url))
		}
		core = jsonvalue.NewObject("url", url)
	case "input_audio":
		encoded, hasData := text(inner, "data")
		format, hasFormat := text(inner, "format")
		data, isBase64 := base64Bytes(encoded)
		if !hasData || !hasFormat || !isBase64 {
			return nil
		}
		mediaType, known := audioTypes[format]
		if !known {
			mediaType = kept("audio/" + format)
		}
		media, core = inPlace(mediaType, data), jsonvalue.NewObject("data", encoded, "format", format)
	case "file":
		url, hasData := text(inner, "file_data")
		id, hasID := text(inner, "file_id")
		switch {
		case hasData:
			media, core = dataURLMedia(url), jsonvalue.NewObject("file_data", url)
		case hasID:
			media, core = reference("", kept(id)), jsonvalue.NewObject("file_id", id)
		}
	}
	return exactly(media, mediaOpenAI, jsonvalue.NewObject("type", kind, kind, core))
}

// exactly is the media, if it is written as it was read.
func exactly(
	media *memorydv1.Media, write func(*memorydv1.Media) *jsonvalue.Object, core *jsonvalue.Object,
) *memorydv1.Media {
	if media == nil {
		return nil
	}
	if uri, is := uriOf(media); is && uri == "" {
		return nil
	}
	if block := write(media); block == nil || !jsonvalue.Equal(block, core) {
		return nil
	}
	return media
}
