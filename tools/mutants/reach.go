package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// quick are tests that share a process: to start one for each would take longer.
const quick = time.Second

// timed is a test that passes without a mutant, and what that took.
type timed struct {
	name string
	took time.Duration
	of   map[int]bool // the mutants that it reaches
}

// reach runs each test alone, without a mutant, and says what it took and which mutants it
// reaches: no other test can notice them. The quickest is first.
func (c config) reach(ctx context.Context, pkg, binary string) ([]timed, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, path, "-test.list=.")
	list.Dir = pkg
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", pkg, err)
	}
	var tests []timed
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz") {
			tests = append(tests, timed{name: name})
		}
	}
	var workers errgroup.Group
	workers.SetLimit(c.workers)
	for i := range tests {
		t := &tests[i]
		workers.Go(func() error {
			file := filepath.Join(filepath.Dir(path), "reached-"+strconv.Itoa(i))
			began := time.Now()
			failed, err := run{pkg: pkg, binary: path, tests: []string{t.name}, mutant: -1, reached: file, limit: c.limit}.first(ctx)
			switch t.took = time.Since(began); {
			case err != nil:
				return err
			case failed != "":
				return fmt.Errorf("the tests of %s fail without any mutant (%s: %s): mend them first", pkg, t.name, failed)
			}
			t.of, err = readNumbers(file)
			return err
		})
	}
	if err := workers.Wait(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(tests, func(a, b timed) int { return cmp.Compare(a.took, b.took) })
	return tests, nil
}

func readNumbers(path string) (map[int]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		numbers[n] = true
	}
	return numbers, nil
}

// runs are those that try a mutant: the quick tests that reach it together, then the others
// one by one. Each may take its own time a few times over, c.limit at most.
func (c config) runs(pkg, binary string, tests []timed, mutant int) []run {
	var all []run
	var together time.Duration
	for _, t := range tests {
		if !t.of[mutant] {
			continue
		}
		if t.took < quick && len(all) == 1 {
			all[0].tests = append(all[0].tests, t.name)
		} else {
			all = append(all, run{pkg: pkg, binary: binary, tests: []string{t.name}, mutant: mutant})
			together = 0
		}
		together += t.took
		all[len(all)-1].limit = min(c.limit, 20*time.Second+5*together)
	}
	return all
}
