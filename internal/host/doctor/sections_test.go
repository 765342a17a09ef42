package doctor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every finding leads to a heading of docs/operations.md that is there.
func TestFindingsLeadSomewhere(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(raw), -1) {
		headings[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 4 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "ill" {
				return true
			}
			section, ok := call.Args[3].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: a finding whose section is no text", file)
				return true
			}
			name, err := strconv.Unquote(section.Value)
			if err != nil || !headings[name] {
				t.Errorf("%s leads to docs/operations.md#%s, which is not there", file, name)
			}
			found++
			return true
		})
	}
	if found < 20 {
		t.Errorf("only %d findings were found: has their form changed?", found)
	}
}
