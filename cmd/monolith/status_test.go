package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/history"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/projections/registry"
)

// opsSeries are series that every role has once it works.
var opsSeries = map[string][]string{
	"portal":           {"monolith_portal_commands_total", "monolith_projection_lag_events"},
	"publisher":        {"monolith_projection_lag_events"},
	"replica-registry": {"monolith_registry_heartbeats_total", "monolith_projection_lag_events"},
	"model-sync":       {"monolith_modelsync_", "monolith_projection_lag_events"},
	"tfs-supervisor":   {"monolith_tfssupervisor_heartbeats_total", "monolith_tfssupervisor_starts_total"},
	"modelserver":      {"monolith_modelserver_predict_seconds"},
	"trainer":          {"monolith_trainer_samples_total", "monolith_trainer_step_seconds"},
	"ps":               {"monolith_ps_", "monolith_projection_lag_events"},
}

// opsLacks names the series that a page of metrics does not have for a role.
func opsLacks(page, role string) (lacks []string) {
	label := fmt.Sprintf("role=%q", role)
	for _, name := range opsSeries[role] {
		if !slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool {
			return strings.HasPrefix(line, name) && strings.Contains(line, label)
		}) {
			lacks = append(lacks, fmt.Sprintf("%s{%s}", name, label))
		}
	}
	return lacks
}

// TestStackStatus looks at the one status port of everything in one process.
func TestStackStatus(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	idle, err := host.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/metrics": 200, "/other": 404} {
		if code, body, err := opsGet(t.Context(), "http://"+idle.StatusAddr()+path); err != nil || code != want {
			t.Errorf("%s before any role: %d %q, %v; want %d", path, code, body, err, want)
		}
	}
	if err := idle.Close(); err != nil {
		t.Error(err)
	}

	cfg.Replicas, cfg.Trainers = 1, 1
	w := opsServe(t, cfg)
	url := "http://" + w.StatusAddr()
	w.until("/readyz", func() (bool, string) {
		code, body, err := opsGet(w.ctx, url+"/readyz")
		return code == http.StatusOK, fmt.Sprint(code, body, err)
	})
	w.rate(50)
	w.learnt()
	w.until("series of every role", func() (bool, string) {
		_, page, err := opsGet(w.ctx, url+"/metrics")
		var lacks []string
		for role := range opsSeries {
			lacks = append(lacks, opsLacks(page, role)...)
		}
		for _, name := range []string{"monolith_publisher_facts_total{", "monolith_modelserver_delta_total{"} {
			if !strings.Contains(page, "\n"+name) {
				lacks = append(lacks, name)
			}
		}
		return err == nil && len(lacks) == 0, fmt.Sprint(lacks, err)
	})
	w.halt()
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, " task=") && !strings.Contains(line, " role=") {
			t.Fatalf("a line of a role does not say which: %s", line)
		}
	}
	if !strings.Contains(w.log.String(), " role=trainer ") {
		t.Error("no line is the trainer's")
	}
}

// TestOpsChild is no test: it is the binary, for tests that start it as a process.
func TestOpsChild(t *testing.T) {
	if os.Getenv("MONOLITH_OPS_CHILD") == "" {
		t.Skip("only other tests start this one, as a process")
	}
	os.Exit(run(flag.Args(), os.Stdout, os.Stderr))
}

// opsChild is a role in a process of its own.
type opsChild struct {
	cmd    *exec.Cmd
	log    *opsLines
	exited chan error
}

func opsCommand(args ...string) []string {
	return append([]string{os.Args[0], "-test.run=^TestOpsChild$", "--"}, args...)
}

func opsSpawn(t testing.TB, args ...string) *opsChild {
	t.Helper()
	line := opsCommand(args...)
	c := &opsChild{cmd: exec.Command(line[0], line[1:]...), log: new(opsLines), exited: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), "MONOLITH_OPS_CHILD=1")
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.exited <- c.cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // gone already, mostly
		if t.Failed() {
			t.Logf("%v:\n%s", args, c.log.tail(15))
		}
	})
	return c
}

