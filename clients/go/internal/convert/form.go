// Package convert converts between memoryd's messages and those of model providers, which are JSON here.
//
// The way there and back loses nothing: what a message has no field for is noted in its extra. That is a JSON object with
// one key a format. Its value, the source form, says only where the provider's message differs from what the converter
// would write by itself, so a plain message has none. It never holds a second copy of what the parts hold: texts that a
// window shortened stay shortened on the way back.
package convert

import (
	"slices"
	"strconv"

	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// native marks a part that the format says itself, where the converter would otherwise make text of it or leave it out.
const native = "native"

// readForm is the source form of a format; empty where there is none.
func readForm(extra, format string) *jsonvalue.Object {
	if extra == "" {
		return jsonvalue.NewObject()
	}
	forms, _ := jsonvalue.Parse(extra)
	return noted(asObject(forms), format)
}

// writeForm is the extra that holds a source form.
func writeForm(form *jsonvalue.Object, format string) string {
	if form.Len() == 0 {
		return ""
	}
	return jsonvalue.Text(jsonvalue.NewObject(format, form))
}

func asObject(value any) *jsonvalue.Object {
	object, _ := value.(*jsonvalue.Object)
	return object
}

// noted is what a form notes under a key, about parts or calls by their index; empty where it notes nothing.
func noted(form *jsonvalue.Object, key string) *jsonvalue.Object {
	if found := asObject(form.Value(key)); found != nil {
		return found
	}
	return jsonvalue.NewObject()
}

func tagOf(form *jsonvalue.Object, index int) any {
	return noted(form, "parts").Value(strconv.Itoa(index))
}

// isTrue says whether a note says something: any value but null, false, 0, and what is empty.
func isTrue(value any) bool {
	switch value := value.(type) {
	case nil:
		return false
	case bool:
		return value
	case string:
		return value != ""
	case jsonvalue.Number:
		number, err := strconv.ParseFloat(string(value), 64)
		return err != nil || number != 0
	case []any:
		return len(value) > 0
	case *jsonvalue.Object:
		return value.Len() > 0
	}
	return true
}

func isResult(part *memorydv1.Part) bool { return part.GetToolResult() != nil }

// aligned is the form for parts of which a window may have left out results: those whose calls are gone. What is noted
// about the other parts moves with them. Which results are left is not known, so what is noted about results is passed
// over.
func aligned(form *jsonvalue.Object, parts []*memorydv1.Part) *jsonvalue.Object {
	places, isList := form.Value("results").([]any)
	if !isList {
		return form
	}
	var others []int
	for index, part := range parts {
		if !isResult(part) {
			others = append(others, index)
		}
	}
	if len(parts)-len(others) == len(places) {
		return form
	}
	var before []int
	for index := range len(others) + len(places) {
		if !slices.Contains(places, any(jsonvalue.Number(strconv.Itoa(index)))) {
			before = append(before, index)
		}
	}
	moved := map[string]string{}
	for i := range min(len(before), len(others)) {
		moved[strconv.Itoa(before[i])] = strconv.Itoa(others[i])
	}
	patch := noted(form, "patch")
	content := noted(noted(patch, "in"), "content")
	inner := jsonvalue.NewObject()
	if _, found := content.Get("in"); found {
		inner.Set("content", with(content, "in", movedNotes(noted(content, "in"), moved)))
	}
	form = with(form, "content", "list")
	form = with(form, "parts", movedNotes(noted(form, "parts"), moved))
	for _, key := range noted(patch, "in").Keys() {
		if _, found := inner.Get(key); !found {
			inner.Set(key, noted(patch, "in").Value(key))
		}
	}
	return with(form, "patch", with(patch, "in", inner))
}

func movedNotes(notes *jsonvalue.Object, moved map[string]string) *jsonvalue.Object {
	result := jsonvalue.NewObject()
	for _, index := range notes.Keys() {
		if to, found := moved[index]; found {
			result.Set(to, notes.Value(index))
		}
	}
	return result
}

// with is a copy of an object with a key of another value.
func with(object *jsonvalue.Object, key string, value any) *jsonvalue.Object {
	result := jsonvalue.NewObject()
	for _, each := range object.Keys() {
		result.Set(each, object.Value(each))
	}
	result.Set(key, value)
	return result
}

// kept is what a field of ours keeps of a value: text that UTF-8 can encode. What it does not comes back by the patch.
func kept(value any) string {
	if text, isText := value.(string); isText && jsonvalue.Encodable(text) {
		return text
	}
	return ""
}

// difference is the patch that makes the wanted JSON value of the given one; nil when they are the same.
//
// A patch is an object: `is` replaces the value; `set` gives an object's keys new values; `del` removes keys; `in` holds the
// patches of an object's values or of an array's items (by index, where both arrays have one length).
func difference(wanted, given any) *jsonvalue.Object {
	if wantedObject, givenObject := asObject(wanted), asObject(given); wantedObject != nil && givenObject != nil {
		set, inner, deleted := jsonvalue.NewObject(), jsonvalue.NewObject(), []any{}
		for _, key := range wantedObject.Keys() {
			value := wantedObject.Value(key)
			before, found := givenObject.Get(key)
			if !found {
				set.Set(key, value)
				continue
			}
			patch := difference(value, before)
			if patch == nil {
				continue
			}
			if replacement, replaces := patch.Get("is"); replaces {
				set.Set(key, replacement)
			} else {
				inner.Set(key, patch)
			}
		}
		for _, key := range givenObject.Keys() {
			if _, found := wantedObject.Get(key); !found {
				deleted = append(deleted, key)
			}
		}
		patch := jsonvalue.NewObject()
		if set.Len() > 0 {
			patch.Set("set", set)
		}
		if len(deleted) > 0 {
			patch.Set("del", deleted)
		}
		if inner.Len() > 0 {
			patch.Set("in", inner)
		}
		return orNil(patch)
	}
	wantedList, isWantedList := wanted.([]any)
	givenList, isGivenList := given.([]any)
	if isWantedList && isGivenList && len(wantedList) == len(givenList) {
		inner := jsonvalue.NewObject()
		for i := range wantedList {
			if patch := difference(wantedList[i], givenList[i]); patch != nil {
				inner.Set(strconv.Itoa(i), patch)
			}
		}
		if inner.Len() == 0 {
			return nil
		}
		return jsonvalue.NewObject("in", inner)
	}
	if jsonvalue.Equal(wanted, given) {
		return nil
	}
	return jsonvalue.NewObject("is", wanted)
}

func orNil(object *jsonvalue.Object) *jsonvalue.Object {
	if object.Len() == 0 {
		return nil
	}
	return object
}

// patched is the value that a patch makes of the given one. What is no patch, or names what the value lacks, has no effect.
func patched(given, patch any) any {
	changes := asObject(patch)
	if changes == nil {
		return given
	}
	if replacement, replaces := changes.Get("is"); replaces {
		return replacement
	}
	inner := noted(changes, "in")
	switch given := given.(type) {
	case []any:
		items := make([]any, len(given))
		for i, item := range given {
			items[i] = item
			if change, found := inner.Get(strconv.Itoa(i)); found {
				items[i] = patched(item, change)
			}
		}
		return items
	case *jsonvalue.Object:
		removed, _ := changes.Value("del").([]any)
		result := jsonvalue.NewObject()
		for _, key := range given.Keys() {
			if slices.ContainsFunc(removed, func(each any) bool { return jsonvalue.Equal(each, key) }) {
				continue
			}
			value := given.Value(key)
			if change, found := inner.Get(key); found {
				value = patched(value, change)
			}
			result.Set(key, value)
		}
		set := noted(changes, "set")
		for _, key := range set.Keys() {
			result.Set(key, set.Value(key))
		}
		return result
	}
	return given
}

// actualContentForm is how a source has its content.
func actualContentForm(source *jsonvalue.Object) string {
	content, found := source.Get("content")
	switch content.(type) {
	case string:
		return "text"
	case []any:
		return "list"
	case nil:
		if found {
			return "null"
		}
		return "missing"
	}
	return "missing"
}

func textBlock(text string) *jsonvalue.Object {
	return jsonvalue.NewObject("type", "text", "text", text)
}

// text is a string value of an object's key, and whether it is one.
func text(object *jsonvalue.Object, key string) (string, bool) {
	value, isText := object.Value(key).(string)
	return value, isText
}

func is(object *jsonvalue.Object, key, value string) bool {
	found, isText := text(object, key)
	return isText && found == value
}

func joined(blocks []any) string {
	all := ""
	for _, block := range blocks {
		part, _ := text(asObject(block), "text")
		all += part
	}
	return all
}
