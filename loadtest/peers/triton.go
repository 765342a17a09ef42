package peers

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/wire/inferencepb"
)

//go:embed triton/model.py
var tritonModel []byte

const (
	tritonName = "rows"
	tritonRows = "all.rows" // the file, in the repository
)

// Triton is a Triton inference server of this process's own on loopback, without a GPU. Its one model,
// in the Python backend, reads a file into memory, each version anew, and looks rows of it up.
type Triton struct {
	dir       string // the model repository
	dim       int
	version   int
	cmd       *exec.Cmd
	out       bytes.Buffer  // read once the process has ended
	done      chan struct{} // closed then
	http      string
	transport *http.Transport
	conn      *grpc.ClientConn
	infer     inferencepb.GRPCInferenceServiceClient
}

// StartTriton serves what write writes, float32 of which dim make a row, as version 1.
func StartTriton(ctx context.Context, dim int, write func(io.Writer) error) (_ *Triton, err error) {
	found, err := filepath.Glob(filepath.Join(Dir(), "triton", "lib", "python3*", "site-packages"))
	if err != nil || len(found) != 1 || Dir() == "" {
		return nil, errors.Join(fmt.Errorf("triton: %w", ErrMissing), err)
	}
	most, err := patience()
	if err != nil {
		return nil, err
	}
	ports := make([]int, 2)
	for i := range ports {
		if ports[i], err = freeport.Find(); err != nil {
			return nil, err
		}
	}
	t := &Triton{dim: dim, done: make(chan struct{}), transport: &http.Transport{}, http: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))}
	if t.dir, err = os.MkdirTemp("", "monolith-triton-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	rows, err := os.Create(filepath.Join(t.dir, tritonRows))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(write(rows), rows.Close(), t.publish()); err != nil {
		return nil, err
	}
	home := filepath.Join(found[0], "pytriton", "tritonserver")
	t.cmd = exec.CommandContext(ctx, filepath.Join(home, "bin", "tritonserver"), "--model-repository="+t.dir, "--backend-directory="+filepath.Join(home, "backends"),
		"--model-control-mode=explicit", "--load-model="+tritonName, "--allow-metrics=false", "--exit-timeout-secs=10",
		"--http-address=127.0.0.1", "--http-port="+strconv.Itoa(ports[0]), "--grpc-address=127.0.0.1", "--grpc-port="+strconv.Itoa(ports[1]))
	t.cmd.Env = append(os.Environ(), "PATH="+filepath.Join(Dir(), "triton", "bin")+":"+os.Getenv("PATH"), "PYTHONPATH="+found[0])
	t.cmd.Stdout, t.cmd.Stderr, t.cmd.WaitDelay = &t.out, &t.out, 15*time.Second
	t.cmd.Cancel = func() error { return t.cmd.Process.Signal(syscall.SIGTERM) } // so that it ends its backend
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("triton: %w", err)
	}
	go func() {
		defer close(t.done)
		_ = t.cmd.Wait() // how it ended is in out
	}()
	if t.conn, err = grpc.NewClient(net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1])), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	t.infer = inferencepb.NewGRPCInferenceServiceClient(t.conn)
	return t, t.ready(ctx, most)
}

// ready returns once the model answers.
func (t *Triton) ready(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		_, err := t.Lookup(ctx, []int64{0})
		if err == nil {
			return nil
		}
		select {
		case <-t.done:
			said := t.out.String()
			return fmt.Errorf("triton has ended: …%s", said[max(0, len(said)-500):])
		case <-ctx.Done():
			return fmt.Errorf("triton: %w: %w", ErrSlow, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// publish puts the next version into the repository.
func (t *Triton) publish() error {
	model := filepath.Join(t.dir, tritonName)
	version := filepath.Join(model, strconv.Itoa(t.version+1))
	config := fmt.Sprintf(`name: %q
backend: "python"
input [{ name: "ids" data_type: TYPE_INT64 dims: [-1] }]
output [{ name: "rows" data_type: TYPE_FP32 dims: [-1, %d] }]
instance_group [{ kind: KIND_CPU count: 1 }]
`, tritonName, t.dim)
	if err := errors.Join(os.MkdirAll(version, 0o755), os.WriteFile(filepath.Join(model, "config.pbtxt"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(version, "model.py"), tritonModel, 0o600), os.Symlink(filepath.Join("..", "..", tritonRows), filepath.Join(version, "rows"))); err != nil {
		return err
	}
	t.version++
	return nil
}

// Version is the newest that was published.
func (t *Triton) Version() int64 { return int64(t.version) }

// Reload publishes the same rows as the next version, has the server load it and returns once it is loaded.
// The server lets the version before go then.
func (t *Triton) Reload(ctx context.Context) error {
	if err := t.publish(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.http+"/v2/repository/models/"+tritonName+"/load", http.NoBody)
	if err != nil {
		return err
	}
	res, err := t.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(res.Body, 1000))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("triton does not load version %d: %s: %s", t.version, res.Status, said)
	}
	return nil
}

// Lookup asks for rows, and returns the version that answered.
func (t *Triton) Lookup(ctx context.Context, ids []int64) (version int64, err error) {
	raw := make([]byte, 8*len(ids))
	for i, id := range ids {
		binary.LittleEndian.PutUint64(raw[8*i:], uint64(id))
	}
	res, err := t.infer.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: tritonName,
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "ids", Datatype: "INT64", Shape: []int64{int64(len(ids))}}},
		RawInputContents: [][]byte{raw}})
	if err != nil {
		return 0, err
	}
	if out := res.GetRawOutputContents(); len(out) != 1 || len(out[0]) != 4*t.dim*len(ids) {
		return 0, fmt.Errorf("triton answered %d ids with %d tensors of a wrong size", len(ids), len(out))
	}
	return strconv.ParseInt(res.GetModelVersion(), 10, 64)
}

// Processes are the server's and those of its Python backend.
func (t *Triton) Processes() ([]int, error) {
	all := []int{t.cmd.Process.Pid}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[0]))
	if err != nil || len(threads) == 0 {
		return nil, errors.Join(errors.New("the processes of triton are found in /proc, which is of Linux"), err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // a thread that has ended
		}
		if err != nil {
			return nil, err
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return nil, err
			}
			all = append(all, pid)
		}
	}
	return all, nil
}

// Close ends the server.
func (t *Triton) Close() error {
	t.transport.CloseIdleConnections()
	var err error
	if t.conn != nil {
		err = t.conn.Close()
	}
	if t.cmd != nil && t.cmd.Process != nil {
		if serr := t.cmd.Process.Signal(syscall.SIGTERM); !errors.Is(serr, os.ErrProcessDone) {
			err = errors.Join(err, serr)
		}
		kill := time.AfterFunc(30*time.Second, func() { _ = t.cmd.Process.Kill() })
		<-t.done
		kill.Stop()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}
