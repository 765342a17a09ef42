package layoutfilter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

func TestAccept(t *testing.T) {
	all := []string{"entry", "entry_x", "ps_0", "ps_1", "ps_2", "ps_13", "dense_0", "xentry"}
	for _, tc := range []struct {
		name  string
		lines []string
		id, n int
		want  []string
	}{
		{"none: all", nil, 0, 1, all},
		{"by number", []string{`ps_{i}; i % 2 == 0`}, 0, 1, []string{"ps_0", "ps_2"}},
		{"of my shard", []string{`ps_{i}; i % ${shard_num} == ${shard_id}`}, 1, 2, []string{"ps_1", "ps_13"}},
		{"no shard is the first of one", []string{`ps_{i}; i % ${shard_num} == ${shard_id}`}, -1, -1, []string{"ps_0", "ps_1", "ps_2", "ps_13"}},
		{"a pattern matches at the start", []string{`entry; True`}, 0, 1, []string{"entry", "entry_x"}},
		{"and on the whole with $", []string{`entry$; True`}, 0, 1, []string{"entry"}},
		{"a false condition falls through", []string{`ps_{i}; i == 1`, `ps_{i}; i > 10`, `ps_{i}; 0`}, 0, 1, []string{"ps_1", "ps_13"}},
		{"alternatives stay inside", []string{`entry|dense_{k}; True`}, 0, 1, []string{"entry", "entry_x", "dense_0"}},
		{"a quantifier is no variable", []string{`ps_\d{2}; True`}, 0, 1, []string{"ps_13"}},
		{"a group that took no part", []string{`p{a}?s_{i}; a == 0`}, 0, 1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs, err := Compile(tc.lines, tc.id, tc.n)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range all {
				if ok, _ := fs.Accept(name); ok {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLines(t *testing.T) {
	fs, err := Compile([]string{"entry; True", "ps_{i}; i % ${shard_num} == ${shard_id}"}, 3, 5)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"entry; True", `ps_(?P<i>\d+); i % 5 == 3`}, fs.Lines()); diff != "" {
		t.Error(diff)
	}
	again, err := Compile(fs.Lines(), 0, 1) // what an agent reports can be read back
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fs.Lines(), again.Lines()); diff != "" {
		t.Error(diff)
	}
}

func TestCompileRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"entry":                             "no semicolon",
		"entry;":                            "write True",
		"en(try; True":                      "missing closing )",
		"a)|(b; True":                       "unexpected )",
		"ps_{i}; j == 1":                    "j is no group of the pattern: the pattern has i",
		"ps_{i}; i = 1":                     "is no part of a condition",
		"ps_{i}; i == 1 2":                  "is not expected here",
		"ps_{i}; __import__('os')":          "is no part of a condition",
		"ps_{i}; i.real":                    "is no part of a condition",
		"ps_{i}; i ** 2":                    "is not expected here",
		"ps_{i}; (i":                        "closing parenthesis",
		"ps_{i}; i ==":                      "ends too early",
		"ps_{i}; 007":                       "starts with a zero",
		"ps_{i}; 1x":                        "no whole number",
		"ps_{i}; 99999999999999999999":      "64 bits",
		"x; " + strings.Repeat("(", 100):    "nests deeper",
		"x; " + strings.Repeat("-", 100):    "nests deeper",
		"x; " + strings.Repeat("not ", 100): "nests deeper",
		"x; " + strings.Repeat("1+", 2000):  "bytes long",
	} {
		if _, err := Compile([]string{line}, 0, 1); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want an error that says %q", line, err, says)
		}
	}
	if _, err := Compile(make([]string, maxLines+1), 0, 1); err == nil {
		t.Error("lines without bound")
	}
}

