package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root of the repository, from this package's folder.
const repository = "../.."

// documents are all Markdown files, hidden folders left out.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	walk(t, func(path string) {
		if filepath.Ext(path) == ".md" {
			docs[path] = read(t, path)
		}
	})
	return docs
}

// walk calls f with every file of the repository that is not in a hidden folder.
func walk(t *testing.T, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != repository && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.Type().IsRegular():
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestLinksOfTheDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, target)
			}
		}
	}
}

// TestLinksToTheCode holds that a link whose text is a name of the code, such as
// [`Handler.Start`](../bus/react/react.go), leads to the file that declares it.
func TestLinksToTheCode(t *testing.T) {
	link := regexp.MustCompile("\\[`([\\w.]+)`\\]\\(([^)\\s]+\\.go)\\)")
	found := 0
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			found++
			if !declares(t, filepath.Join(filepath.Dir(path), m[2]), m[1]) {
				t.Errorf("%s: %s does not declare %s", path, m[2], m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("the documents link to %d names of the code: has their form changed?", found)
	}
}

// declares says whether a file declares a function, type, constant or variable at its top
// level, or T.name, a method of T.
func declares(t *testing.T, path, name string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names[n.Name] = true
					}
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				}
			}
		}
	}
	return names[name]
}

// receiver is "T." of a method of T or *T, generic or not, "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.Ident:
			return e.Name + "."
		default:
			return "?."
		}
	}
}

// shellLines are the lines of a document's sh blocks, comments cut off.
func shellLines(text string) []string {
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside:
			if code, _, _ := strings.Cut(line, " #"); strings.TrimSpace(code) != "" {
				lines = append(lines, strings.TrimSpace(code))
			}
		}
	}
	return lines
}

// commandLine is what follows the binary's name in a line, if the line runs it.
func commandLine(line string) (args []string, ok bool) {
	for _, name := range []string{"./monolith ", "go run ./cmd/monolith "} {
		if rest, found := strings.CutPrefix(line, name); found {
			return strings.Fields(rest), true
		}
	}
	return nil, false
}

func TestCommandLinesOfTheReadme(t *testing.T) {
	makefile := read(t, filepath.Join(repository, "Makefile"))
	used := map[string]bool{}
	for path, text := range documents(t) {
		for _, line := range shellLines(text) {
			if target, isMake := strings.CutPrefix(line, "make "); isMake && !strings.Contains(makefile, "\n"+target+":") {
				t.Errorf("%s: %q: the Makefile has no such target", path, line)
			}
			args, ours := commandLine(line)
			if !ours {
				continue
			}
			root := newRoot()
			cmd, rest, err := root.Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil || cmd == root {
				t.Errorf("%s: %q cannot be run: %v", path, line, err)
				continue
			}
			used[cmd.CommandPath()] = true
		}
	}
	for _, cmd := range newRoot().Commands() {
		if path := cmd.CommandPath(); !cmd.Hidden && !slices.Contains([]string{"monolith bench", "monolith modelserver"}, path) && !used[path] && len(cmd.Commands()) == 0 {
			t.Errorf("no document shows a line of %s", path)
		}
	}
}

// TestParity keeps the parity table from naming tests and files that are not there.
func TestParity(t *testing.T) {
	tests := testNames(t)
	text := read(t, filepath.Join(repository, "docs", "parity.md"))
	named := regexp.MustCompile("`((?:Test|Fuzz)[\\w/]+)`").FindAllStringSubmatch(text, -1)
	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("docs/parity.md names %s, which no package has", m[1])
		}
	}
	paths := regexp.MustCompile("`((?:services|internal|kernels|projections|bus|events|cmd)/[\\w./*-]+)`").FindAllStringSubmatch(text, -1)
	for _, m := range paths {
		if found, err := filepath.Glob(filepath.Join(repository, m[1])); err != nil || len(found) == 0 {
			t.Errorf("docs/parity.md names %s, which is not there", m[1])
		}
	}
	counted := map[string]int{} // rows by the first word of their status
	for _, m := range regexp.MustCompile(`(?m)\| (built|partly|not built yet|no counterpart)(?: \([a-z ]+\))? \|$`).FindAllStringSubmatch(text, -1) {
		counted[m[1]]++
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (built|partly|not built yet|no counterpart) \| (\d+) \|`).FindAllStringSubmatch(text, -1) {
		if fmt.Sprint(counted[m[1]]) != m[2] {
			t.Errorf("docs/parity.md counts %s rows that are %s, and has %d", m[2], m[1], counted[m[1]])
		}
		delete(counted, m[1])
	}
	if len(counted) > 0 {
		t.Errorf("docs/parity.md counts no rows of %v", counted)
	}
	if len(named) < 50 || len(paths) < 20 {
		t.Errorf("docs/parity.md names %d tests and %d files: has its form changed?", len(named), len(paths))
	}
}

// TestMetricsOfTheDocuments keeps the documents, the alerts and the dashboards from naming
// metrics that nobody makes: an alert on one would never fire. Whether those of alerts and
// dashboards are shown is seen on a running stack, by TestStackStatus.
func TestMetricsOfTheDocuments(t *testing.T) {
	literals := map[string]bool{} // of the code, and of each service with its prefix
	literal := regexp.MustCompile(`"([a-z][a-z0-9_]+)"`)
	walk(t, func(path string) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		folders := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
		for _, m := range literal.FindAllStringSubmatch(read(t, path), -1) {
			literals[m[1]] = true
			for _, service := range folders { // a service's packages lie below it
				literals["monolith_"+service+"_"+m[1]] = true // Namespace and Subsystem
			}
		}
	})
	n := 0
	named := func(path, name string) {
		if n++; !literals[family(name)] {
			t.Errorf("%s names the metric %s, which no code makes", path, name)
		}
	}
	quoted := regexp.MustCompile("`(monolith_[a-z0-9_]+)")
	for path, text := range documents(t) {
		if filepath.Base(path) == "parity.md" {
			continue // names the original's
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			named(path, m[1])
		}
	}
	for _, s := range observedSeries(t) {
		named(s.file, s.name)
	}
	if n < 100 {
		t.Errorf("only %d metrics were found in documents, alerts and dashboards", n)
	}
}

// TestReview keeps the list of findings from naming tests that are not there.
func TestReview(t *testing.T) {
	tests := testNames(t)
	named := regexp.MustCompile("`((?:Test|Fuzz)[\\w/]+)`").FindAllStringSubmatch(read(t, filepath.Join(repository, "docs", "review.md")), -1)
	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("docs/review.md names %s, which no package has", m[1])
		}
	}
	if len(named) < 150 {
		t.Errorf("docs/review.md names %d tests only", len(named))
	}
}

// testNames are all tests and fuzz targets of the repository, and the pages of TestScripts.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	walk(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
				tests[m[1]] = true
			}
		}
		if filepath.Ext(path) == ".txtar" {
			tests["TestScripts/"+strings.TrimSuffix(filepath.Base(path), ".txtar")] = true
		}
	})
	return tests
}
