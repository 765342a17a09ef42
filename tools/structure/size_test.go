package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxFunction = 80   // lines, tests included
	maxPackage  = 3000 // lines, tests left out
	maxCommand  = 1000 // of cmd/monolith, which only says which flags there are: what they do lies elsewhere
)

// source is a Go file that somebody wrote.
type source struct {
	path  string // from the root
	file  *ast.File
	fset  *token.FileSet
	lines int
}

// sources are the Go files of the tree; generated ones, those below testdata and in hidden
// folders left out.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		all = append(all, source{filepath.ToSlash(rel), file, fset, fset.File(file.Pos()).LineCount()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// longFunctions are a file's functions above the bound, with their lines.
func (s source) longFunctions() map[string]int {
	long := map[string]int{}
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > maxFunction {
				long[s.path+":"+f.Name.Name] = n
			}
		}
	}
	return long
}

// TestFunctionsAreShort holds that each function is read on one page.
func TestFunctionsAreShort(t *testing.T) {
	excused, used := exceptions(t, "long"), map[string]bool{}
	for _, s := range sources(t) {
		for what, n := range s.longFunctions() {
			if used[what] = true; !excused[what] {
				t.Errorf("%s has %d lines, at most %d are read on one page: make it a table, helpers or sub-tests", what, n, maxFunction)
			}
		}
	}
	unused(t, excused, used)
}

// TestPackagesAreSmall holds that no package is larger than somebody reads in a day.
func TestPackagesAreSmall(t *testing.T) {
	excused, used := exceptions(t, "large"), map[string]bool{}
	lines := map[string]int{}
	for _, s := range sources(t) {
		if !strings.HasSuffix(s.path, "_test.go") {
			lines[filepath.ToSlash(filepath.Dir(s.path))] += s.lines
		}
	}
	for path, n := range lines {
		most := maxPackage
		if path == "cmd/monolith" {
			most = maxCommand
		}
		if n <= most {
			continue
		}
		if used[path] = true; !excused[path] {
			t.Errorf("%s has %d lines, tests left out, at most %d: a package is one idea; find the second one in it", path, n, most)
		}
	}
	unused(t, excused, used)
}

// TestSizes shows that the bounds are looked at: the tree is read, and a function of 81 lines
// is long.
func TestSizes(t *testing.T) {
	if n := len(sources(t)); n < 500 {
		t.Errorf("%d files: has the tree moved?", n)
	}
	for body, want := range map[int]int{maxFunction - 2: 0, maxFunction - 1: 1} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "x.go", "package x\n\n// f is.\nfunc f() {\n"+strings.Repeat("\n", body)+"}\n", parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if long := (source{"x.go", file, fset, 0}).longFunctions(); len(long) != want {
			t.Errorf("%d lines: %v", body+2, long)
		}
	}
}
