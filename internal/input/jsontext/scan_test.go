package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
)

// values are JSON, or nearly.
var values = []string{
	`1`, `-0`, `-`, `01`, `1.`, `1.5e+3`, `1e`, `true`, `tru`, `null`, `nul`, `false`, `""`, `"a`, `"\u00e9"`, `"\u00g9"`, `"\x"`, "\"\n\"", `"\ud83d\ude00 \ud83d"`, "\"\xff\"",
	`[]`, `[`, `[1,2]`, `[1,]`, `[1 2]`, `{}`, `{"a":1}`, `{"a"}`, `{"a":1,}`, `{"a":{"b":[{}, [ ]]}}`, `{"a":[}]`, ` 1`, `1 `, `[1]]`, strings.Repeat("[", 40) + strings.Repeat("]", 40), ``,
}

// FuzzScanner: what is skipped to its end is what encoding/json takes for one value, and a string is what it says it is.
func FuzzScanner(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v))
	}
	var s Scanner
	f.Fuzz(func(t *testing.T, text []byte) {
		outer := len(text) > 0 && Space(text, 0) == 0 && !strings.ContainsRune(" \n\t\r", rune(text[len(text)-1]))
		if got, want := s.Skip(text, 0) == len(text), outer && json.Valid(text); got != want && len(text) < maxNesting {
			t.Fatalf("%q is one value: %v; encoding/json says %v", text, got, want)
		}
		if len(text) == 0 || text[0] != '"' || !json.Valid(text) {
			return
		}
		var want string
		end, plain := StringEnd(text, 0)
		if err := json.Unmarshal(text, &want); err != nil || end != len(strings.TrimRight(string(text), " \n\t\r")) {
			t.Fatalf("%q ends at %d, %v", text, end, err)
		}
		if got := string(Unescape(nil, text[1:end-1])); got != want {
			t.Fatalf("%q is %q; encoding/json says %q", text, got, want)
		}
		if plain && string(text[1:end-1]) != want {
			t.Fatalf("%q is not plain: %q", text, want)
		}
	})
}
