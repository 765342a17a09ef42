package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the pages of testdata/script. Each types commands of the binary, as
// processes in a folder of the page's own, and reads what they print. Beside testscript's
// own words a page has:
//
//	monolith ARGS...          must exit 0
//	exits CODE monolith ARGS  must exit with the code and say one line that begins "monolith: "
//	json PATH REGEXP          what the JSON just printed holds at a.0.b; a.len is a length
//	! json PATH               it holds nothing there
//	lines N                   how many lines were just printed
//	seq PATH VAR              puts what the JSON just printed holds at PATH into a variable
//	now VAR [AGE]             puts the time into a variable, later by AGE
//
// and those of script_log_test.go, which give it a log and what stands in it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, RequireUniqueNames: true, Setup: scriptSetup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"monolith": scriptMonolith, "exits": scriptExits, "json": scriptJSON, "seq": scriptSeq, "lines": scriptLines, "now": scriptNow,
			"log": scriptLog, "append": scriptAppend, "loads": scriptLoads, "publish": scriptPublish, "park": scriptPark, "trim": scriptTrim, "role": scriptRole,
		},
	})
}

// scriptSetup makes this test binary the page's monolith.
func scriptSetup(env *testscript.Env) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Join(env.WorkDir, ".bin")
	root, err := filepath.Abs(repository)
	if err := errors.Join(err, os.Mkdir(bin, 0o700)); err != nil {
		return err
	}
	env.Setenv(binaryEnv, "1")
	env.Setenv(raceEnv, os.Getenv(raceEnv))
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("REPOSITORY", root)
	env.Setenv("GOVERSION", regexp.QuoteMeta(runtime.Version()))
	env.Values[scriptBusKey{}] = new(*scriptBus)
	env.Values[scriptTB{}] = env.T().(testing.TB)
	return os.Symlink(self, filepath.Join(bin, "monolith"))
}

// scriptTB is the key of the page's test.
type scriptTB struct{}

func scriptT(ts *testscript.TestScript) testing.TB { return ts.Value(scriptTB{}).(testing.TB) }

// scriptRun is the command's exit code.
func scriptRun(ts *testscript.TestScript, args []string) int {
	err := ts.Exec("monolith", args...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("monolith: %v", err)
	}
	if exit != nil {
		return exit.ExitCode()
	}
	return exitOK
}

func scriptMonolith(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("say exits 1 or exits 2, which is what scripts tell apart")
	}
	if code := scriptRun(ts, args); code != exitOK {
		ts.Fatalf("exit %d", code)
	}
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "monolith" {
		ts.Fatalf("usage: exits CODE monolith ARGS...")
	}
	if code := scriptRun(ts, args[2:]); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit %d", code)
	}
	if says := ts.ReadFile("stderr"); !strings.HasPrefix(says, "monolith: ") || strings.Count(says, "\n") != 1 {
		ts.Fatalf("it does not say one line that begins with its name")
	}
}

// scriptAt is what the JSON just printed holds at a path; nil: nothing.
func scriptAt(ts *testscript.TestScript, path string) any {
	var at any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	ts.Check(d.Decode(&at))
	for step := range strings.SplitSeq(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			switch {
			case step == "len":
				at = len(v)
			case err == nil && i < len(v):
				at = v[i]
			default:
				return nil
			}
		default:
			return nil
		}
	}
	return at
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg != (len(args) == 1) || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: json PATH REGEXP, or ! json PATH")
	}
	at := scriptAt(ts, args[0])
	if neg {
		if at != nil {
			ts.Fatalf("%s is %v", args[0], at)
		}
		return
	}
	want, err := regexp.Compile("^(?:" + args[1] + ")$")
	ts.Check(err)
	if got := fmt.Sprint(at); at == nil || !want.MatchString(got) {
		ts.Fatalf("%s is %v, not %s", args[0], got, args[1])
	}
}

func scriptSeq(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: seq PATH VAR")
	}
	at := scriptAt(ts, args[0])
	if at == nil {
		ts.Fatalf("nothing at %s", args[0])
	}
	ts.Setenv(args[1], fmt.Sprint(at))
}

func scriptLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lines N")
	}
	if n := strings.Count(ts.ReadFile("stdout"), "\n"); strconv.Itoa(n) != args[0] {
		ts.Fatalf("%d lines", n)
	}
}

func scriptNow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: now VAR [AGE]")
	}
	at := time.Now()
	if len(args) == 2 {
		by, err := time.ParseDuration(args[1])
		ts.Check(err)
		at = at.Add(by)
	}
	ts.Setenv(args[0], at.UTC().Format(time.RFC3339Nano))
}
