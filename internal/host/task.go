package host

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/child"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"
	"github.com/monolith-go/monolith/services/trainer/warm"
)

// Task is one role of the stack: its unique name and the flags that it would have as a
// pod. A supervisor's task also has the flags of its model server.
type Task struct {
	Name, Role   string
	control      bool // drains last: the others tell it that they leave
	Args, Server []string
	Ends         bool // it is not started again after a clean end
}

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// unwell is after how many ends in a row a role counts as a problem of the process.
	unwell = 3
)

// supervise starts the task again whenever it ends before ctx does, as a pod would be. An
// error in its flags is returned: no restart mends it.
func (s *Stack) supervise(ctx context.Context, t Task, ready func()) error {
	pauses, ends := s.Config.Restarts.pauses(), 0
	started := func() {
		s.health.OK(t.Name)
		ready()
	}
	for {
		began := time.Now()
		run := s.runHere
		if s.Config.Processes {
			run = s.RunChild
		}
		err := run(ctx, t, started)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, flags.ErrUsage) || errors.Is(err, warm.ErrTimeout) || err == nil && t.Ends {
			return err
		}
		if time.Since(began) > time.Minute {
			pauses.Reset()
			ends = 0
		}
		ends++
		if most := s.Config.Restarts.Most; most > 0 && ends >= most {
			return fmt.Errorf("ended %d times in a row, and --max-restarts says %d: %w", ends, most, cmp.Or(err, errors.New("without an error")))
		}
		if ends >= unwell {
			s.health.Fail(t.Name, fmt.Errorf("ended %d times in a row: %w", ends, cmp.Or(err, errors.New("without an error"))))
		}
		pause := pauses.Next()
		s.Log.Warn("a role ended and is started again", "task", t.Name, "err", err, "after", pause)
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// runHere runs the role inside this process, on a NATS connection of its own.
func (s *Stack) runHere(ctx context.Context, t Task, ready func()) (err error) {
	r, err := roleNamed(t.Role)
	if err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	build, err := parse(r, t.Args)
	if err != nil {
		return err
	}
	well := s.health.Scope(t.Name)
	defer well.Clear()
	conn, log := s.Config.Logs, s.Log.With("role", t.Role, "task", t.Name)
	conn.Log, conn.Health = log, well
	b, err := conn.Dial(ctx, "monolith "+t.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	metrics := newScope(prometheus.WrapRegistererWith(prometheus.Labels{"role": t.Role, "task": t.Name}, s.Metrics))
	defer metrics.release()
	env := services.Env{BZID: conn.BZID, Health: well, Local: s.local, Lanes: s.lanes, Surveys: s.Surveys, Stdin: s.Stdin, Bus: b, Log: log, Tracer: s.told.tracer(t.Role, 0), Metrics: metrics, Rows: s.rows, TLS: s.Config.Ports.TLS}
	built, err := build(surroundings{env: env, launch: s.launchHere(r.server, t, env)})
	if err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	return connect.While(ctx, b, func(ctx context.Context) error { return runRole(ctx, built, ready) })
}

// launchHere makes the supervisor run its server as goroutines of this process.
func (s *Stack) launchHere(server string, t Task, env services.Env) func(*tfssupervisor.Config) (tfssupervisor.Launcher, error) {
	return func(cfg *tfssupervisor.Config) (tfssupervisor.Launcher, error) {
		r, err := roleNamed(server)
		if err != nil {
			return nil, err
		}
		args := slices.Concat([]string{"--container", cfg.Container}, t.Server, cfg.ServerArgs)
		return tfssupervisor.LauncherFunc(func(ctx context.Context) (tfssupervisor.Server, error) {
			build, err := parse(r, args)
			if err != nil {
				return tfssupervisor.Server{}, err
			}
			inner := env
			metrics := newScope(prometheus.WrapRegistererWith(prometheus.Labels{"role": r.Name, "task": t.Name}, s.Metrics))
			inner.Metrics, inner.Log = metrics, env.Log.With("server", r.Name)
			built, err := build(surroundings{env: inner})
			if err != nil {
				metrics.release()
				return tfssupervisor.Server{}, err
			}
			return startHere(ctx, built.(listening), metrics.release)
		}), nil
	}
}

// startHere runs ms until it is killed; it outlives ctx, which bounds the start alone.
func startHere(ctx context.Context, ms listening, release func()) (tfssupervisor.Server, error) {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var outcome error // written before ended is closed
	go func() {
		defer close(ended)
		defer release()
		outcome = ms.Run(run)
	}()
	select {
	case <-ms.Ready():
	case <-ended:
		stop()
		return tfssupervisor.Server{}, errors.Join(errors.New("the model server ended before it was ready"), outcome)
	case <-ctx.Done():
		stop()
		<-ended
		return tfssupervisor.Server{}, ctx.Err()
	}
	return tfssupervisor.Server{GRPCAddr: ms.GRPCAddr(), HTTPAddr: ms.HTTPAddr(), RowsAddr: ms.RowsAddr(), Secure: ms.GRPCSecure(), PID: os.Getpid(),
		Wait: func() error { <-ended; return outcome }, Kill: stop, Stop: stop}, nil
}

func parse(r Role, args []string) (func(surroundings) (services.Role, error), error) {
	fs := pflag.NewFlagSet(r.Name, pflag.ContinueOnError)
	bound := r.bind(fs)
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	if err := bound.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	return bound.build, nil
}

// RunChild runs the role as a child process that dies with this one, its log in a file.
func (s *Stack) RunChild(ctx context.Context, t Task, ready func()) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.path("logs"), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(s.path("logs", t.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	status := s.path("status", t.Name+".json")
	if err := os.MkdirAll(filepath.Dir(status), 0o755); err != nil {
		return err
	}
	if err := os.Remove(status); err != nil && !os.IsNotExist(err) {
		return err
	}
	args, err := s.childArgs(self, t, status)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = slices.Concat(os.Environ(), s.Config.Logs.Env(), s.Config.OTLP.Env(), []string{connect.EnvSynced + "=" + connect.SyncedAlways}) // what there is to say was said here
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	running, err := child.Start(cmd, nil)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	watched, stop := context.WithCancel(ctx)
	go func() { done <- awaitFile(watched, status) }()
	select {
	case err := <-done:
		stop()
		if err == nil {
			ready()
		}
		return running.Wait()
	case <-running.Ended():
		stop()
		<-done
		return running.Wait()
	}
}

// childArgs are the arguments of a role's process. The NATS URL, which may hold a password,
// comes by the environment: arguments are read by every user of the machine, and those of a
// model server stand in a fact.
func (s *Stack) childArgs(self string, t Task, status string) ([]string, error) {
	conn := slices.Concat([]string{"--bzid", s.Config.Logs.BZID, "--log-level", s.Config.Logs.Level, "--archive", s.Config.Logs.Archive}, s.Config.Ports.TLS.Args(mtls.Shared))
	here := append([]string{"--status", s.Config.Ports.at(0)}, s.Config.Ports.flags("status")...)
	args := slices.Concat([]string{t.Role}, conn, here, []string{"--status-file", status}, t.Args)
	if s.TraceFile != "" {
		args = append(args, "--trace-file", s.TraceFile)
	}
	r, err := roleNamed(t.Role)
	if err != nil {
		return nil, err
	}
	if r.server != "" {
		list, err := csvLine(slices.Concat([]string{self, r.server}, conn, here, []string{"--container", t.Name}, t.Server))
		if err != nil {
			return nil, err
		}
		args = append(args, "--command", list)
	}
	return args, nil
}

// awaitFile returns nil once path exists.
func awaitFile(ctx context.Context, path string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// csvLine writes a list the way a repeated flag reads it.
func csvLine(list []string) (string, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	if err := w.Write(list); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), w.Error()
}
