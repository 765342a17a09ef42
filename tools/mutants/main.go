// Command mutants changes one operator at a time, by chance, in the packages named, and
// tells whether the package's own tests notice. What they do not notice is either
// equivalent, and listed with its reason, or a test is missing.
//
//	mutants [-seed N] [-n 50] [-only TEXT] [-equivalent FILE] PACKAGE-FOLDER...
//
// It runs in the root of the module and changes no file: mutants reach the compiler by an
// overlay. Before the first mutant the tests of every package must pass as they are. Exit 1:
// fewer than -want of those that are not equivalent were noticed.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "which mutants are drawn")
	n := flag.Int("n", 50, "how many are drawn")
	list := flag.String("equivalent", "tools/mutants/equivalent.txt", "`file` of mutants that change nothing, and why")
	want := flag.Float64("want", 0.95, "share of the others that must be noticed")
	only := flag.String("only", "", "draw only from the mutants whose name holds this `text`")
	limit := flag.Duration("limit", 3*time.Minute, "longest test of one mutant; one that does not end is noticed")
	flag.Parse()
	if err := run(*seed, *n, *only, *list, *want, *limit, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// outcome is what the tests make of a mutant.
type outcome int

const (
	noticed outcome = iota
	survived
	unbuilt // the types do not allow it
)

func run(seed uint64, n int, only, list string, want float64, limit time.Duration, pkgs []string) error {
	if len(pkgs) == 0 {
		return errors.New("name the folders of packages, such as bus/react services/ps")
	}
	equivalent, err := readList(list)
	if err != nil {
		return err
	}
	var all []mutant
	for _, pkg := range pkgs {
		found, err := mutants(pkg)
		if err != nil {
			return err
		}
		for _, m := range found {
			if strings.Contains(m.id(), only) {
				all = append(all, m)
			}
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fmt.Printf("seed %d: %d of %d mutants in %d packages\n", seed, min(n, len(all)), len(all), len(pkgs))
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for _, pkg := range pkgs {
		switch o, first, err := test(pkg, nil, temp, limit); {
		case err != nil:
			return err
		case o != survived:
			return fmt.Errorf("the tests of %s fail without any mutant (%s): mend them first", pkg, first)
		}
	}
	tried, found := 0, 0
	var left []mutant
	for _, m := range all {
		if tried == n {
			break
		}
		if reason, ok := equivalent[m.id()]; ok {
			fmt.Printf("equivalent  %s:%d %s -> %s (%s)\n", filepath.Join(m.pkg, m.file), m.line, m.from, m.to, reason)
			continue
		}
		o, first, err := try(m, temp, limit)
		if err != nil {
			return err
		}
		if o == unbuilt {
			continue
		}
		tried++
		word := "noticed "
		if o == noticed {
			found++
		} else {
			word = "SURVIVED"
			left = append(left, m)
		}
		fmt.Printf("%s  %s:%d %s -> %s   %s   %s\n", word, filepath.Join(m.pkg, m.file), m.line, m.from, m.to, m.text, first)
	}
	share := float64(found) / float64(max(tried, 1))
	fmt.Printf("%d of %d noticed (%.0f %%), seed %d\n", found, tried, 100*share, seed)
	for _, m := range left {
		fmt.Println("survivor:", m.id())
	}
	if share < want {
		return fmt.Errorf("%.0f %% were noticed, %.0f %% are wanted: write the missing tests, or name the mutant and the reason why it changes nothing in %s", 100*share, 100*want, list)
	}
	return nil
}

// try runs the package's tests over the mutant; the text is what noticed it.
func try(m mutant, temp string, limit time.Duration) (outcome, string, error) {
	source, err := m.apply()
	if err != nil {
		return 0, "", err
	}
	changed := filepath.Join(temp, "mutant.go")
	if err := os.WriteFile(changed, source, 0o600); err != nil {
		return 0, "", err
	}
	path, err := filepath.Abs(filepath.Join(m.pkg, m.file))
	if err != nil {
		return 0, "", err
	}
	return test(m.pkg, map[string]string{path: changed}, temp, limit)
}

// test runs a package's tests with files replaced by others.
func test(pkg string, replaced map[string]string, temp string, limit time.Duration) (outcome, string, error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return 0, "", err
	}
	overlayFile := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return 0, "", err
	}
	binary := filepath.Join(temp, "mutant.test")
	if out, err := exec.Command("go", "test", "-overlay", overlayFile, "-vet=off", "-ldflags=-s -w", "-c", "-o", binary, "./"+pkg).CombinedOutput(); err != nil {
		for path := range replaced {
			if bytes.Contains(out, []byte("mutant.go")) || bytes.Contains(out, []byte(filepath.Base(path))) {
				return unbuilt, "", nil
			}
		}
		return 0, "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	// A test that is killed leaves its folders behind.
	folders := filepath.Join(temp, "t")
	if err := os.MkdirAll(folders, 0o700); err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(folders)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out bytes.Buffer
	test := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast")
	test.Dir, test.Stdout, test.Stderr = pkg, &out, &out
	test.Env = append(os.Environ(), "TMPDIR="+folders)
	test.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the servers that tests start
	test.Cancel = func() error { return syscall.Kill(-test.Process.Pid, syscall.SIGKILL) }
	test.WaitDelay = 5 * time.Second
	err = test.Run()
	if test.Process != nil {
		_ = test.Cancel() // what the tests started and did not end
	}
	if err == nil {
		return survived, "", nil
	}
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return noticed, "no end", nil
	case errors.Is(err, exec.ErrWaitDelay):
		return noticed, "a process is left", nil
	case errors.As(err, &failed):
		return noticed, firstFailure(out.String()), nil
	}
	return 0, "", err
}

// firstFailure is the name of the first test that failed, or the first line of a panic.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	return "it ended early"
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
