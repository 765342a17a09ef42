package replicaregistry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// starter starts registries for test suites of others, which know how to start a
// ZooKeeper from a zoo.cfg: a process of theirs names the file, and has its server as
// long as it holds the connection. Servers that name each other in their files are
// registries on one log, which lasts as long as the data folder in the file does.
type starter struct {
	t       *testing.T
	ln      net.Listener
	dir     string
	running sync.WaitGroup

	mu    sync.Mutex
	logs  map[string]*suiteLog // by what the file says of its members
	ports sync.Map             // by address: *sync.Mutex, held while a server has it
}

// suiteLog is the NATS of one ensemble. It runs while a member does.
type suiteLog struct {
	dir     string
	members int
	nats    *natsserver.Server
}

func newStarter(t *testing.T) *starter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &starter{t: t, ln: ln, dir: memdir.New(t), logs: map[string]*suiteLog{}}
	if err := os.WriteFile(s.super(), []byte("super:D/InIHSb7yEEbrWz8b9l71RjZJU="), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.running.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() {
				defer nc.Close()
				context.AfterFunc(ctx, func() { nc.Close() })
				if err := s.serve(nc); err != nil && ctx.Err() == nil {
					t.Errorf("a server of the suite: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() { ln.Close(); stop(); s.running.Wait() })
	return s
}

// env is what the scripts that stand for ZooKeeper read.
func (s *starter) env(bin string) []string {
	return append(os.Environ(), "MONOLITH_SUITE_PORT="+strconv.Itoa(s.ln.Addr().(*net.TCPAddr).Port),
		"PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// super is the file with the digest of super:test, which the suites take for granted.
func (s *starter) super() string { return filepath.Join(s.dir, "super") }

// serve runs the servers of one file until the other side hangs up.
func (s *starter) serve(nc net.Conn) error {
	line, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil {
		return nil // gone before it had asked
	}
	cfg, err := readZooCfg(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ports := []ZKPort{{}}
	listen := []string{"127.0.0.1:" + cfg.settings["clientPort"]}
	if p := cfg.settings["secureClientPort"]; p != "" {
		in := func(name string) string { return filepath.Join(filepath.Dir(cfg.path), name) }
		ports = append(ports, ZKPort{TLS: mtls.Files{Cert: in("cert.pem"), Key: in("key.pem"), CA: in("ca.pem")}})
		listen = append(listen, "127.0.0.1:"+p)
	}
	// A suite starts a server again as soon as it has stopped one: the port is free once that is gone.
	port, _ := s.ports.LoadOrStore(listen[0], new(sync.Mutex))
	port.(*sync.Mutex).Lock()
	defer port.(*sync.Mutex).Unlock()
	var servers sync.WaitGroup
	failed := make(chan error, len(ports))
	for i, port := range ports { // the one with TLS shows a tree of its own
		port.Words, port.SuperDigestFile = []string{"*"}, s.super()
		port.MinSessionTimeout, port.MaxSessionTimeout = 2*cfg.tick, 20*cfg.tick
		key := cfg.ensemble
		if i > 0 {
			key += " with TLS"
		}
		servers.Go(func() {
			if err := s.member(ctx, key, cfg.data, Config{ZKListen: listen[i], ZK: port}); err != nil {
				failed <- err
				nc.Close()
			}
		})
	}
	_, _ = io.Copy(io.Discard, nc) // until it hangs up
	cancel()
	servers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// member runs one registry on its ensemble's log.
func (s *starter) member(ctx context.Context, ensemble, data string, cfg Config) (err error) {
	srv, err := s.enter(ensemble, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.leave(ensemble)) }()
	b, err := jetstream.Connect(context.WithoutCancel(ctx), jetstream.Config{Server: srv, BZID: controltest.BZID})
	if err != nil {
		return err
	}
	defer b.Close()
	env := controltest.Env(b)
	env.Log = slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	r, err := New(cfg, env)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// enter opens the ensemble's log for its first member: the one that it had before, as
// long as the mark in the data folder is there.
func (s *starter) enter(ensemble, data string) (*natsserver.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := filepath.Join(data, strconv.Itoa(len(ensemble))+".mark")
	l := s.logs[ensemble]
	if l != nil && l.members == 0 {
		if _, err := os.Stat(mark); err != nil {
			l = nil
		}
	}
	if l == nil {
		dir, err := os.MkdirTemp(s.dir, "log-*")
		if err != nil {
			return nil, err
		}
		l = &suiteLog{dir: dir}
		s.logs[ensemble] = l
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, err
	}
	if l.members == 0 {
		srv, err := natsserver.Start(natsserver.Config{Dir: l.dir})
		if err != nil {
			return nil, err
		}
		l.nats = srv
	}
	l.members++
	return l.nats, nil
}

func (s *starter) leave(ensemble string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[ensemble]
	if l.members--; l.members > 0 {
		return nil
	}
	return l.nats.Close()
}

// zooCfg is what a zoo.cfg says that matters here.
type zooCfg struct {
	path, data string
	settings   map[string]string
	ensemble   string // its members, or the one server's data folder
	tick       time.Duration
}

func readZooCfg(path string) (zooCfg, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return zooCfg{}, err
	}
	c := zooCfg{path: path, settings: map[string]string{}}
	var members []string
	for line := range strings.Lines(string(raw)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		c.settings[k] = v
		if strings.HasPrefix(k, "server.") {
			members = append(members, k+"="+v)
		}
	}
	slices.Sort(members)
	c.data, c.ensemble = c.settings["dataDir"], strings.Join(members, " ")
	if c.ensemble == "" {
		c.ensemble = c.data
	}
	tick, err := strconv.Atoi(c.settings["tickTime"])
	if err != nil {
		return zooCfg{}, fmt.Errorf("%s: tickTime: %w", path, err)
	}
	c.tick = time.Duration(tick) * time.Millisecond
	return c, nil
}

// difference is a test of others that does not pass here, by intention.
type difference struct{ test, why string }

// judge compares what came of each test with what is expected: everything passes but the
// differences, and a difference that passes is none any more. Their tests give a server
// so and so many seconds: what a busy machine has failed is run again, alone.
func judge(t *testing.T, outcome map[string]string, expected []difference, alone func(test string) string) {
	t.Helper()
	differs := func(test string) bool {
		return slices.ContainsFunc(expected, func(d difference) bool { return d.test == test })
	}
	for test, what := range outcome {
		for range 2 {
			if what == "passed" || what == "skipped" || differs(test) {
				break
			}
			t.Logf("%s %s, and is run again", test, what)
			what = alone(test)
			outcome[test] = what
		}
	}
	passed := 0
	for test, what := range outcome {
		i := slices.IndexFunc(expected, func(d difference) bool { return d.test == test })
		switch {
		case what == "skipped":
			t.Logf("%s skips itself", test)
		case i < 0 && what != "passed":
			t.Errorf("%s %s", test, what)
		case i >= 0 && what == "passed":
			t.Errorf("%s passes, but is listed as a difference: %s", test, expected[i].why)
		case what == "passed":
			passed++
		}
	}
	for _, d := range expected {
		if outcome[d.test] == "" {
			t.Errorf("%s is listed as a difference and did not run", d.test)
		}
	}
	t.Logf("%d passed, %d differ by intention", passed, len(expected))
}
