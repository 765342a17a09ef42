package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// mutant is one change of one operator, which some test of the package should notice.
type mutant struct {
	pkg, file string // folder and file name
	line      int
	fn        string // the function that holds it, with its receiver
	text      string // the line as it stands, without indentation
	from, to  string // the operator
	offset    int    // of from in the file
	x, y      span   // the operands
	nth       int    // of those that are equal otherwise, in their order; the first is 0
}

// span is where a text lies in the file.
type span struct{ from, to int }

// id names the mutant whatever line it stands on, for the list of equivalent ones.
func (m mutant) id() string {
	nth := ""
	if m.nth > 0 {
		nth = fmt.Sprintf(" (%d)", m.nth+1)
	}
	return fmt.Sprintf("%s %s %s -> %s%s: %s", filepath.Join(m.pkg, m.file), m.fn, m.from, m.to, nth, m.text)
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d %s -> %s   %s", filepath.Join(m.pkg, m.file), m.line, m.from, m.to, m.text)
}

// flips are the operators that are changed, and what to. Each stands for a mistake that
// people make: a bound off by one, a condition turned round, a part of it forgotten.
var flips = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

// mutants lists those of a package's own files, tests and generated code left out.
func mutants(pkg string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	var all []mutant
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		// Nothing would notice what is not built here.
		if built, err := gobuild.Default.MatchFile(pkg, filepath.Base(path)); err != nil || !built {
			if err != nil {
				return nil, err
			}
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := mutantsOf(path, source)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func mutantsOf(path string, source []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(source, []byte("\n"))
	where := func(n ast.Node) span { return span{fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset} }
	var found []mutant
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if !ok {
				return true
			}
			to, ok := flips[b.Op]
			if !ok || textual(b) {
				return true
			}
			at := fset.Position(b.OpPos)
			found = append(found, mutant{pkg: filepath.Dir(path), file: filepath.Base(path), line: at.Line, fn: nameOf(fn),
				text: strings.TrimSpace(string(lines[at.Line-1])), from: b.Op.String(), to: to.String(), offset: at.Offset, x: where(b.X), y: where(b.Y)})
			return true
		})
	}
	slices.SortStableFunc(found, func(a, b mutant) int { return cmp.Compare(a.offset, b.offset) })
	equal := map[string]int{}
	for i := range found {
		id := found[i].id()
		found[i].nth = equal[id]
		equal[id]++
	}
	return found, nil
}

// textual is true for a + that may join strings, which has no other sign.
func textual(b *ast.BinaryExpr) bool {
	if b.Op != token.ADD {
		return false
	}
	for _, side := range []ast.Expr{b.X, b.Y} {
		if number(side) {
			return false
		}
	}
	return true
}

// number is true for what is a number by its look.
func number(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.INT || e.Kind == token.FLOAT
	case *ast.CallExpr:
		fn, ok := e.Fun.(*ast.Ident)
		return ok && (fn.Name == "len" || fn.Name == "cap")
	case *ast.BinaryExpr:
		return e.Op == token.MUL || e.Op == token.SUB || e.Op == token.SHL || e.Op == token.QUO || number(e.X) || number(e.Y)
	case *ast.ParenExpr:
		return number(e.X)
	}
	return false
}

func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}
