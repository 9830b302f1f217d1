package memoryd

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// prepare gives messages their ids, and refuses those that hold nil where something must be: that would be sent as
// something empty, and a call without id and name stored.
func prepare(messages []*Message) error {
	identify(messages)
	for i, message := range messages {
		field := fmt.Sprintf("messages[%d]", i)
		if message == nil {
			return unsendable(field, field+" is nil; leave it out")
		}
		if place := nilIn(message.GetContent().GetParts()); place != "" {
			field += ".content." + place
			return unsendable(field, fmt.Sprintf("%s of message %q is nil; give one, or leave the part out", field, message.Id))
		}
	}
	return nil
}

// nilIn is the place of the first nil among parts, or in one of them; empty when there is none.
func nilIn(parts []*Part) string {
	for i, part := range parts {
		place := fmt.Sprintf("parts[%d]", i)
		if part == nil {
			return place
		}
		isNil, name := false, ""
		switch kind := part.Kind.(type) {
		case *memorydv1.Part_ToolCall:
			isNil, name = kind.ToolCall == nil, "tool_call"
		case *memorydv1.Part_ToolResult:
			isNil, name = kind.ToolResult == nil, "tool_result"
			if inner := nilIn(kind.ToolResult.GetParts()); inner != "" {
				isNil, name = true, "tool_result."+inner
			}
		case *memorydv1.Part_Reasoning:
			isNil, name = kind.Reasoning == nil, "reasoning"
		case *memorydv1.Part_Media:
			isNil, name = kind.Media == nil, "media"
		}
		if isNil {
			return place + "." + name
		}
	}
	return ""
}

// notUTF8 is the error of the first text of a request that gRPC cannot send; nil when all can be sent.
func notUTF8(request any) (found *Error) {
	message, isMessage := request.(proto.Message)
	if !isMessage {
		return nil
	}
	_ = protorange.Range(message.ProtoReflect(), func(values protopath.Values) error {
		last := values.Index(-1)
		text, _ := last.Value.Interface().(string)
		if last.Step.Kind() == protopath.MapIndexStep {
			text += last.Step.MapIndex().String()
		}
		if utf8.ValidString(text) {
			return nil
		}
		field := strings.TrimPrefix(values.Path[1:].String(), ".")
		meaning := field
		for _, value := range values.Values {
			if inner, isMessage := value.Interface().(protoreflect.Message); isMessage {
				if told, isTold := inner.Interface().(*Message); isTold {
					meaning += fmt.Sprintf(" of message %q", told.GetId())
				}
			}
		}
		found = unsendable(field, meaning+
			` is not valid UTF-8; replace what is not, for example by strings.ToValidUTF8(text, "\uFFFD")`)
		return protorange.Terminate
	})
	return found
}

// unsendable is the error of a request that no server saw.
func unsendable(field, meaning string) *Error {
	return &Error{
		Message: meaning + ". Nothing was sent", Code: codes.InvalidArgument, Metadata: map[string]string{"field": field},
	}
}
