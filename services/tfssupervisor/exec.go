package tfssupervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/process/child"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// addrFilePlace stands for the address file's path in a command line; where it does not
// occur, "--addr-file PATH" is put at the end.
const addrFilePlace = "{addr_file}"

// maxAddrFile bounds what is read of an address file.
const maxAddrFile = 64 << 10

// addrFile is where a server says that it listens, so that it can choose free ports.
type addrFile struct {
	PID  int    `json:"pid"`
	GRPC string `json:"grpc"`
	HTTP string `json:"http"`
	Rows string `json:"rows"`
	TLS  bool   `json:"tls"` // of gRPC
}

// WriteAddrFile is the server's part of an exec launch: it says, atomically, where this
// process listens. Call it once the server is ready.
func WriteAddrFile(path, grpc, http, rows string, secure bool) error {
	raw, err := json.Marshal(addrFile{PID: os.Getpid(), GRPC: grpc, HTTP: http, Rows: rows, TLS: secure})
	if err != nil {
		return err
	}
	// It outlives no reboot, so it needs no fsync: only a reader must not see half of it.
	if err := durable.Swap(path, 0o600, raw); err != nil {
		return fmt.Errorf("write address file: %w", err)
	}
	return nil
}

func parseAddrFile(raw []byte) (addrFile, error) {
	var a addrFile
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("address file: %w", err)
	}
	for key, addr := range map[string]string{"grpc": a.GRPC, "http": a.HTTP} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return a, fmt.Errorf("address file: %q is not host:port under %q: %w", addr, key, err)
		}
	}
	if a.Rows != "" {
		if _, _, err := rowwire.SplitAddr(a.Rows); err != nil {
			return a, fmt.Errorf("address file: %w", err)
		}
	}
	return a, nil
}

// execLauncher starts the server as a child process.
type execLauncher struct {
	command  []string
	env      []string
	dir      string // of the address file
	work     string
	log      string // "": where this process writes
	logBytes int64
	grpc     int // port that says that it is ready; 0: the address file does
	http     int
}

// NewExecLauncher starts cfg.Command as a child that dies with this process, in a process
// group of its own, all of which is killed with it. It is ready once it has written its
// address file; its output is appended to modelserver.log in cfg.Dir.
func NewExecLauncher(cfg Config) (Launcher, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Command) == 0 {
		return nil, errors.New("tfssupervisor: the command of the model server is empty; give --command")
	}
	dir := cfg.Dir
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "monolith-"+strings.Map(plain, cfg.Container))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("tfssupervisor: --server-dir: %w", err)
	}
	l := &execLauncher{command: slices.Concat(cfg.Command, cfg.ServerArgs), env: cfg.ServerEnv, dir: dir, work: cmp.Or(cfg.WorkDir, dir),
		log: cmp.Or(cfg.LogFile, filepath.Join(dir, "modelserver.log")), logBytes: cfg.LogBytes, grpc: cfg.GRPCPort, http: cfg.HTTPPort}
	if cfg.LogInherited {
		l.log = ""
	}
	return l, nil
}

// plain keeps what any file system takes in a name.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
		return r
	}
	return '_'
}

// args is the command line for one address file.
func args(command []string, path string) []string {
	out, placed := make([]string, 0, len(command)+2), false
	for _, a := range command {
		if strings.Contains(a, addrFilePlace) {
			a, placed = strings.ReplaceAll(a, addrFilePlace, path), true
		}
		out = append(out, a)
	}
	if !placed {
		out = append(out, "--addr-file", path)
	}
	return out
}

func (l *execLauncher) Start(ctx context.Context) (Server, error) {
	if err := os.MkdirAll(l.dir, 0o750); err != nil {
		return Server{}, fmt.Errorf("make the model server's folder: %w", err)
	}
	path := filepath.Join(l.dir, "addr.json")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Server{}, fmt.Errorf("remove the last address file: %w", err)
	}
	argv := l.command
	if l.grpc == 0 {
		argv = args(l.command, path)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.work, append(os.Environ(), l.env...)
	cmd.WaitDelay = time.Second
	child.OwnGroup(cmd)
	out, err := l.output()
	if err != nil {
		return Server{}, fmt.Errorf("open the model server's log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = out, out

	running, err := child.Start(cmd, func() {
		_ = child.SignalGroup(cmd, syscall.SIGKILL) // whom it has started and left behind
		_ = out.Close()
	})
	if err != nil {
		_ = out.Close()
		return Server{}, fmt.Errorf("start %s: %w", argv[0], err)
	}
	kill := func() { _ = child.SignalGroup(cmd, syscall.SIGKILL) } // fails only once it has ended
	a, err := l.await(ctx, path, running.Ended())
	if err != nil {
		kill()
		return Server{}, fmt.Errorf("%s (its output is in %s): %w", argv[0], cmp.Or(l.log, "this process's own"), errors.Join(err, running.Wait()))
	}
	return Server{
		GRPCAddr: a.GRPC, HTTPAddr: a.HTTP, RowsAddr: a.Rows, Secure: a.TLS, PID: cmd.Process.Pid, Command: argv,
		Wait: running.Wait,
		Kill: kill,
		Stop: func() { _ = child.SignalGroup(cmd, syscall.SIGTERM) },
	}, nil
}

// output is where the server writes.
func (l *execLauncher) output() (io.WriteCloser, error) {
	if l.log == "" {
		return stdout{}, nil
	}
	return openLog(l.log, l.logBytes)
}

// stdout is this process's own, which stays open.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdout) Close() error                { return nil }

// await waits until the server says where it listens, or answers on the port that it was given.
func (l *execLauncher) await(ctx context.Context, path string, ended <-chan struct{}) (addrFile, error) {
	if l.grpc == 0 {
		return awaitAddrFile(ctx, path, ended)
	}
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ended:
			return addrFile{}, fmt.Errorf("it ended before it answered on port %d", l.grpc)
		case <-ctx.Done():
			return addrFile{}, fmt.Errorf("it did not answer on port %d in time: %w", l.grpc, ctx.Err())
		}
		dial := net.Dialer{Timeout: time.Second}
		if conn, err := dial.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(l.grpc))); err == nil {
			return addrFile{GRPC: net.JoinHostPort("", strconv.Itoa(l.grpc)), HTTP: net.JoinHostPort("", strconv.Itoa(l.http))}, conn.Close()
		}
	}
}

func awaitAddrFile(ctx context.Context, path string, ended <-chan struct{}) (addrFile, error) {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		if st, err := os.Stat(path); err == nil {
			if st.Size() > maxAddrFile {
				return addrFile{}, fmt.Errorf("address file has %d bytes, at most %d are read", st.Size(), maxAddrFile)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return addrFile{}, fmt.Errorf("address file: %w", err)
			}
			return parseAddrFile(raw)
		}
		select {
		case <-t.C:
		case <-ended:
			return addrFile{}, errors.New("it ended before it wrote its address file")
		case <-ctx.Done():
			return addrFile{}, fmt.Errorf("it wrote no address file in time: %w", ctx.Err())
		}
	}
}
