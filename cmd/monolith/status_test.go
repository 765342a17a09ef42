package main

import (
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
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/collector"
	"github.com/monolith-go/monolith/loadtest/demo"
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
	w.observed(url)
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
	return opsSpawnLine(t, "MONOLITH_OPS_CHILD=1", opsCommand(args...)...)
}

// opsSpawnLine starts a command line with one more word in its environment.
func opsSpawnLine(t testing.TB, env string, line ...string) *opsChild {
	t.Helper()
	c := &opsChild{cmd: exec.Command(line[0], line[1:]...), log: new(opsLines), exited: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), env)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.exited <- c.cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // gone already, mostly
		if t.Failed() {
			t.Logf("%v:\n%s", line, c.log.tail(15))
		}
	})
	return c
}

var opsStatusURL = regexp.MustCompile(`status=(http://[0-9.:]+)`)

// TestRoleStatus runs every role as a process of its own: each lives before it is ready,
// is ready once it has caught up, counts what it does, says in its log who it is, leaves
// with 0 when it is asked to, and has told an OpenTelemetry collector by then, as has the
// model server that a supervisor started.
func TestRoleStatus(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Shards, cfg.Replicas, cfg.Trainers, cfg.Spans = 1, 1, 1, false
	collected := collector.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.Endpoint) // every process inherits it
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
	r := &roleProcesses{opsWorld: &opsWorld{Stack: s, t: t, ctx: ctx, log: new(opsLines)}}
	r.alone(t)
	r.others()
	r.job, err = demo.OpenJob(ctx, s.Config.Logs)
	r.must("open the job", err)
	defer func() { r.must("close the job", r.job.Close()) }()
	r.must("declare the model", r.job.Declare(r.soon(), modelspec.MovieRanking()))
	r.rate(50)
	r.learnt()
	for _, c := range r.all {
		r.works(t, c)
	}
	// The trainers and shards leave first, so that the others hear of it.
	slices.Reverse(r.all)
	for _, c := range r.all {
		r.leaves(t, c)
	}
	for role := range opsSeries {
		if !slices.Contains(collected.Services(), role) {
			t.Errorf("the collector heard nothing of %s, only of %v", role, collected.Services())
		}
	}
}

// roleProcesses are the roles of a stack, each a process.
type roleProcesses struct {
	*opsWorld
	all []*roleProcess
}

type roleProcess struct {
	*opsChild
	role, statusFile, url string
}

func (r *roleProcesses) shared() []string {
	return []string{"--nats", r.Config.Logs.NATS, "--bzid", "demo", "--log-level", "info"}
}

func (r *roleProcesses) spawn(name, role string, args ...string) *roleProcess {
	c := &roleProcess{role: role, statusFile: filepath.Join(r.Config.Dir, "status-"+name)}
	c.opsChild = opsSpawn(r.t, slices.Concat([]string{role}, r.shared(), []string{"--status-file", c.statusFile}, args)...)
	r.all = append(r.all, c)
	return c
}

// answer asks the role's status port, once its log says where it is.
func (r *roleProcesses) answer(c *roleProcess, path string) (int, string) {
	if c.url == "" {
		if m := opsStatusURL.FindStringSubmatch(c.log.String()); m != nil {
			c.url = m[1]
		}
	}
	code, body, _ := opsGet(r.ctx, c.url+path)
	return code, body
}

// alone starts the shard: it is not ready before its model is declared, and nobody serves
// the portal yet.
func (r *roleProcesses) alone(t *testing.T) {
	var ps *roleProcess
	for _, task := range r.Tasks {
		if task.Role == "ps" {
			ps = r.spawn(task.Name, task.Role, task.Args...)
		}
	}
	r.until("the shard to live", func() (bool, string) {
		code, body := r.answer(ps, "/livez")
		return code == http.StatusOK, fmt.Sprint(code, body, ps.log)
	})
	if code, body := r.answer(ps, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not caught up") {
		t.Errorf("a shard without a model says %d %q", code, body)
	}
}

// others starts the other roles, and a model server of its own.
func (r *roleProcesses) others() {
	for _, task := range r.Tasks {
		switch task.Role {
		case "ps":
		case "tfs-supervisor":
			if !strings.HasPrefix(task.Name, "serving") {
				continue // the entry runs below, as a model server of its own
			}
			var command strings.Builder
			list := csv.NewWriter(&command)
			r.must("write the command", list.Write(opsCommand(slices.Concat([]string{"modelserver"}, r.shared(), []string{"--container", task.Name}, task.Server)...)))
			list.Flush()
			r.spawn(task.Name, task.Role, append(task.Args, "--command", strings.TrimSpace(command.String()))...)
		default:
			r.spawn(task.Name, task.Role, task.Args...)
		}
	}
	r.spawn("lone", "modelserver", "--container", "lone", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--base-dir", filepath.Join(r.Config.Dir, "lone"))
}

// works waits until the role is ready and has counted something, and reads what it says of
// itself.
func (r *roleProcesses) works(t *testing.T, c *roleProcess) {
	r.until(c.role+" to be ready", func() (bool, string) {
		code, body := r.answer(c, "/readyz")
		return code == http.StatusOK, fmt.Sprint(code, body, c.log)
	})
	r.until("the series of "+c.role, func() (bool, string) {
		_, page := r.answer(c, "/metrics")
		lacks := opsLacks(page, c.role)
		return len(lacks) == 0, fmt.Sprint(lacks)
	})
	if c.role == "trainer" {
		_, page := r.answer(c, "/metrics")
		if !strings.Contains(page, `road="unix"`) || strings.Contains(page, `road="tcp"`) {
			t.Errorf("a trainer on the shards' machine does not come by their unix sockets:\n%s", page)
		}
	}
	if code, _ := r.answer(c, "/livez"); code != http.StatusOK {
		t.Errorf("%s: /livez %d", c.role, code)
	}
	var st host.ProcessStatus
	raw, err := os.ReadFile(c.statusFile)
	if err := json.Unmarshal(raw, &st); err != nil || st.PID != c.cmd.Process.Pid || "http://"+st.Status != c.url {
		t.Errorf("%s: status file %s, %v", c.role, raw, err)
	}
	r.must("read the status file", err)
	for line := range strings.Lines(c.log.String()) {
		if strings.HasPrefix(line, "time=") && !strings.Contains(line, " role=") {
			t.Errorf("%s: a line does not say who: %s", c.role, line)
			break
		}
	}
}

// leaves asks the role to stop, which it does with 0.
func (r *roleProcesses) leaves(t *testing.T, c *roleProcess) {
	r.must("stop "+c.role, c.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-c.exited:
		if err != nil {
			t.Errorf("%s, asked to stop, ends with %v", c.role, err)
		}
	case <-r.soon().Done():
		t.Fatalf("%s does not stop:\n%s", c.role, c.log.tail(20))
	}
}

// TestHelp holds that every command tells what it is for and names each of its flags.
func TestHelp(t *testing.T) {
	root, flag := newRoot(), regexp.MustCompile(`--[a-z-]+`)
	var walk func(path []string)
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
		for _, name := range flag.FindAllString(cmd.LocalFlags().FlagUsages(), -1) {
			if !strings.Contains(out, name) {
				t.Errorf("%v --help does not mention %s", path, name)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(append(slices.Clone(path), sub.Name()))
		}
	}
	walk(nil)
}
