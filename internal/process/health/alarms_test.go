package health_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every problem that a role can show has a row in docs/operations.md that says what it
// means and what to do, and no row is of a problem that nobody reports.
func TestAlarmsAreExplained(t *testing.T) {
	names := readSources(t, "../../..").names(t)
	if len(names) < 25 {
		t.Errorf("only %d problems were found in the code: %q", len(names), names)
	}
	rows := explained(t, "../../../docs/operations.md", "## Problems by name")
	for _, name := range names {
		if !slices.Contains(rows, name) {
			t.Errorf("docs/operations.md, \"Problems by name\", has no row of %q: say what it means and what to do", name)
		}
	}
	for _, row := range rows {
		if !slices.Contains(names, row) {
			t.Errorf("docs/operations.md explains %q, which no role reports", row)
		}
	}
}

// explained are the names in the first cells of a section's table, without what follows
// from the case, such as <topic>.
func explained(t *testing.T, path, section string) (names []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "\n"+section+"\n")
	if !found {
		t.Fatalf("%s has no section %q", path, section)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 4 || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("a row without all of problem, role, meaning and mend: %s", line)
		}
		for i, name := range strings.Split(cells[0], "`") {
			if i%2 == 1 {
				names = append(names, stem(name))
			}
		}
	}
	return names
}

// stem is what all names of one kind begin with.
func stem(name string) string {
	name, _, _ = strings.Cut(name, "<")
	name, _, _ = strings.Cut(name, "%")
	return strings.TrimSpace(name)
}

// given are names that stand in variables which no text of the program fills.
var given = map[string][]string{
	"c.stream": {"MONOLITH", "MONOLITH_SYNC"}, // of the committer
	"t.Name":   {"task "},                     // of up: a role's own name
}

// place is an expression, in its function (nil: outside of any) and folder.
type place struct {
	dir string
	in  *ast.FuncDecl
	e   ast.Expr
}

// sources are the parsed files of the programs, by folder.
type sources struct {
	fset *token.FileSet
	dirs map[string][]*ast.File
}

func readSources(t *testing.T, root string) *sources {
	t.Helper()
	s := &sources{token.NewFileSet(), map[string][]*ast.File{}}
	for _, top := range []string{"bus", "internal", "projections", "services", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			dir := filepath.Dir(path)
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || dir == filepath.Join(root, "internal/process/health") {
				return err
			}
			f, err := parser.ParseFile(s.fset, path, nil, 0)
			s.dirs[dir] = append(s.dirs[dir], f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// each calls visit for all nodes of the files of a folder; "" is every folder.
func (s *sources) each(folder string, visit func(dir string, in *ast.FuncDecl, n ast.Node)) {
	for dir, files := range s.dirs {
		if folder != "" && dir != folder {
			continue
		}
		for _, f := range files {
			for _, d := range f.Decls {
				in, _ := d.(*ast.FuncDecl)
				ast.Inspect(d, func(n ast.Node) bool { visit(dir, in, n); return true })
			}
		}
	}
}

// names are the stems of all names under which something is reported to a health.State.
func (s *sources) names(t *testing.T) (all []string) {
	t.Helper()
	s.each("", func(dir string, in *ast.FuncDecl, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "Fail" && f.Sel.Name != "Attempts" || !isHealth(f.X) {
			return
		}
		found := s.texts(place{dir, in, call.Args[0]}, 0)
		if len(found) == 0 {
			t.Errorf("%s: under which name that is reported cannot be seen: use a constant", s.fset.Position(call.Pos()))
		}
		for _, name := range found {
			if name = stem(name); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	})
	slices.Sort(all)
	return all
}

// isHealth says whether an expression is a health.State, by what such are called here.
func isHealth(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name == "well" || strings.EqualFold(x.Name, "health")
	case *ast.SelectorExpr:
		return isHealth(x.Sel)
	}
	return false
}

// texts are the beginnings of the strings that an expression can be.
func (s *sources) texts(p place, depth int) []string {
	if depth > 8 {
		return nil
	}
	switch x := p.e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(x.Value); err == nil {
			return []string{text}
		}
	case *ast.BinaryExpr:
		return s.texts(place{p.dir, p.in, x.X}, depth+1)
	case *ast.CallExpr: // Sprintf, or a method that puts the name of a case behind a word
		if len(x.Args) > 0 {
			return s.texts(place{p.dir, p.in, x.Args[0]}, depth+1)
		}
	case *ast.SelectorExpr:
		if owner, ok := x.X.(*ast.Ident); ok && given[owner.Name+"."+x.Sel.Name] != nil {
			return given[owner.Name+"."+x.Sel.Name]
		}
		return s.all(s.fields(x.Sel.Name), depth)
	case *ast.Ident:
		if places := s.arguments(p, x.Name); len(places) > 0 {
			return s.all(places, depth)
		}
		return s.all(s.values(p, x.Name), depth)
	}
	return nil
}

func (s *sources) all(places []place, depth int) (texts []string) {
	for _, p := range places {
		texts = append(texts, s.texts(p, depth+1)...)
	}
	return texts
}

// fields are what a field of that name is set to, in any literal.
func (s *sources) fields(name string) (places []place) {
	s.each("", func(dir string, in *ast.FuncDecl, n ast.Node) {
		if kv, ok := n.(*ast.KeyValueExpr); ok && fmt.Sprint(kv.Key) == name {
			places = append(places, place{dir, in, kv.Value})
		}
	})
	return places
}

// arguments are what the callers in the same folder pass for a parameter.
func (s *sources) arguments(p place, name string) (places []place) {
	at, n := -1, 0
	if p.in != nil {
		for _, field := range p.in.Type.Params.List {
			for _, id := range field.Names {
				if id.Name == name {
					at = n
				}
				n++
			}
		}
	}
	if at < 0 {
		return nil
	}
	s.each(p.dir, func(dir string, in *ast.FuncDecl, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) <= at {
			return
		}
		called := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			called = f.Name
		case *ast.SelectorExpr:
			called = f.Sel.Name
		}
		if called == p.in.Name.Name {
			places = append(places, place{dir, in, call.Args[at]})
		}
	})
	return places
}

// values are what a name is defined as: in the function, else in the folder.
func (s *sources) values(p place, name string) (places []place) {
	local := []place{}
	s.each(p.dir, func(dir string, in *ast.FuncDecl, n ast.Node) {
		define := func(id ast.Expr, value ast.Expr) {
			x, ok := id.(*ast.Ident)
			switch {
			case !ok || x.Name != name:
			case in == nil:
				places = append(places, place{dir, in, value})
			case in == p.in:
				local = append(local, place{dir, in, value})
			}
		}
		switch d := n.(type) {
		case *ast.ValueSpec:
			for i := range min(len(d.Names), len(d.Values)) {
				define(d.Names[i], d.Values[i])
			}
		case *ast.AssignStmt:
			for i := range min(len(d.Lhs), len(d.Rhs)) {
				define(d.Lhs[i], d.Rhs[i])
			}
		}
	})
	if len(local) > 0 {
		return local
	}
	return places
}
