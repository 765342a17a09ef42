package main

import (
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// variable of the environment that holds the number of the mutant that is on, and the one that
// names the file for the numbers of those that are reached.
const (
	variable = "MONOLITH_MUTANT"
	reached  = "MONOLITH_MUTANTS_REACHED"
)

// helpers are added to the package that is changed. mutant_ is -1 where none is on.
const helpers = `package %s

import (
	"os"
	"strconv"
	mutantSync_ "sync"
)

var mutant_ = func() int {
	if n, err := strconv.Atoi(os.Getenv("` + variable + `")); err == nil {
		return n
	}
	return -1
}()

var mutantReached_ = func() *os.File {
	path := os.Getenv("` + reached + `")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}()

var mutantsSeen_ mutantSync_.Map

func mutantIs_(n int) bool {
	if mutantReached_ != nil {
		if _, seen := mutantsSeen_.LoadOrStore(n, nil); !seen {
			if _, err := mutantReached_.WriteString(strconv.Itoa(n) + "\n"); err != nil {
				panic(err)
			}
		}
	}
	return mutant_ == n
}

func mutantAnd_(n int, x bool, y func() bool) bool {
	if mutantIs_(n) {
		return x || y()
	}
	return x && y()
}

func mutantOr_(n int, x bool, y func() bool) bool {
	if mutantIs_(n) {
		return x && y()
	}
	return x || y()
}

type mutantNumber_ interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantAdd_[T mutantNumber_](n int, x, y T) T {
	if mutantIs_(n) {
		return x - y
	}
	return x + y
}

func mutantSub_[T mutantNumber_](n int, x, y T) T {
	if mutantIs_(n) {
		return x + y
	}
	return x - y
}
`

// helpersOf is the text of helpers for the package of a source.
func helpersOf(source []byte) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(helpers, file.Name.Name), nil
}

// numbered is a mutant that is on where the variable holds its number.
type numbered struct {
	mutant
	n int
}

// instrument is the source of one file with all the mutants in it, each of them off until
// its number is chosen: one build serves many of them.
func instrument(source []byte, mutants []numbered) string {
	mutants = slices.Clone(mutants)
	// An expression stands before those inside it.
	slices.SortFunc(mutants, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(a.x.from, b.x.from), cmp.Compare(b.y.to, a.y.to))
	})
	return render(string(source), span{0, len(source)}, mutants)
}

// render is the text in at with the mutants that lie in it.
func render(source string, at span, mutants []numbered) string {
	var out strings.Builder
	next := at.from
	for _, m := range mutants {
		if m.x.from < next || m.y.to > at.to {
			continue
		}
		out.WriteString(source[next:m.x.from])
		next = m.y.to
		inside := slices.DeleteFunc(slices.Clone(mutants), func(o numbered) bool { return o.n == m.n })
		x, y := render(source, m.x, inside), render(source, m.y, inside)
		switch m.from {
		case "&&":
			fmt.Fprintf(&out, "mutantAnd_(%d, %s, func() bool { return %s })", m.n, x, y)
		case "||":
			fmt.Fprintf(&out, "mutantOr_(%d, %s, func() bool { return %s })", m.n, x, y)
		case "+":
			fmt.Fprintf(&out, "mutantAdd_(%d, %s, %s)", m.n, x, y)
		case "-":
			fmt.Fprintf(&out, "mutantSub_(%d, %s, %s)", m.n, x, y)
		default:
			fmt.Fprintf(&out, "(func() bool { if mutantIs_(%d) { return %s %s %s }; return %s %s %s }())", m.n, x, m.to, y, x, m.from, y)
		}
	}
	out.WriteString(source[next:at.to])
	return out.String()
}

// replace is the source with the mutant alone, for those that have no other form.
func (m mutant) replace(source []byte) string {
	return string(source[:m.offset]) + m.to + string(source[m.offset+len(m.from):])
}
