package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// binary builds the program that the pods run.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "monolith")
	build := exec.Command("go", "build", "-o", path, "./cmd/monolith")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return path, nil
})

// scratch is a folder for the time of the tests.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "monolith-deploy"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// TestCommandLines hands each container's arguments to the real binary: once with --help, which
// parses them, and once against a NATS that is not there, which it only dials when it has
// found nothing wrong with them.
func TestCommandLines(t *testing.T) {
	lines := map[string][]string{} // by themselves, so that each is tried once
	take := func(args []string) {
		lines[strings.Join(args, " ")] = args
		if server := serverArgs(args); server != nil {
			lines[strings.Join(server, " ")] = server
		}
	}
	for _, values := range variants {
		found, _ := workloads(t, rendering(t, values))
		for _, w := range found {
			for _, c := range w.pod.Spec.Containers {
				if len(c.Args) > 0 { // NATS has its own command
					take(expand(t, c))
				}
			}
		}
	}
	for _, s := range composed(t).Services {
		if strings.HasPrefix(s.Image, "monolith:") {
			take(s.Command)
		}
	}
	if len(lines) < 30 {
		t.Errorf("only %d command lines were seen", len(lines))
	}
	// Each waits some seconds for NATS, so they wait side by side.
	var wg sync.WaitGroup
	free := make(chan struct{}, 64)
	for _, args := range lines {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			accepted(t, args)
		})
	}
	wg.Wait()
}

var variable = regexp.MustCompile(`\$\((\w+)\)`)

// expand puts in what the kubelet would.
func expand(t *testing.T, c core.Container) []string {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = map[string]string{"metadata.name": "monolith-x-0", "status.podIP": "10.0.0.7", "metadata.labels['apps.kubernetes.io/pod-index']": "0"}[field(e)]
	}
	var args []string
	for _, arg := range c.Args {
		args = append(args, variable.ReplaceAllStringFunc(arg, func(v string) string {
			value := env[variable.FindStringSubmatch(v)[1]]
			if value == "" {
				t.Errorf("%s: %s is not set", arg, v)
			}
			return value
		}))
	}
	return args
}

func field(e core.EnvVar) string {
	if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
		return ""
	}
	return e.ValueFrom.FieldRef.FieldPath
}

// serverArgs is the command line of the model server that a supervisor starts; nil: none.
func serverArgs(args []string) []string {
	server := []string{"modelserver", "--container=x"}
	for _, arg := range args {
		if flag, ok := strings.CutPrefix(arg, "--server-arg="); ok {
			server = append(server, flag)
		}
	}
	if len(server) == 2 {
		return nil
	}
	return server
}

// absent are files that only a cluster has; what is checked behind them is left to it.
var absent = regexp.MustCompile(`/(rows|transfer)-tls/`)

// accepted runs the binary with these arguments; several goroutines may.
func accepted(t *testing.T, args []string) {
	t.Helper()
	run := func(more ...string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		path, err := binary()
		if err != nil {
			return err.Error(), -1
		}
		cmd := exec.CommandContext(ctx, path, slices.Concat(args, more)...)
		cmd.Env = append(os.Environ(), "MONOLITH_NATS=nats://127.0.0.1:1", "MONOLITH_NATS_SYNC=always")
		out, _ := cmd.CombinedOutput() // what it ends with is its exit code
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("--help"); code != 0 {
		t.Errorf("monolith %s: %s", strings.Join(args, " "), out)
		return
	}
	if absent.MatchString(strings.Join(args, " ")) {
		return
	}
	if out, code := run(); code != 1 || !strings.Contains(out, "connect to NATS at nats://127.0.0.1:1") {
		t.Errorf("monolith %s ends with %d before it looks for NATS: %s", strings.Join(args, " "), code, out)
	}
}

// TestCommandLinesThatAreWrong shows that TestCommandLines sees what it is there for.
func TestCommandLinesThatAreWrong(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"portal --no-such-flag=1 --help", "ps --shard=one --help", "no-such-role", "trainer --job=movies --model=movies"} {
		if out, err := exec.Command(path, strings.Fields(args)...).CombinedOutput(); err == nil || strings.Contains(string(out), "connect to NATS") {
			t.Errorf("monolith %s is accepted: %s", args, out)
		}
	}
}
