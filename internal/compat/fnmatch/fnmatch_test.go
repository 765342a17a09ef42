package fnmatch

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

func TestFilter(t *testing.T) {
	subs := []string{"entry", "ps_0", "ps_1", "ps_2", "ps_10", "dense_0"}
	for pattern, want := range map[string]string{
		"*":          "entry ps_0 ps_1 ps_2 ps_10 dense_0",
		"entry":      "entry",
		"ps_*":       "ps_0 ps_1 ps_2 ps_10",
		"ps_?":       "ps_0 ps_1 ps_2",
		"ps_[0-1]":   "ps_0 ps_1",
		"ps_[!0]*":   "ps_1 ps_2 ps_10",
		"PS_*":       "",
		"ps_":        "",
		"*_0":        "ps_0 dense_0",
		"*s*_*0*":    "ps_0 ps_10 dense_0",
		"{ps_0,x}":   "",
		"ps_[0":      "",
		"[ep]?[_t]*": "entry ps_0 ps_1 ps_2 ps_10",
	} {
		if got := strings.Join(Filter(subs, pattern), " "); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// Many stars must not take time that doubles with each.
func TestMatchIsNotExponential(t *testing.T) {
	if Match(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 5000)) {
		t.Error("matches")
	}
}

// Python itself says what its patterns mean.
func TestAgreesWithPython(t *testing.T) {
	python := oracle.Python(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	text := func(alphabet string, most int) string {
		var b strings.Builder
		runes := []rune(alphabet)
		for range r.IntN(most) {
			b.WriteRune(runes[r.IntN(len(runes))])
		}
		return b.String()
	}
	type ask struct{ Pattern, Name string }
	var asks []ask
	for range 20000 {
		asks = append(asks, ask{text(`ab-c!]^[\*?&|~é`+"\n", 12), text(`abc-!]^[\é`+"\n", 5)})
	}
	in, err := json.Marshal(asks)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import fnmatch, json, sys
print(json.dumps([fnmatch.fnmatchcase(a["Name"], a["Pattern"]) for a in json.load(sys.stdin)]))`)
	cmd.Stdin = bytes.NewReader(in)
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v", err)
	}
	var want []bool
	if err := json.Unmarshal(raw, &want); err != nil || len(want) != len(asks) || !slices.Contains(want, true) {
		t.Fatalf("%v: %d answers", err, len(want))
	}
	for i, a := range asks {
		if got := Match(a.Pattern, a.Name); got != want[i] {
			t.Errorf("%q on %q: %v, Python says %v", a.Pattern, a.Name, got, want[i])
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("ps_[!0-9]*", "ps_x")
	f.Add("[b-a-]", "-")
	f.Add("[!]a-]", "]")
	f.Add("[", "[")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 500 || len(name) > 500 {
			return
		}
		Match(pattern, name)
		if !Match(pattern+"*", name) && Match(pattern, name) {
			t.Fatalf("%q matches %q, but not with a star behind it", pattern, name)
		}
	})
}