func TestAcceptSaysWhatCannotBeComputed(t *testing.T) {
	fs, err := Compile([]string{"ps_{i}; 1 % i", "ps_{i}; i * i", "ps_{i}; True"}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := fs.Accept("ps_0"); !ok || err == nil || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("zero: %v, %v", ok, err)
	}
	if ok, err := fs.Accept("ps_9223372036854775807"); !ok || err != nil { // 1 % i is 1
		t.Errorf("great: %v, %v", ok, err)
	}
	if ok, err := fs.Accept("ps_92233720368547758070"); !ok || err == nil || !strings.Contains(err.Error(), "64 bits") {
		t.Errorf("too great: %v, %v", ok, err)
	}
}

// random writes an expression over i and j.
func random(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(6) == 0 {
		return []string{"i", "j", "True", "False", "0", fmt.Sprint(r.IntN(9)), fmt.Sprint(r.IntN(1000))}[r.IntN(7)]
	}
	a := random(r, depth-1)
	switch r.IntN(8) {
	case 0:
		return "not " + a
	case 1:
		return "-" + a
	case 2, 3:
		return "(" + a + ")"
	}
	ops := []string{"+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", " and ", " or "}
	return a + ops[r.IntN(len(ops))] + random(r, depth-1)
}

// Python itself says what its expressions mean, syntax errors included.
func TestConditionsAgreeWithPython(t *testing.T) {
	python := oracle.Python(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	type ask struct {
		Expr string
		I, J int64
	}
	var asks []ask
	for range 4000 {
		asks = append(asks, ask{random(r, 4), r.Int64N(40), r.Int64N(5)})
	}
	in, err := json.Marshal(asks)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "-c", `
import json, sys
out = []
for a in json.load(sys.stdin):
    try:
        v = eval(a["Expr"], {}, {"i": a["I"], "j": a["J"]})
        out.append(repr(float(v)) if abs(v) < 2**53 else "large")
    except SyntaxError:
        out.append("syntax")
    except ZeroDivisionError:
        out.append("zero")
print(json.dumps(out))`)
	cmd.Stdin = bytes.NewReader(in)
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v", err)
	}
	var want []string
	if err := json.Unmarshal(raw, &want); err != nil || len(want) != len(asks) {
		t.Fatalf("%v: %d answers", err, len(want))
	}
	values := 0
	for i, a := range asks {
		got := ""
		e, err := parse(a.Expr, []string{"i", "j"})
		if err != nil {
			got = "syntax"
		} else if v, err := e([]number{integer(a.I), integer(a.J)}); err != nil {
			got = map[error]string{errZero: "zero", errRange: "large"}[err]
		} else {
			got = strconv.FormatFloat(v.asFloat(), 'g', -1, 64)
			values++
		}
		if want[i] == "large" {
			continue
		}
		if w, err := strconv.ParseFloat(want[i], 64); err == nil {
			want[i] = strconv.FormatFloat(w, 'g', -1, 64)
			if w == 0 {
				want[i], got = "0", strings.TrimPrefix(got, "-") // whole numbers know no -0
			}
		}
		if got != want[i] {
			t.Errorf("%s with i=%d, j=%d: %s, Python says %s", a.Expr, a.I, a.J, got, want[i])
		}
	}
	if values < 1000 {
		t.Errorf("only %d expressions had a value", values)
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"ps_{i}; i % 2 == 0", "entry; True", "a; not not (1 // 2) / 3 - -4 >= 0 or False", "{x}{y}; x<y<=3", ";", "a;((", "a; 1 % 0", "(?P<i>\\w+); i"} {
		f.Add(s, "ps_13")
	}
	f.Fuzz(func(t *testing.T, line, name string) {
		fs, err := Compile([]string{line}, 1, 4)
		if err != nil {
			return
		}
		ok, _ := fs.Accept(name)
		again, err := Compile(fs.Lines(), 1, 4)
		if err != nil {
			t.Fatalf("%q reads back as %q: %v", line, fs.Lines(), err)
		}
		if okAgain, _ := again.Accept(name); ok != okAgain {
			t.Fatalf("%q on %q: %v, read back %v", line, name, ok, okAgain)
		}
	})
}