var opsStatusURL = regexp.MustCompile(`status=(http://[0-9.:]+)`)

// TestRoleStatus runs every role as a process of its own: each lives before it is ready,
// is ready once it has caught up, counts what it does, says in its log who it is, and
// leaves with 0 when it is asked to.
func TestRoleStatus(t *testing.T) {
	dir := t.TempDir()
	cfg := opsConfig(dir)
	cfg.Shards, cfg.Replicas, cfg.Trainers, cfg.Spans = 1, 1, 1, false
	s, err := host.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*opsWithin)
	defer cancel()
	w := &opsWorld{Stack: s, t: t, ctx: ctx, log: new(opsLines)}
	shared := []string{"--nats", s.Config.Logs.NATS, "--bzid", "demo", "--log-level", "info"}
	type child struct {
		*opsChild
		role, statusFile, url string
	}
	var children []*child
	spawn := func(name, role string, args ...string) *child {
		c := &child{role: role, statusFile: filepath.Join(dir, "status-"+name)}
		c.opsChild = opsSpawn(t, slices.Concat([]string{role}, shared, []string{"--status-file", c.statusFile}, args)...)
		children = append(children, c)
		return c
	}
	answer := func(c *child, path string) (int, string) {
		if c.url == "" {
			if m := opsStatusURL.FindStringSubmatch(c.log.String()); m != nil {
				c.url = m[1]
			}
		}
		code, body, _ := opsGet(ctx, c.url+path)
		return code, body
	}

	// A shard is not ready before its model is declared, and nobody serves the portal yet.
	var ps *child
	for _, task := range s.Tasks {
		if task.Role == "ps" {
			ps = spawn(task.Name, task.Role, task.Args...)
		}
	}
	w.until("the shard to live", func() (bool, string) {
		code, body := answer(ps, "/livez")
		return code == http.StatusOK, fmt.Sprint(code, body, ps.log)
	})
	if code, body := answer(ps, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not caught up") {
		t.Errorf("a shard without a model says %d %q", code, body)
	}
	for _, task := range s.Tasks {
		switch task.Role {
		case "ps":
		case "tfs-supervisor":
			if !strings.HasPrefix(task.Name, "serving") {
				continue // the entry runs below, as a model server of its own
			}
			var command strings.Builder
			list := csv.NewWriter(&command)
			w.must("write the command", list.Write(opsCommand(slices.Concat([]string{"modelserver"}, shared, []string{"--container", task.Name}, task.Server)...)))
			list.Flush()
			spawn(task.Name, task.Role, append(task.Args, "--command", strings.TrimSpace(command.String()))...)
		default:
			spawn(task.Name, task.Role, task.Args...)
		}
	}
	spawn("lone", "modelserver", "--container", "lone", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--base-dir", filepath.Join(dir, "lone"))
	w.job, err = demo.OpenJob(ctx, s.Config.Logs)
	w.must("open the job", err)
	defer func() { w.must("close the job", w.job.Close()) }()
	w.must("declare the model", w.job.Declare(w.soon(), modelspec.MovieRanking()))
	w.rate(50)
	w.learnt()
	for _, c := range children {
		w.until(c.role+" to be ready", func() (bool, string) {
			code, body := answer(c, "/readyz")
			return code == http.StatusOK, fmt.Sprint(code, body, c.log)
		})
		w.until("the series of "+c.role, func() (bool, string) {
			_, page := answer(c, "/metrics")
			lacks := opsLacks(page, c.role)
			return len(lacks) == 0, fmt.Sprint(lacks)
		})
		if c.role == "trainer" {
			_, page := answer(c, "/metrics")
			if !strings.Contains(page, `road="unix"`) || strings.Contains(page, `road="tcp"`) {
				t.Errorf("a trainer on the shards' machine does not come by their unix sockets:\n%s", page)
			}
		}
		if code, _ := answer(c, "/livez"); code != http.StatusOK {
			t.Errorf("%s: /livez %d", c.role, code)
		}
		var st host.ProcessStatus
		raw, err := os.ReadFile(c.statusFile)
		if err := json.Unmarshal(raw, &st); err != nil || st.PID != c.cmd.Process.Pid || "http://"+st.Status != c.url {
			t.Errorf("%s: status file %s, %v", c.role, raw, err)
		}
		w.must("read the status file", err)
		for line := range strings.Lines(c.log.String()) {
			if strings.HasPrefix(line, "time=") && !strings.Contains(line, " role=") {
				t.Errorf("%s: a line does not say who: %s", c.role, line)
				break
			}
		}
	}
	// The trainers and shards leave first, so that the others hear of it.
	slices.Reverse(children)
	for _, c := range children {
		w.must("stop "+c.role, c.cmd.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-c.exited:
			if err != nil {
				t.Errorf("%s, asked to stop, ends with %v", c.role, err)
			}
		case <-w.soon().Done():
			t.Fatalf("%s does not stop:\n%s", c.role, c.log.tail(20))
		}
	}
}

