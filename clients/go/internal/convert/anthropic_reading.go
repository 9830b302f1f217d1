package convert

import (
	"fmt"
	"strconv"

	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

var rolesOfAnthropic = map[string]memorydv1.Role{
	"user":      memorydv1.Role_ROLE_USER,
	"assistant": memorydv1.Role_ROLE_ASSISTANT,
	"system":    memorydv1.Role_ROLE_SYSTEM,
}

// SystemFromAnthropic is the SYSTEM message of a system prompt, without an id.
func SystemFromAnthropic(system any) (*memorydv1.Message, error) {
	return readAnthropic(jsonvalue.NewObject("role", "system", "content", system), "system", jsonvalue.NewObject())
}

// FromAnthropic is our messages of Anthropic's, without ids. The error names the message that is none.
func FromAnthropic(sources []any) ([]*memorydv1.Message, error) {
	messages := make([]*memorydv1.Message, len(sources))
	behindResults := false
	for i, value := range sources {
		source := asObject(value)
		withResults := answers(source)
		form := jsonvalue.NewObject()
		for _, mark := range []struct {
			name  string
			holds bool
		}{
			{inline, is(source, "role", "system")},
			{apart, behindResults && withResults},
			{mixed, isMixed(source)},
		} {
			if mark.holds {
				form.Set(mark.name, true)
			}
		}
		message, err := readAnthropic(value, fmt.Sprintf("messages[%d]", i), form)
		if err != nil {
			return nil, err
		}
		messages[i] = message
		behindResults = withResults
	}
	return messages, nil
}

func readAnthropic(value any, where string, form *jsonvalue.Object) (*memorydv1.Message, error) {
	source, err := check(value, where, "user, assistant, system", func(role string) bool {
		return rolesOfAnthropic[role] != 0
	})
	if err != nil {
		return nil, err
	}
	roleName, _ := text(source, "role")
	message := &memorydv1.Message{Role: rolesOfAnthropic[roleName]}
	content := source.Value("content")
	parts, places := []*memorydv1.Part{}, []any{}
	tags := jsonvalue.NewObject()
	for i, block := range asBlocks(content) {
		part, tag := partOfAnthropic(block, message.Role)
		parts = append(parts, part)
		if isTrue(tag) {
			tags.Set(strconv.Itoa(i), tag)
		}
		if isResult(part) {
			places = append(places, jsonvalue.Number(strconv.Itoa(i)))
		}
	}
	if tags.Len() > 0 {
		form.Set("parts", tags)
	}
	if actual := actualContentForm(source); actual != contentForm(parts) || len(parts) == 0 {
		form.Set("content", actual)
	}
	if content != nil {
		message.Content = &memorydv1.Content{Parts: parts}
	}
	// What the parts and the form do not say of the source is in its difference from what would be written.
	var before any
	if written := writtenAnthropic(message, form); written != nil {
		before = written
	}
	if patch := difference(source, before); patch != nil {
		form.Set("patch", patch)
	}
	if len(places) > 0 && form.Len() > 0 {
		form.Set("results", places)
	}
	message.Extra = writeForm(form, anthropic)
	return message, nil
}

// partOfAnthropic is a part, and what is noted about it.
func partOfAnthropic(value any, role memorydv1.Role) (*memorydv1.Part, any) {
	block := asObject(value)
	kind, _ := text(block, "type")
	switch kind {
	case "thinking":
		if thought, isText := text(block, "thinking"); isText {
			signature := kept(block.Value("signature"))
			if signature == "" {
				return reasoningPart(kept(thought), ""), native
			}
			return reasoningPart(kept(thought), signature), nil
		}
	case "redacted_thinking":
		if data, isText := text(block, "data"); isText {
			return reasoningPart("", kept(data)), redacted
		}
	case "tool_use":
		if name, isText := text(block, "name"); isText && role == memorydv1.Role_ROLE_ASSISTANT {
			input, found := block.Get("input")
			if !found {
				return callPart(kept(block.Value("id")), kept(name), ""), nil
			}
			call := callPart(kept(block.Value("id")), kept(name), jsonvalue.Text(input))
			if asObject(input) == nil {
				return call, asIs
			}
			return call, nil
		}
	case "tool_result":
		switch block.Value("content").(type) {
		case nil, string, []any:
			if role == memorydv1.Role_ROLE_USER {
				return resultOfAnthropic(block)
			}
		}
	}
	return resultPartOfAnthropic(value)
}

func resultOfAnthropic(block *jsonvalue.Object) (*memorydv1.Part, any) {
	var parts []*memorydv1.Part
	tags := jsonvalue.NewObject()
	for i, inner := range asBlocks(block.Value("content")) {
		part, tag := resultPartOfAnthropic(inner)
		parts = append(parts, part)
		if isTrue(tag) {
			tags.Set(strconv.Itoa(i), tag)
		}
	}
	form := jsonvalue.NewObject()
	actual := actualContentForm(block)
	isPlain := actual == resultContentForm(parts)
	// Text alone is written as it is, empty or not.
	if tags.Len() > 0 && !(isPlain && actual == "text") {
		form.Set("parts", tags)
	}
	if !isPlain {
		form.Set("content", actual)
	}
	result := &memorydv1.ToolResult{
		CallId: kept(block.Value("tool_use_id")), IsError: block.Value("is_error") == true, Parts: parts,
	}
	if form.Len() == 0 {
		return resultPart(result), nil
	}
	return resultPart(result), form
}

func resultPartOfAnthropic(value any) (*memorydv1.Part, any) {
	block := asObject(value)
	if said, isText := text(block, "text"); isText && is(block, "type", "text") {
		if kept(said) == "" {
			return textPart(""), native
		}
		return textPart(said), nil
	}
	if media := mediaOfAnthropic(block); media != nil {
		return mediaPart(media), nil
	}
	// JSON is kept for what our Media would not give back as it was.
	return dataPart(jsonvalue.Text(value)), native
}

func mediaOfAnthropic(block *jsonvalue.Object) *memorydv1.Media {
	kind, _ := text(block, "type")
	source := asObject(block.Value("source"))
	if kind != "image" && kind != "document" || source == nil {
		return nil
	}
	byReference := ""
	if kind == "image" {
		byReference = anyImage
	}
	var media *memorydv1.Media
	var core *jsonvalue.Object
	switch from, _ := text(source, "type"); from {
	case "base64":
		mediaType, hasType := text(source, "media_type")
		encoded, hasData := text(source, "data")
		data, isBase64 := base64Bytes(encoded)
		if !hasType || !hasData || !isBase64 {
			return nil
		}
		media, core = inPlace(kept(mediaType), data), jsonvalue.NewObject("type", from, "media_type", mediaType, "data", encoded)
	case "url":
		url, isText := text(source, "url")
		if !isText {
			return nil
		}
		media, core = reference(byReference, kept(url)), jsonvalue.NewObject("type", from, "url", url)
	case "file":
		id, isText := text(source, "file_id")
		if !isText {
			return nil
		}
		media, core = reference(byReference, kept(id)), jsonvalue.NewObject("type", from, "file_id", id)
	}
	return exactly(media, mediaAnthropic, jsonvalue.NewObject("type", kind, "source", core))
}
