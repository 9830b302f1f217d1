package convert

import memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"

func textPart(text string) *memorydv1.Part {
	return &memorydv1.Part{Kind: &memorydv1.Part_Text{Text: text}}
}

func refusalPart(text string) *memorydv1.Part {
	return &memorydv1.Part{Kind: &memorydv1.Part_Refusal{Refusal: text}}
}

func reasoningPart(text, signature string) *memorydv1.Part {
	reasoning := &memorydv1.Reasoning{Text: text, Signature: signature}
	return &memorydv1.Part{Kind: &memorydv1.Part_Reasoning{Reasoning: reasoning}}
}

func mediaPart(media *memorydv1.Media) *memorydv1.Part {
	return &memorydv1.Part{Kind: &memorydv1.Part_Media{Media: media}}
}

func dataPart(json string) *memorydv1.Part {
	return &memorydv1.Part{Kind: &memorydv1.Part_Data{Data: json}}
}

func callPart(id, name, arguments string) *memorydv1.Part {
	call := &memorydv1.ToolCall{Id: id, Name: name, Arguments: arguments}
	return &memorydv1.Part{Kind: &memorydv1.Part_ToolCall{ToolCall: call}}
}

func resultPart(result *memorydv1.ToolResult) *memorydv1.Part {
	return &memorydv1.Part{Kind: &memorydv1.Part_ToolResult{ToolResult: result}}
}

func isText(part *memorydv1.Part) bool {
	_, is := part.GetKind().(*memorydv1.Part_Text)
	return is
}

func isRefusal(part *memorydv1.Part) bool {
	_, is := part.GetKind().(*memorydv1.Part_Refusal)
	return is
}

func isData(part *memorydv1.Part) bool {
	_, is := part.GetKind().(*memorydv1.Part_Data)
	return is
}

func results(message *memorydv1.Message) []*memorydv1.ToolResult {
	var found []*memorydv1.ToolResult
	for _, part := range message.GetContent().GetParts() {
		if isResult(part) {
			found = append(found, part.GetToolResult())
		}
	}
	return found
}
