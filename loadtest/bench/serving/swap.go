package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// SwapCase is a shard of so many rows, of which a part is other in its next version.
type SwapCase struct {
	Rows, Dim int
	Changed   float64 // of the rows
	LoadRate  int64   // bytes of export files a second
	Rate      float64 // lookups a second
	Quiet     time.Duration
	Rounds    int
	Target    float64 // of p99 and memory
}

// SwapCases are those of a full run: 2 GiB of weights.
var SwapCases = []SwapCase{{Rows: 8 << 20, Dim: 64, Changed: 0.05, LoadRate: 64 << 20, Rate: askRate, Quiet: 5 * time.Second, Rounds: 1, Target: 1.05}}

// linger is how long the server keeps a version that has been replaced.
const linger = 500 * time.Millisecond

// SwapRipple measures lookups at a model server, a process of its own, and its memory, while it takes the
// next version of its shard, against the same at rest; then the same of Triton, where it is installed.
func SwapRipple(cases []SwapCase) bench.Benchmark {
	return bench.Benchmark{Name: "swap-ripple", About: "lookups at a model server and its memory while it changes version, against the same at rest", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, sc := range cases {
			if err := swapCase(ctx, r, sc); err != nil {
				return err
			}
		}
		return nil
	}}
}

func swapCase(ctx context.Context, r *bench.Runner, sc SwapCase) (err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for version := range 2 {
		r.Say("  version %d of %d rows of %d is written", version+1, sc.Rows, sc.Dim)
		if err := sc.export(filepath.Join(dir, fmt.Sprint("next", version)), version); err != nil {
			return err
		}
	}
	if err := ownSwap(ctx, r, sc, dir); err != nil {
		return err
	}
	return tritonSwap(ctx, r, sc)
}

// ownSwap measures our model server with two exports in dir.
func ownSwap(ctx context.Context, r *bench.Runner, sc SwapCase, dir string) (err error) {
	s := &swapped{SwapCase: sc, base: filepath.Join(dir, "ps_0"), next: []string{filepath.Join(dir, "next0"), filepath.Join(dir, "next1")}}
	if err := os.Mkdir(s.base, 0o755); err != nil {
		return err
	}
	if err := s.publish(); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return r.Compare(ctx, sc.comparison(fmt.Sprintf("changed=%g%%", sc.Changed*100), sc.Target, s.swap, s.rest))
}

// comparison is of a server that swaps with itself at rest.
func (sc SwapCase) comparison(what string, target float64, swap, rest bench.Pass) bench.Comparison {
	return bench.Comparison{
		Name: fmt.Sprintf("swap-ripple/MiB=%d,%s", int64(sc.Rows)*int64(sc.Dim)*4>>20, what), Baseline: "at rest", Rounds: sc.Rounds,
		Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: target},
			{Name: "memory", Unit: "MiB", Better: bench.Lower, Target: target}},
		Ours: swap, Peer: rest,
	}
}

// export writes a version. Rows share a few vectors, so that writing takes little memory.
func (sc SwapCase) export(dir string, version int) error {
	vectors := make([][]float32, 1024)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range vectors {
		for range sc.Dim {
			vectors[i] = append(vectors[i], rng.Float32())
		}
	}
	all := make([]table.Row, sc.Rows)
	for i := range all {
		from := i
		if float64(i%1000) < 1000*sc.Changed {
			from += version
		}
		all[i] = table.Row{ID: rowID(i), Values: vectors[from%len(vectors)]}
	}
	_, err := checkpoint.WriteShard(dir, &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "bench", Shards: 1}, Tables: map[string][]table.Row{tableName: all}})
	return err
}

// swapped is a model server by itself, and the two exports that it is given in turns.
type swapped struct {
	SwapCase
	base    string
	next    []string // exports that are not in base, by the number that is even or odd
	version int      // the newest in base

	cmd    *exec.Cmd
	conn   *grpc.ClientConn
	answer atomic.Int64 // the version that answered last
}

