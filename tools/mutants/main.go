// Command mutants changes one operator at a time, by chance, in the packages named, and
// tells whether the package's own tests notice. What they do not notice is either
// equivalent, and listed with its reason, or a test is missing.
//
//	mutants [-seed N] [-n 50] [-p 2] [-only TEXT] [-equivalent FILE] PACKAGE-FOLDER...
//
// FOLDER/... are all packages of a folder, those left out that hold what tests share. A mutant
// is tried by the tests that reach its operator, the quickest first, and each has a time limit
// of its own. What the tests of an internal package leave is tried by those of the package that it
// is internal to, in one build with that one's own. It runs in the root of the module and changes no file: mutants reach the compiler by an
// overlay, all of a package in one build, and the environment turns one of them on. Before
// the first mutant the tests of a package must pass without one. Exit 1: fewer than -want of
// those that are not equivalent were noticed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

type config struct {
	seed       uint64
	n, workers int
	only, list string
	want       float64
	limit      time.Duration
}

func main() {
	var c config
	flag.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "which mutants are drawn")
	flag.IntVar(&c.n, "n", 50, "how many are drawn")
	flag.IntVar(&c.workers, "p", 2, "how many are tried at a time")
	flag.StringVar(&c.only, "only", "", "draw only from the mutants whose name holds this `text`")
	flag.StringVar(&c.list, "equivalent", "tools/mutants/equivalent.txt", "`file` of mutants that change nothing, and why")
	flag.Float64Var(&c.want, "want", 0.95, "share of the others that must be noticed")
	flag.DurationVar(&c.limit, "limit", 3*time.Minute, "longest run of a test; one that does not end notices its mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func (c config) run(ctx context.Context, pkgs []string) error {
	if len(pkgs) == 0 {
		return errors.New("name the folders of packages, such as bus/react services/ps")
	}
	pkgs, err := expand(pkgs)
	if err != nil {
		return err
	}
	drawn, err := c.draw(pkgs)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	tried := 0
	var left []numbered
	last := map[string][]numbered{} // by the package whose tests are the last to try them
	some := func(tests string, of []numbered) (survivors []numbered, err error) {
		b := &builder{tests: tests, temp: filepath.Join(temp, tests)}
		built, survivors, err := c.try(ctx, b, of)
		tried -= len(of) - built
		return survivors, err
	}
	for _, pkg := range pkgs {
		survivors := drawn[pkg]
		tried += len(survivors)
		all := testsOf(pkg)
		for _, tests := range all[:len(all)-1] {
			if survivors, err = some(tests, survivors); err != nil {
				return err
			}
		}
		end := all[len(all)-1]
		last[end] = append(last[end], survivors...)
	}
	for _, tests := range slices.Sorted(maps.Keys(last)) {
		survivors, err := some(tests, last[tests])
		if err != nil {
			return err
		}
		left = append(left, survivors...)
	}
	share := float64(tried-len(left)) / float64(max(tried, 1))
	fmt.Printf("%d of %d noticed (%.0f %%), seed %d\n", tried-len(left), tried, 100*share, c.seed)
	for _, m := range left {
		fmt.Println("survivor:", m.id())
	}
	if share < c.want {
		return fmt.Errorf("%.0f %% were noticed, %.0f %% are wanted: write the missing tests, or name the mutant and the reason why it changes nothing in %s", 100*share, 100*c.want, c.list)
	}
	return nil
}

// draw is n of the packages' mutants by chance, by package.
func (c config) draw(pkgs []string) (map[string][]numbered, error) {
	equivalent, err := readList(c.list)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, pkg := range pkgs {
		found, err := mutants(pkg)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(found, func(m mutant) bool { return !strings.Contains(m.id(), c.only) })...)
	}
	rng := rand.New(rand.NewPCG(c.seed, 1))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	drawn := map[string][]numbered{}
	n, same := 0, 0
	for i, m := range all {
		if n == c.n {
			break
		}
		if reason, ok := equivalent[m.id()]; ok {
			fmt.Printf("equivalent  %s (%s)\n", m, reason)
			same++
			continue
		}
		drawn[m.pkg] = append(drawn[m.pkg], numbered{m, i})
		n++
	}
	fmt.Printf("seed %d: %d of %d mutants in %d packages, beside %d equivalent ones\n", c.seed, n, len(all), len(pkgs), same)
	return drawn, nil
}

// try tries mutants by the tests of one package, and returns how many could be built and which of
// them survived.
func (c config) try(ctx context.Context, b *builder, drawn []numbered) (built int, left []numbered, err error) {
	builds, err := b.all(drawn)
	if err != nil {
		return 0, nil, err
	}
	for _, build := range builds {
		var tests []timed
		if !build.always {
			if tests, err = c.reach(ctx, b.tests, build.binary); err != nil {
				return 0, nil, err
			}
		}
		noticed := make([]string, len(build.mutants))
		var workers errgroup.Group
		workers.SetLimit(c.workers)
		for j, m := range build.mutants {
			workers.Go(func() (err error) {
				runs := c.runs(b.tests, build.binary, tests, m.n)
				if build.always {
					runs = []run{{pkg: b.tests, binary: build.binary, mutant: m.n, limit: c.limit}}
				}
				by := 0
				for _, r := range runs {
					by += len(r.tests)
					if noticed[j], err = r.first(ctx); err != nil || noticed[j] != "" {
						break
					}
				}
				switch {
				case err != nil:
					return err
				case noticed[j] != "":
					fmt.Printf("noticed   %s   %s\n", m, noticed[j])
				case build.always:
					fmt.Printf("SURVIVED  %s   all tests of %s\n", m, b.tests)
				default:
					fmt.Printf("SURVIVED  %s   %d tests of %s that reach it\n", m, by, b.tests)
				}
				return nil
			})
		}
		if err := workers.Wait(); err != nil {
			return 0, nil, err
		}
		for j, m := range build.mutants {
			if noticed[j] == "" {
				left = append(left, m)
			}
		}
		built += len(build.mutants)
	}
	return built, left, nil
}

// readList reads lines of "id # reason".
func readList(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndex(line, " # ")
		if i < 0 {
			return nil, fmt.Errorf("%s: %q has no reason behind ' # '", path, line)
		}
		known[strings.TrimSpace(line[:i])] = line[i+3:]
	}
	return known, lines.Err()
}
