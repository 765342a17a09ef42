package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build is the tests of a package with some mutants in them.
type build struct {
	binary  string
	mutants []numbered // each is off until its number is chosen,
	always  bool       // or there is one, and it is always on
}

// builder makes the builds of one package's tests.
type builder struct {
	tests, temp string
	made        int
}

// all is as many builds as the mutants need: one mostly, since few mutants have no form
// that can be off. What the types do not allow is left out.
func (b *builder) all(mutants []numbered) ([]build, error) {
	if len(mutants) == 0 {
		return nil, nil
	}
	files := map[string][]numbered{}
	for _, m := range mutants {
		path := filepath.Join(m.pkg, m.file)
		files[path] = append(files[path], m)
	}
	replaced := map[string]string{}
	for path, in := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if replaced[filepath.Join(filepath.Dir(path), "zz_mutants.go")], err = helpersOf(source); err != nil {
			return nil, err
		}
		replaced[path] = instrument(source, in)
	}
	switch binary, wrong, err := b.compile(replaced); {
	case err != nil:
		return nil, err
	case wrong == "":
		return []build{{binary: binary, mutants: mutants}}, nil
	case len(mutants) == 1:
		return b.single(mutants[0])
	}
	half := len(mutants) / 2
	first, err := b.all(mutants[:half])
	if err != nil {
		return nil, err
	}
	second, err := b.all(mutants[half:])
	return append(first, second...), err
}

func (b *builder) single(m numbered) ([]build, error) {
	path := filepath.Join(m.pkg, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	binary, wrong, err := b.compile(map[string]string{path: m.replace(source)})
	if err != nil || wrong == "" {
		return []build{{binary: binary, mutants: []numbered{m}, always: true}}, err
	}
	// Is it the mutant, or does the package not build as it is?
	if _, wrong, err := b.compile(nil); err != nil || wrong != "" {
		return nil, fmt.Errorf("the tests of %s do not build: %w\n%s", b.tests, err, wrong)
	}
	return nil, nil
}

// testsOf are the packages whose tests are to notice the mutants of pkg: its own, and, when it is
// internal to another package, that one's.
func testsOf(pkg string) (all []string) {
	of := []string{pkg}
	if outer, _, internal := strings.Cut(filepath.ToSlash(pkg), "/internal/"); internal {
		of = append(of, filepath.FromSlash(outer))
	}
	for _, p := range of {
		if tests, _ := filepath.Glob(filepath.Join(p, "*_test.go")); len(tests) > 0 { // the pattern is well formed
			all = append(all, p)
		}
	}
	if all == nil {
		return []string{pkg}
	}
	return all
}

// compile builds the tests with the texts in place of the files at those paths; wrong is what
// the compiler says of them.
func (b *builder) compile(replaced map[string]string) (binary, wrong string, err error) {
	b.made++
	folder := filepath.Join(b.temp, fmt.Sprint(b.made))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", "", err
	}
	overlay := map[string]string{}
	for at, text := range replaced {
		path, err := filepath.Abs(at)
		if err != nil {
			return "", "", err
		}
		overlay[path] = filepath.Join(folder, fmt.Sprint(len(overlay), ".go"))
		if err := os.WriteFile(overlay[path], []byte(text), 0o600); err != nil {
			return "", "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", "", err
	}
	overlayFile := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(overlayFile, list, 0o600); err != nil {
		return "", "", err
	}
	binary = filepath.Join(folder, "mutants.test")
	out, err := exec.Command("go", "test", "-overlay", overlayFile, "-vet=off", "-ldflags=-s -w", "-c", "-o", binary, "./"+filepath.ToSlash(b.tests)).CombinedOutput()
	if err != nil {
		return "", strings.TrimSpace(err.Error() + "\n" + string(out)), nil
	}
	return binary, "", nil
}
