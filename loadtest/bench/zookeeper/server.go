package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// Command is the subcommand that benchmarks run as a process of its own.
const Command = "bench-zookeeper"

const ready = "ready\n" // what a process of Serve says

const (
	startPatience = time.Minute
	startPoll     = 2 * time.Millisecond
)

// registryHost is NATS, fsync before ack, and a replica-registry with its ZooKeeper port: as
// much of `monolith up` as a ZooKeeper client needs.
type registryHost struct {
	nats *natsserver.Server
	bus  *jetstream.Bus
	stop context.CancelFunc
	done *errgroup.Group
}

func startHost(ctx context.Context, dir, addr string) (_ *registryHost, err error) {
	const bzid = "bench"
	h := &registryHost{done: new(errgroup.Group)}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	logger, err := (&connect.Config{Level: "warn"}).Logger()
	if err != nil {
		return nil, err
	}
	if h.nats, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats"), Log: logger}); err != nil {
		return nil, err
	}
	if h.bus, err = jetstream.Connect(ctx, jetstream.Config{Server: h.nats, BZID: bzid}); err != nil {
		return nil, err
	}
	role, err := replicaregistry.New(replicaregistry.Config{ZKListen: addr, SnapshotDir: filepath.Join(dir, "snapshots")}, services.Env{
		BZID: bzid, Bus: h.bus, Log: logger, Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer(bzid)})
	if err != nil {
		return nil, err
	}
	h.done.Go(func() error { return role.Run(run) })
	return h, await(ctx, addr, nil)
}

// Close ends the role, which writes a last snapshot, then the log.
func (h *registryHost) Close() error {
	h.stop()
	err := h.done.Wait()
	if h.bus != nil {
		err = errors.Join(err, h.bus.Close())
	}
	if h.nats != nil {
		err = errors.Join(err, h.nats.Close())
	}
	return err
}

// await returns once the server at addr takes writes, or gone is closed.
func await(ctx context.Context, addr string, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if takesWrites(addr) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the ZooKeeper port at %s takes no writes: %w", addr, ctx.Err())
		case <-gone:
			return fmt.Errorf("the server at %s has ended", addr)
		case <-time.After(startPoll):
		}
	}
}

// takesWrites asks as ZooKeeper's own tools do.
func takesWrites(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	if c.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := io.WriteString(c, "isro"); err != nil {
		return false
	}
	said, _ := io.ReadAll(c) // what came before an error counts
	return string(said) == "rw"
}

// Serve is the process beside which Apache's is measured: it serves the ZooKeeper
// port at addr until ctx ends, and says on w that it is ready.
func Serve(ctx context.Context, dir, addr string, w io.Writer) error {
	h, err := startHost(ctx, dir, addr)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, ready); err != nil {
		return errors.Join(err, h.Close())
	}
	host.KeepHeapSmall(ctx)
	<-ctx.Done()
	return h.Close()
}

// process is a server of this benchmark: a child process, or, with host, this one.
type process struct {
	dir, addr string
	here      bool
	host      *registryHost
	cmd       *exec.Cmd
}

// Start runs one, as [StartFunc] says.
func Start(ctx context.Context, dir string, here bool) (Server, error) {
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	z := &process{dir: dir, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), here: here}
	if _, err := z.Start(ctx); err != nil {
		return nil, errors.Join(err, z.Close())
	}
	return z, nil
}

func (z *process) Addr() string { return z.addr }

func (z *process) PID() int {
	if z.cmd != nil {
		return z.cmd.Process.Pid
	}
	return os.Getpid()
}

func (z *process) Start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if z.here {
		host, err := startHost(ctx, z.dir, z.addr)
		z.host = host
		return time.Since(began), err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this binary to start a server from: %w", err)
	}
	cmd := exec.Command(self, Command, "--dir", z.dir, "--zk-listen", z.addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	z.cmd = cmd
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	said := make([]byte, len(ready))
	if _, err := io.ReadFull(out, said); err != nil {
		return 0, errors.Join(fmt.Errorf("the server's process said nothing: %w", err), z.Stop())
	}
	return time.Since(began), nil
}

func (z *process) Stop() error {
	if z.here {
		host := z.host
		if z.host = nil; host == nil {
			return nil
		}
		return host.Close()
	}
	if z.cmd == nil {
		return nil
	}
	cmd := z.cmd
	z.cmd = nil
	err := cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	defer time.AfterFunc(startPatience, func() { _ = cmd.Process.Kill() }).Stop()
	return errors.Join(err, cmd.Wait())
}

func (z *process) Close() error { return z.Stop() }
