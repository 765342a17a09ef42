package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// What is printed in Python's form is what Python prints.
func TestPythonForms(t *testing.T) {
	python := oracle.Python(t)
	texts := []string{"", "plain", "it's", `say "x"`, `both ' and "`, "tab\tnew\nline\r", `back\slash`, "\x00\x1f\x7f", "\u00e9\u00a0\u00ad", "\u4e2d\u6587", "\U0001f600\u200b\ufeff", "{\"a\": 1}"}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import json, sys
texts = json.load(sys.stdin)
tree = {"b": [], "a": {}, "n": 3, "t": texts, "deep": {"x": [[1], {"y": None}], "z": True}}
print(json.dumps([[repr(t) for t in texts], [repr(t.encode()) for t in texts], [json.dumps(t) for t in texts], repr(texts),
  json.dumps(dict(sorted(tree.items())), indent=2)]))`)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []json.RawMessage
	if err := json.Unmarshal(out, &want); err != nil || len(want) != 5 {
		t.Fatal(err)
	}
	for i, form := range []func(string) string{pyString, func(s string) string { return pyBytes([]byte(s)) }, pyJSON} {
		var all []string
		if err := json.Unmarshal(want[i], &all); err != nil {
			t.Fatal(err)
		}
		for j, s := range texts {
			if got := form(s); got != all[j] {
				t.Errorf("form %d of %q: %s, Python says %s", i, s, got, all[j])
			}
		}
	}
	var list, dump string
	if json.Unmarshal(want[3], &list) != nil || json.Unmarshal(want[4], &dump) != nil {
		t.Fatal("not text")
	}
	if got := pyList(texts); got != list {
		t.Errorf("list %s, Python says %s", got, list)
	}
	items := []any{}
	for _, s := range texts {
		items = append(items, s)
	}
	if got := pyDumps(map[string]any{"b": []any{}, "a": map[string]any{}, "n": json.Number("3"), "t": items,
		"deep": map[string]any{"x": []any{[]any{json.Number("1")}, map[string]any{"y": nil}}, "z": true}}, ""); got != dump {
		t.Errorf("dump\n%s\nPython says\n%s", got, dump)
	}
	if !utf8.ValidString(dump) {
		t.Error("not UTF-8")
	}
}
