// Package zookeeper runs Apache's ZooKeeper server as Debian packages it, alone or as an
// ensemble on this machine: the counterpart of tests, and the peer of measurements.
package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/freeport"
)

// Classes is where Debian's package puts the jars, as Java's class path.
const Classes = "/usr/share/java/*"

const (
	jar    = "/usr/share/java/zookeeper.jar"
	main   = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
	within = 6 * time.Minute  // until a server answers: its beginning is work for a processor that others share
	grace  = 10 * time.Second // until one that was asked to stop is killed
)

// Installed says whether the server is there to be run.
func Installed() bool {
	_, err := os.Stat(jar)
	return err == nil
}

// Config is one server's; zero fields take the default named.
type Config struct {
	Dir  string        // holds its configuration and its data; the caller's
	Tick time.Duration // unit of its time-outs: sessions last 2 to 20; default 2 s
	// MaxSession is how long sessions may last. Default: 20 ticks.
	MaxSession time.Duration
	// Java are flags of the virtual machine. Default: none, it takes a quarter of the
	// memory at most.
	Java []string
	// TLS has the server listen on a second port for clients that show a certificate of
	// the same authorities. Default: none.
	TLS mtls.Files
}

// Server is one server, alone or a member of an ensemble. Its methods belong to one
// goroutine.
type Server struct {
	conf   string // file
	data   string
	addr   string
	secure string
	java   []string

	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
	said *output
}

// Start runs a server that is alone, with fsync before each answer, which is its
// default, and returns once it answers.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := configure(cfg, "")
	if err != nil {
		return nil, err
	}
	_, err = s.Start(ctx)
	return s, err
}

// StartEnsemble runs as many servers as there are configurations, which elect a leader
// among themselves, and returns once all of them answer.
func StartEnsemble(ctx context.Context, cfgs ...Config) ([]*Server, error) {
	var members bytes.Buffer
	members.WriteString("initLimit=20\nsyncLimit=4\n")
	for i := range cfgs {
		quorum, err := freeport.Find()
		if err != nil {
			return nil, err
		}
		election, err := freeport.Find()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&members, "server.%d=127.0.0.1:%d:%d\n", i+1, quorum, election)
	}
	var all []*Server
	stop := func(err error) error {
		for _, s := range all {
			s.Kill()
		}
		return err
	}
	for i, cfg := range cfgs {
		s, err := configure(cfg, members.String())
		if err == nil {
			err = os.WriteFile(filepath.Join(s.data, "myid"), fmt.Appendln(nil, i+1), 0o600)
		}
		if err == nil {
			err = s.launch()
		}
		if err != nil {
			return nil, stop(err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		if err := s.await(ctx); err != nil {
			return nil, stop(err)
		}
	}
	return all, nil
}

// configure writes the server's files.
func configure(cfg Config, members string) (*Server, error) {
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	if cfg.Tick == 0 {
		cfg.Tick = 2 * time.Second
	}
	s := &Server{
		conf: filepath.Join(cfg.Dir, "zoo.cfg"), data: filepath.Join(cfg.Dir, "data"), addr: loopback(port), java: cfg.Java,
	}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return nil, err
	}
	conf := fmt.Appendf(nil, "tickTime=%d\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n%s",
		cfg.Tick.Milliseconds(), s.data, port, members)
	if cfg.MaxSession > 0 {
		conf = fmt.Appendf(conf, "maxSessionTimeout=%d\n", cfg.MaxSession.Milliseconds())
	}
	if cfg.TLS != (mtls.Files{}) {
		secure, err := freeport.Find()
		if err != nil {
			return nil, err
		}
		keys := filepath.Join(cfg.Dir, "keys.pem")
		if err := writeKeys(keys, cfg.TLS); err != nil {
			return nil, err
		}
		s.secure = loopback(secure)
		conf = fmt.Appendf(conf, "secureClientPort=%d\nsecureClientPortAddress=127.0.0.1\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"+
			"ssl.keyStore.location=%s\nssl.keyStore.type=PEM\nssl.trustStore.location=%s\nssl.trustStore.type=PEM\nssl.clientAuth=need\n", secure, keys, cfg.TLS.CA)
	}
	return s, os.WriteFile(s.conf, conf, 0o600)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr is where clients connect.
func (s *Server) Addr() string { return s.addr }

// SecureAddr is where clients with a certificate connect, "" when there is no such port.
func (s *Server) SecureAddr() string { return s.secure }

// PID is of the process that runs now.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Start runs the server again on the data that it has, and returns how long it took
// until it answered.
func (s *Server) Start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := s.launch(); err != nil {
		return 0, err
	}
	return time.Since(began), s.await(ctx)
}

func (s *Server) launch() error {
	args := append([]string{}, s.java...)
	s.cmd = exec.Command("java", append(args, "-cp", Classes, main, s.conf)...)
	s.said = &output{}
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start Apache ZooKeeper: %w", err)
	}
	s.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait() // it is killed, or its output says why it ended
		close(gone)
	}(s.cmd, s.gone)
	return nil
}

// await returns once the server answers, and kills it when it does not.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.Serves() {
		select {
		case <-s.gone:
			return fmt.Errorf("process of Apache ZooKeeper ended (%s): %s", s.cmd.ProcessState, s.said)
		case <-ctx.Done():
			s.Kill()
			return fmt.Errorf("server of Apache ZooKeeper does not answer at %s: %w\n%s", s.addr, ctx.Err(), s.said)
		case <-tick.C:
		}
	}
	return nil
}

// Stop ends the process in the orderly way.
func (s *Server) Stop() error {
	select {
	case <-s.gone:
		return nil
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.gone:
	case <-time.After(grace):
		s.Kill()
	}
	return nil
}

// Close ends it; its folder is the caller's.
func (s *Server) Close() error { return s.Stop() }

// Kill ends the process at once, as a crash would, and waits until it is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // already gone is as good
	<-s.gone
}

// Freeze stops the process without closing anything: to clients and to the other members
// it is as if the network had swallowed it. Thaw lets it go on.
func (s *Server) Freeze() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw is Freeze's end.
func (s *Server) Thaw() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Wipe removes the data of a server that was killed: restarted, it knows nothing.
func (s *Server) Wipe() error { return os.RemoveAll(filepath.Join(s.data, "version-2")) }

// Serves is false while the server takes connections and no requests, as a member does
// that has no leader: requests of that moment may be lost.
func (s *Server) Serves() bool {
	return bytes.HasPrefix([]byte(FourLetters(s.addr, "srvr")), []byte("Zookeeper version"))
}

// FourLetters asks the server at addr one of its words; "" when it does not answer.
func FourLetters(addr, word string) string {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	if c.SetDeadline(time.Now().Add(5*time.Second)) != nil {
		return ""
	}
	if _, err := c.Write([]byte(word)); err != nil {
		return ""
	}
	said, _ := io.ReadAll(c) // what came before an error counts
	return string(said)
}

// output is what the process says.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
