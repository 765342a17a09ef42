// Package peers runs the programs that benchmarks measure beside ours. `make peers`
// installs them; a benchmark whose peer is not there says so and shows ours alone.
package peers

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrMissing is a peer that is not installed.
var ErrMissing = errors.New("peer is not installed: run make peers")

// ErrSlow is a peer that took longer than it is given. It is ended.
var ErrSlow = errors.New("peer took too long and is left out: MONOLITH_PEER_PATIENCE gives it more")

// patience is how long a peer may take to be ready, and for one piece of work: three minutes,
// in which torch compiles, or what $MONOLITH_PEER_PATIENCE says.
func patience() (time.Duration, error) {
	s := os.Getenv("MONOLITH_PEER_PATIENCE")
	if s == "" {
		return 3 * time.Minute, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("MONOLITH_PEER_PATIENCE is %q: give a duration such as 90s", s)
	}
	return d, nil
}

// Dir is where peers are looked for: $MONOLITH_PEERS, or .oracles/peers in the folder
// at hand or one above it.
func Dir() string {
	if dir := os.Getenv("MONOLITH_PEERS"); dir != "" {
		return dir
	}
	at, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		dir := filepath.Join(at, ".oracles", "peers")
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir
		}
		up := filepath.Dir(at)
		if up == at {
			return ""
		}
		at = up
	}
}

//go:embed peer.py
var script []byte

// Peer is a process that does work when it is told to.
type Peer struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs bytes.Buffer
	dir  string // of the script, removed by Close

	patience time.Duration
	gone     bool // died has ended it
}

// Cuckoo starts a libcuckoo table of so many keys.
func Cuckoo(ctx context.Context, keys, threads int) (*Peer, error) {
	return start(ctx, "libcuckoo", "", filepath.Join(Dir(), "cuckoo"), strconv.Itoa(keys), strconv.Itoa(threads))
}

// Torch starts peer.py with PyTorch: gemm or deepfm with their numbers.
func Torch(ctx context.Context, what string, args ...int) (*Peer, error) {
	return python(ctx, "torch", what, args)
}

// TFRA starts peer.py with TensorFlow Recommenders Addons' hash table.
func TFRA(ctx context.Context, keys, dim int) (*Peer, error) {
	return TensorFlow(ctx, "table", keys, dim)
}

// TensorFlow starts peer.py with the TensorFlow that TFRA is installed with: parse with its numbers.
func TensorFlow(ctx context.Context, what string, args ...int) (*Peer, error) {
	return python(ctx, "tfra", what, args)
}

func python(ctx context.Context, env, what string, args []int) (*Peer, error) {
	dir, err := os.MkdirTemp("", "monolith-peer-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "peer.py")
	if err := os.WriteFile(path, script, 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	words := []string{path, what}
	for _, a := range args {
		words = append(words, strconv.Itoa(a))
	}
	p, err := start(ctx, env, dir, filepath.Join(Dir(), env, "bin", "python"), words...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

// start waits until the peer is ready. Ending ctx ends the process.
func start(ctx context.Context, name, dir, path string, args ...string) (*Peer, error) {
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return nil, fmt.Errorf("%s: %w", name, ErrMissing)
	}
	most, err := patience()
	if err != nil {
		return nil, err
	}
	p := &Peer{name: name, cmd: exec.CommandContext(ctx, path, args...), dir: dir, patience: most}
	p.cmd.Stderr = &p.errs
	p.cmd.WaitDelay = 5 * time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	slow := p.watch()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return nil, p.died(err, slow())
		}
		if strings.TrimSpace(line) == "ready" {
			if slow() {
				return nil, p.died(io.EOF, true)
			}
			return p, nil
		}
	}
}

// watch ends the peer when it takes too long. Who calls the function it returns ends the
// watch, and learns whether that has happened.
func (p *Peer) watch() (slow func() bool) {
	t := time.AfterFunc(p.patience, func() { _ = p.cmd.Process.Kill() })
	return func() bool { return !t.Stop() }
}

// Seconds has the peer do n units of what, and returns how long it took.
func (p *Peer) Seconds(what string, n int) (float64, error) {
	if _, err := fmt.Fprintf(p.in, "%s %d\n", what, n); err != nil {
		return 0, p.died(err, false)
	}
	slow := p.watch()
	line, err := p.out.ReadString('\n')
	if late := slow(); err != nil || late {
		return 0, p.died(err, late)
	}
	s, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil || !(s > 0) {
		return 0, fmt.Errorf("%s answered %q, not seconds", p.name, line)
	}
	return s, nil
}

// died explains why the peer answers no more, and ends it.
func (p *Peer) died(err error, slow bool) error {
	p.gone = true
	_ = p.in.Close()
	werr := p.cmd.Wait() // its stderr is whole now
	if slow {
		return errors.Join(fmt.Errorf("%s: %w: more than %v", p.name, ErrSlow, p.patience), p.tidy())
	}
	said := strings.TrimSpace(p.errs.String())
	if len(said) > 500 {
		said = "…" + said[len(said)-500:]
	}
	return fmt.Errorf("%s: %w (%w): %s", p.name, err, werr, said)
}

// Close ends the peer, unless it has ended with an error that was told.
func (p *Peer) Close() error {
	if p.gone {
		return nil
	}
	err := p.in.Close() // it ends at the end of its input
	if werr := p.cmd.Wait(); err == nil {
		err = werr
	}
	return errors.Join(err, p.tidy())
}

// tidy removes the script.
func (p *Peer) tidy() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}