// publish puts the next version into the base path.
func (s *swapped) publish() error {
	number := s.version + 1
	to := filepath.Join(s.base, strconv.Itoa(number))
	from := s.next[(number-1)%2]
	if err := os.Rename(from, to); err != nil {
		return err
	}
	s.next[(number-1)%2] = to
	s.version = number
	return nil
}

func (s *swapped) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary to start a server from: %w", err)
	}
	port, err := freeport.Find()
	if err != nil {
		return err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.cmd = exec.Command(self, "modelserver", "--model_name=ps_0", "--model_base_path="+s.base, "--grpc="+addr, "--http=127.0.0.1:0", "--linger="+linger.String(),
		"--load-rate="+strconv.FormatInt(s.LoadRate, 10), "--poll-interval=100ms")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if s.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))); err != nil {
		return errors.Join(err, s.stop())
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.ask(ctx, 0)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for the model server: %w", err), s.stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *swapped) stop() error {
	var err error
	if s.conn != nil {
		err = s.conn.Close()
	}
	err = errors.Join(err, s.cmd.Process.Signal(syscall.SIGTERM))
	defer time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() }).Stop()
	return errors.Join(err, s.cmd.Wait())
}

// ask looks rows up as the original's entry does.
func (s *swapped) ask(ctx context.Context, n int) error {
	rng := rand.New(rand.NewPCG(9, uint64(n)))
	ids := make([]int64, askIDs)
	for i := range ids {
		ids[i] = rowID(rng.IntN(s.Rows))
	}
	spec := tfserving.Spec("ps_0", 0)
	spec.SignatureName = "lookup"
	req := &apis.PredictRequest{ModelSpec: spec, Inputs: map[string]*tfserving.TensorProto{tableName: tfserving.NewInt64(ids)}}
	var res apis.PredictResponse
	if err := s.conn.Invoke(ctx, "/"+tfserving.PredictionService+"/Predict", req, &res); err != nil {
		return err
	}
	s.answer.Store(res.GetModelSpec().GetVersion().GetValue())
	return nil
}

// rest asks for a while.
func (s *swapped) rest(ctx context.Context) ([]float64, error) {
	within, cancel := context.WithTimeout(ctx, s.Quiet)
	defer cancel()
	return measure(within, s.Rate, s.memory, s.ask)
}

func (s *swapped) memory() (int64, error) { return resident(s.cmd.Process.Pid) }

// swap asks from when the next version appears until a little after the server has let the one before go.
func (s *swapped) swap(ctx context.Context) ([]float64, error) {
	if err := s.publish(); err != nil {
		return nil, err
	}
	return swapTo(ctx, int64(s.version), &s.answer, s.Rate, s.memory, s.ask)
}

// swapTo measures until a little after version number has answered, which must then be the one that answers.
func swapTo(ctx context.Context, number int64, answer *atomic.Int64, rate float64, memory func() (int64, error), ask func(context.Context, int) error) ([]float64, error) {
	within, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	go func() { // ends with within
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-tick.C:
				if answer.Load() < number {
					continue
				}
				time.AfterFunc(4*linger, cancel)
			case <-within.Done():
			}
			tick.Stop()
			return
		}
	}()
	got, err := measure(within, rate, memory, ask)
	if err == nil && answer.Load() != number {
		err = fmt.Errorf("the server answers by version %d, not by %d", answer.Load(), number)
	}
	return got, err
}

// measure asks until ctx ends, and returns the percentiles and the most memory that the server had.
func measure(ctx context.Context, rate float64, memory func() (int64, error), ask func(context.Context, int) error) ([]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type seen struct {
		most int64
		err  error
	}
	watched := make(chan seen, 1)
	go func() {
		var m seen
		for tick := time.NewTicker(20 * time.Millisecond); m.err == nil; {
			var now int64
			now, m.err = memory()
			m.most = max(m.most, now)
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
			}
			tick.Stop()
			break
		}
		watched <- m
	}()
	res, err := asked(ctx, rate, ask)
	cancel()
	m := <-watched
	if err := errors.Join(err, m.err); err != nil {
		return nil, err
	}
	return []float64{float64(res.P50), float64(res.P99), float64(m.most) / (1 << 20)}, nil
}