// TestManners is what a person at a keyboard, or a script, meets at the edges.
func TestManners(t *testing.T) {
	t.Setenv("MONOLITH_NATS", "nats://127.0.0.1:1")
	t.Run("help", func(t *testing.T) {
		var walk func(path []string)
		root := newRoot()
		walk = func(path []string) {
			cmd, _, err := root.Find(path)
			if err != nil {
				t.Fatal(err)
			}
			if !cmd.Runnable() && !cmd.HasSubCommands() {
				return // nothing to call yet
			}
			code, out, stderr := opsTool(append(slices.Clone(path), "--help")...)
			if code != exitOK || !strings.Contains(out, "monolith "+strings.Join(path, " ")) || stderr != "" {
				t.Errorf("%v --help: %d %s %s", path, code, out, stderr)
			}
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(cmd.LocalFlags().FlagUsages(), -1) {
				if !strings.Contains(out, flag) {
					t.Errorf("%v --help does not mention %s", path, flag)
				}
			}
			for _, sub := range cmd.Commands() {
				walk(append(slices.Clone(path), sub.Name()))
			}
		}
		walk(nil)
	})
	file := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ratings.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, x := range []struct {
		name, args string
		code       int
		says       string
	}{
		{"no such command", "dance", exitUsage, `unknown command "dance"`},
		{"no such flag", "events --dance", exitUsage, "unknown flag: --dance (see monolith events --help)"},
		{"no such subcommand", "dlq dance 1", exitUsage, "monolith dlq ls | show SEQ | redrive SEQ"},
		{"a flag of the wrong kind", "demo --rate fast", exitUsage, "--rate"},
		{"a flag out of bounds", "up --shards 0", exitUsage, "--shards 0: give 1 to 1024"},
		{"an interval out of bounds", "demo --sync-interval 1ns", exitUsage, "give 1ms to 1m"},
		{"a rate of nothing", "demo --rate 0", exitUsage, "--rate must be positive"},
		{"an argument too many", "events now", exitUsage, "takes no arguments"},
		{"a role's argument", "portal now", exitUsage, "takes no arguments"},
		{"no request id", "explain", exitUsage, "monolith explain REQUEST-ID"},
		{"no sequence", "dlq show", exitUsage, "takes one sequence"},
		{"one position", "replay --diff 1", exitUsage, "--diff takes two positions"},
		{"no folder", "verify", exitUsage, "--dir must name"},
		{"a level", "portal --log-level loud", exitUsage, "none of debug, info, warn, error"},
		{"no such file", "demo --data /nowhere.csv", exitFailure, "--data names a MovieLens ratings.csv"},
		{"no report", "verify --dir " + t.TempDir(), exitFailure, "no data folder"},
		{"no rating", "demo --data " + file("userId,movieId,rating,timestamp\n"), exitFailure, "holds no rating"},
		{"no rating that can be read", "demo --data " + file("userId,movieId,rating,timestamp\n1.5,2,3,4\n5,6,7\n"), exitFailure,
			`could be read as a rating; the first, line 2: userId "1.5" is not a whole number`},
		{"a length below nothing", "demo --duration -5s", exitUsage, "--duration -5s must not be negative"},
		// Before anything is dialled: no server runs there.
		{"a role's flag", "ps --model movies --dir /tmp", exitUsage, "--job"},
		{"no URL", "events --nats ://bad", exitUsage, "is no list of nats://host:port"},
		{"another protocol", "portal --nats http://user:secret@127.0.0.1:1", exitUsage, `"http://…@127.0.0.1:1"`},
		{"a namespace that is no token", "up --bzid a/b", exitUsage, "--bzid"},
	} {
		t.Run(x.name, func(t *testing.T) {
			code, out, stderr := opsTool(strings.Fields(x.args)...)
			if code != x.code || !strings.Contains(stderr, x.says) || !strings.HasPrefix(stderr, "monolith: ") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s: %d, want %d and a line that says %q\n%s%s", x.args, code, x.code, x.says, out, stderr)
			}
		})
	}
	t.Run("version", func(t *testing.T) {
		if code, out, _ := opsTool("--version"); code != exitOK || !strings.HasPrefix(out, "monolith version ") || !strings.Contains(out, runtime.Version()) {
			t.Errorf("%d %q", code, out)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		for _, args := range []string{"events", "portal"} {
			t.Run(args, func(t *testing.T) {
				t.Parallel() // each gives up after ten seconds
				code, _, stderr := opsTool(strings.Fields(args)...)
				if code != exitFailure || !strings.Contains(stderr, "nats://127.0.0.1:1 (is it running? --nats names another)") {
					t.Errorf("%s: %d %s", args, code, stderr)
				}
			})
		}
	})
}

