// Package jsonvalue reads and writes JSON without losing anything that encoding/json does: the order of keys, numbers as
// they are written, and halves of surrogate pairs.
//
// A value is nil, a bool, a [Number], a string, a []any or an [*Object]. A string holds halves of surrogate pairs, which
// UTF-8 cannot encode, as the three bytes that a generalized UTF-8 has for them; it is not valid UTF-8 then.
package jsonvalue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Number is a number as it is written.
type Number string

// Object is an object whose keys have an order.
type Object struct {
	keys   []string
	values map[string]any
}

// NewObject makes an object of pairs of keys and values.
func NewObject(pairs ...any) *Object {
	object := &Object{values: map[string]any{}}
	for i := 0; i < len(pairs); i += 2 {
		object.Set(pairs[i].(string), pairs[i+1])
	}
	return object
}

// Get is the value of a key, and whether there is one.
func (o *Object) Get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	value, found := o.values[key]
	return value, found
}

// Value is the value of a key; nil where there is none.
func (o *Object) Value(key string) any {
	value, _ := o.Get(key)
	return value
}

// Set gives a key a value, in its place or behind the others.
func (o *Object) Set(key string, value any) {
	if _, found := o.values[key]; !found {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
}

// Keys are the keys in their order.
func (o *Object) Keys() []string {
	if o == nil {
		return nil
	}
	return o.keys
}

// Len is the number of keys.
func (o *Object) Len() int { return len(o.Keys()) }

const (
	// mostDepth is how deep values nest at most: what is deeper is refused by other readers, too.
	mostDepth = 900
	// mostDigits is how many digits an integer has at most, for the same reason.
	mostDigits = 4_300
)

var errSyntax = errors.New("no JSON")

// Parse reads one value.
func Parse(text string) (any, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("the JSON is not UTF-8")
	}
	r := &reader{text: text}
	value, err := r.value(0)
	if err != nil {
		return nil, err
	}
	r.space()
	if r.at != len(text) {
		return nil, r.wrong()
	}
	return value, nil
}

type reader struct {
	text string
	at   int
}

func (r *reader) wrong() error { return fmt.Errorf("%w at byte %d", errSyntax, r.at) }

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *reader) take(word string) bool {
	if strings.HasPrefix(r.text[r.at:], word) {
		r.at += len(word)
		return true
	}
	return false
}

func (r *reader) value(depth int) (any, error) {
	if depth > mostDepth {
		return nil, errors.New("the JSON nests too deep")
	}
	r.space()
	switch {
	case r.at == len(r.text):
		return nil, r.wrong()
	case r.take("null"):
		return nil, nil
	case r.take("true"):
		return true, nil
	case r.take("false"):
		return false, nil
	case r.text[r.at] == '"':
		return r.string()
	case r.take("["):
		return r.array(depth)
	case r.take("{"):
		return r.object(depth)
	}
	return r.number()
}

func (r *reader) array(depth int) (any, error) {
	items := []any{}
	if r.space(); r.take("]") {
		return items, nil
	}
	for {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		r.space()
		switch {
		case r.take("]"):
			return items, nil
		case !r.take(","):
			return nil, r.wrong()
		}
	}
}

