package jsonvalue

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTextsComeBackAsTheyWere(t *testing.T) {
	for _, text := range []string{
		`{"b":1,"a":[1.0,-0.0,1e300,1180591620717411303424],"":{}}`, `"a\u0000b\n\"\\/🙂"`, `"\ud83d"`, `["\udc00 \ud83d \ud800\ud800"]`,
		`[]`, `null`, `true`, `-0`, `"\u007f"`,
	} {
		value, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want := strings.ReplaceAll(text, `\u007f`, "\x7f")
		if got := Text(value); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	value, err := Parse(`"\ud83d\ude42\/"`)
	if err != nil || value != "🙂/" {
		t.Errorf("got %q, %v", value, err)
	}
}

func TestWhatIsNoJSONIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "[", "{", `{"a"}`, `{"a":}`, `{a:1}`, "01", "1.", ".5", "1e", "+1", "NaN", "tru", `"`, `"\x"`, `"\u12"`, `"\u+123"`, "\"\n\"",
		"[1,]", "[1 2]", `{"a":1,}`, "1 2", "\xff", "nulll", strings.Repeat("[", 100_000), strings.Repeat("9", 5_000),
	} {
		if value, err := Parse(text); err == nil {
			t.Errorf("%.20q is read as %v", text, value)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\ud83d",null]}`, `"\\"`, "1e5", "[[]]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := Parse(text)
		if err != nil {
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q is read, though it is no JSON", text)
		}
		again, err := Parse(Text(value))
		if err != nil || !Equal(value, again) {
			t.Fatalf("%q comes back as %q", text, Text(value))
		}
	})
}