// TestLookIntoTheLog is `monolith events` and `monolith replay` over a log that is known.
func TestLookIntoTheLog(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas, cfg.Trainers = 1, 1
	w := opsServe(t, cfg)
	begin := time.Now()
	last, err := w.job.Bus.Log().Last(w.soon())
	w.must("find the end", err)
	lines := func(args ...string) []history.Line {
		t.Helper()
		code, out, stderr := w.tool(append([]string{"events", "--json"}, args...)...)
		if code != exitOK {
			t.Fatalf("events %v: %d %s", args, code, stderr)
		}
		var all []history.Line
		for line := range strings.Lines(out) {
			var e history.Line
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("events %v: %v in %s", args, err, line)
			}
			all = append(all, e)
		}
		return all
	}
	all := lines("--until", fmt.Sprint(last))
	if len(all) != int(last) || all[0].Seq != 1 || all[last-1].Seq != last {
		t.Fatalf("%d lines of %d events", len(all), last)
	}
	some := lines("--since", "3", "--until", "5")
	if len(some) != 3 || some[0].Seq != 3 || some[2].Seq != 5 {
		t.Errorf("3 to 5: %+v", some)
	}
	if none := lines("--since", begin.Add(time.Hour).Format(time.RFC3339)); len(none) > 0 {
		t.Errorf("an hour from now: %+v", none)
	}
	if got := lines("--since", "1h", "--until", begin.UTC().Format(time.RFC3339Nano)); len(got) < int(last) {
		t.Errorf("%d of %d events lie between an hour ago and then", len(got), last)
	}
	byTime := lines("--since", all[4].Time.Format(time.RFC3339Nano), "--until", fmt.Sprint(last))
	if len(byTime) == 0 || byTime[0].Time.Before(all[4].Time) || byTime[0].Seq > 5 {
		t.Errorf("since the time of event 5: %d lines", len(byTime))
	}
	for _, e := range lines("--filter", "loadAccepted") {
		if e.Type != "loadAccepted" || e.Subject != "monolith.demo.model.movies" || e.Correlation == "" && e.Source != "portal" {
			t.Errorf("filtered: %+v", e)
		}
	}
	if code, _, stderr := w.tool("events", "--since", "yesterday"); code != exitUsage || !strings.Contains(stderr, `"yesterday" is no sequence, no time such as`) {
		t.Errorf("--since yesterday: %d %s", code, stderr)
	}

	// --tail waits for more, and ends cleanly when it is interrupted.
	tail, stop := context.WithCancel(w.ctx)
	defer stop()
	var out opsLines
	root := newRoot()
	root.SetArgs([]string{"events", "--tail", "--since", fmt.Sprint(last + 1), "--filter", "unload", "--nats", w.Config.Logs.NATS, "--json"})
	root.SetOut(&out)
	root.SetErr(&out)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(tail) }()
	w.must("unload", w.job.Call(w.soon(), "portal.unload", map[string]string{"modelName": host.ModelName, "reason": "to be seen"}, nil))
	w.until("the tail to print it", func() (bool, string) { return strings.Contains(out.String(), "to be seen"), out.String() })
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the tail ended with %v", err)
		}
	case <-w.soon().Done():
		t.Fatal("the tail does not end")
	}

	// replay: as of any moment, the same hash each time, and what changed between two.
	var accepted history.Line
	for _, e := range all {
		if e.Type == "loadAccepted" {
			accepted = e
		}
	}
	replay := func(args ...string) string {
		t.Helper()
		code, out, stderr := w.tool(append([]string{"replay"}, args...)...)
		if code != exitOK {
			t.Fatalf("replay %v: %d %s", args, code, stderr)
		}
		return out
	}
	before := replay("--view", "catalog", "--until", fmt.Sprint(accepted.Seq-1))
	at := replay("--view", "catalog", "--until", fmt.Sprint(accepted.Seq))
	if strings.Contains(before, "modelDir") || !strings.Contains(at, "modelDir") || !json.Valid([]byte(at)) {
		t.Errorf("the catalogue before the load\n%s\nand with it\n%s", before, at)
	}
	if byTime := replay("--view", "catalog", "--until", accepted.Time.Format(time.RFC3339Nano)); byTime != at {
		t.Errorf("as of its time\n%s\nas of its sequence\n%s", byTime, at)
	}
	if now := replay("--view", "catalog"); now == at || strings.Contains(now, w.Exports()) {
		t.Errorf("the catalogue after the unload: %s", now)
	}
	diff := replay("--view", "catalog", "--diff", fmt.Sprint(accepted.Seq-1), fmt.Sprint(accepted.Seq))
	if !strings.Contains(diff, w.Exports()) {
		t.Errorf("the difference does not show the folder:\n%s", diff)
	}
	if same := replay("--view", "catalog", "--diff", "5", "5"); strings.TrimSpace(same) != "" {
		t.Errorf("nothing changed between 5 and 5: %s", same)
	}
	for _, view := range registry.Names() {
		var h struct{ Hash string }
		if err := json.NewDecoder(bytes.NewBufferString(replay("--view", view, "--until", fmt.Sprint(last), "--hash"))).Decode(&h); err != nil || len(h.Hash) != 64 {
			t.Errorf("the hash of %s: %+v, %v", view, h, err)
		}
	}
	if code, _, stderr := w.tool("replay", "--view", "nothing"); code == exitOK || !strings.Contains(stderr, "catalog") {
		t.Errorf("a view that is none: %d %s", code, stderr)
	}
	if err := w.job.Call(w.soon(), "portal.load", map[string]string{"modelName": ""}, nil); err == nil || !strings.Contains(err.Error(), "portal.load") {
		t.Errorf("a load of nothing: %v", err)
	} else if refused := new(bus.CommandError); !asRefusal(err, &refused) || refused.Code != "INVALID" {
		t.Errorf("a load of nothing: %v", err)
	}
}