func (r *reader) object(depth int) (any, error) {
	object := NewObject()
	if r.space(); r.take("}") {
		return object, nil
	}
	for {
		r.space()
		if r.at == len(r.text) || r.text[r.at] != '"' {
			return nil, r.wrong()
		}
		key, err := r.string()
		if err != nil {
			return nil, err
		}
		if r.space(); !r.take(":") {
			return nil, r.wrong()
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		object.Set(key, value)
		r.space()
		switch {
		case r.take("}"):
			return object, nil
		case !r.take(","):
			return nil, r.wrong()
		}
	}
}

func (r *reader) digits() int {
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at - begin
}

func (r *reader) number() (any, error) {
	begin := r.at
	r.take("-")
	isInteger := true
	zero := r.take("0")
	whole := 0
	if !zero {
		if whole = r.digits(); whole == 0 {
			return nil, r.wrong()
		}
	}
	if r.take(".") {
		isInteger = false
		if r.digits() == 0 {
			return nil, r.wrong()
		}
	}
	if r.take("e") || r.take("E") {
		isInteger = false
		if !r.take("+") {
			r.take("-")
		}
		if r.digits() == 0 {
			return nil, r.wrong()
		}
	}
	if isInteger && whole > mostDigits {
		return nil, errors.New("an integer of the JSON has too many digits")
	}
	return Number(r.text[begin:r.at]), nil
}

func (r *reader) string() (string, error) {
	r.at++
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] != '"' && r.text[r.at] != '\\' {
		if r.text[r.at] < ' ' {
			return "", r.wrong()
		}
		r.at++
	}
	if r.at < len(r.text) && r.text[r.at] == '"' {
		r.at++
		return r.text[begin : r.at-1], nil
	}
	out := []byte(r.text[begin:r.at])
	for r.at < len(r.text) {
		c := r.text[r.at]
		switch {
		case c == '"':
			r.at++
			return string(out), nil
		case c < ' ':
			return "", r.wrong()
		case c != '\\':
			out = append(out, c)
			r.at++
			continue
		}
		r.at++
		if r.at == len(r.text) {
			break
		}
		escape := r.text[r.at]
		r.at++
		if plain := strings.IndexByte(`"\/bfnrt`, escape); plain >= 0 {
			out = append(out, "\"\\/\b\f\n\r\t"[plain])
			continue
		}
		if escape != 'u' {
			return "", r.wrong()
		}
		unit, err := r.unit()
		if err != nil {
			return "", err
		}
		if utf16.IsSurrogate(unit) {
			behind := r.at
			if r.take(`\u`) {
				second, err := r.unit()
				if err != nil {
					return "", err
				}
				if pair := utf16.DecodeRune(unit, second); pair != utf8.RuneError {
					out = utf8.AppendRune(out, pair)
					continue
				}
				r.at = behind
			}
			out = append(out, byte(0xE0|unit>>12), byte(0x80|unit>>6&0x3F), byte(0x80|unit&0x3F))
			continue
		}
		out = utf8.AppendRune(out, unit)
	}
	return "", r.wrong()
}

func (r *reader) unit() (rune, error) {
	if r.at+4 > len(r.text) {
		return 0, r.wrong()
	}
	for _, c := range []byte(r.text[r.at : r.at+4]) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return 0, r.wrong()
		}
	}
	unit, err := strconv.ParseUint(r.text[r.at:r.at+4], 16, 16)
	if err != nil {
		return 0, r.wrong()
	}
	r.at += 4
	return rune(unit), nil
}

// Text is the compact JSON of a value. Halves of surrogate pairs are escaped, other characters beyond ASCII are not.
func Text(value any) string {
	return string(appendValue(nil, value))
}

func appendValue(out []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, value)
	case Number:
		return append(out, value...)
	case string:
		return appendString(out, value)
	case []any:
		out = append(out, '[')
		for i, item := range value {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(out, item)
		}
		return append(out, ']')
	case *Object:
		out = append(out, '{')
		for i, key := range value.keys {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendString(out, key), ':')
			out = appendValue(out, value.values[key])
		}
		return append(out, '}')
	}
	panic(fmt.Sprintf("jsonvalue: %T is no value", value))
}

func appendString(out []byte, text string) []byte {
	out = append(out, '"')
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			i++
			switch at := strings.IndexByte("\"\\\b\f\n\r\t", c); {
			case at >= 0:
				out = append(out, '\\', `"\bfnrt`[at])
			case c < ' ':
				out = fmt.Appendf(out, `\u%04x`, c)
			default:
				out = append(out, c)
			}
			continue
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		if size == 1 && i+3 <= len(text) && c == 0xED { // Half of a surrogate pair.
			out = fmt.Appendf(out, `\u%04x`, rune(c&0x0F)<<12|rune(text[i+1]&0x3F)<<6|rune(text[i+2]&0x3F))
			i += 3
			continue
		}
		out = append(out, text[i:i+size]...)
		i += size
	}
	return append(out, '"')
}

// Equal says whether two values are the same; the order of keys is free, and numbers are compared as they are written.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		other, is := b.([]any)
		if !is || len(a) != len(other) {
			return false
		}
		for i := range a {
			if !Equal(a[i], other[i]) {
				return false
			}
		}
		return true
	case *Object:
		other, is := b.(*Object)
		if !is || a.Len() != other.Len() {
			return false
		}
		for _, key := range a.keys {
			value, found := other.Get(key)
			if !found || !Equal(a.values[key], value) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []any, *Object:
		return false
	}
	return a == b
}

// Encodable says whether UTF-8 can encode the text: whether it holds no half of a surrogate pair.
func Encodable(text string) bool { return utf8.ValidString(text) }
