//go:build !nobench

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/serving"
)

// The benchmark of a swap against a model server of this binary, at the least size.
func TestBenchSwap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: memory is read in /proc, which is of Linux")
	}
	t.Setenv(binaryEnv, "1") // the children of this process are monolith
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{serving.SwapRipple([]serving.SwapCase{{Rows: 4000, Dim: 8, Changed: 0.05, Rate: 100, LoadRate: 1 << 20, Quiet: 200 * time.Millisecond, Rounds: 2}})})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 3 || !strings.HasSuffix(got[2].Name, " memory") { // those of a Triton that is installed come behind
		t.Errorf("%+v", got)
	}
}

// A model server that is killed while it reads the next version of its shard serves one of the two when it
// comes back, and every answer on the way is whole: all rows of one version.
func TestKilledWhileVersionsChange(t *testing.T) {
	w := startSwaps(t)
	w.export(1)
	server := w.start(0)
	w.until(1)
	for round := range int64(5) {
		server.kill()
		server = w.start(1 << 20) // an export takes about a second
		w.until(round + 1)
		w.export(round + 2)
		// It is killed somewhere within.
		for end := time.Now().Add(time.Duration(150+250*round) * time.Millisecond); time.Now().Before(end); {
			if got, err := w.answered(); err != nil || got != round+1 && got != round+2 {
				t.Fatalf("round %d: version %d answers, %v", round, got, err)
			}
		}
		server.kill()
		if round == 2 { // what a copy left half done
			if err := os.Truncate(filepath.Join(w.base, strconv.FormatInt(round+2, 10), "table-00000.tfrecord"), 1000); err != nil {
				t.Fatal(err)
			}
			server = w.start(0)
			wait.Until(t, "the broken version to be refused", func() error {
				if said := server.err.String(); !strings.Contains(said, "corrupt") {
					return fmt.Errorf("it says %q", tail(said))
				}
				return nil
			})
			server.kill()
			w.export(round + 2)
		}
		server = w.start(0)
		w.until(round + 2)
	}
}

const swapRows, swapDim = 20_000, 8

// swaps is the base path of a shard whose versions differ in every twentieth row, which is of the version's number.
type swaps struct {
	*testing.T
	base, addr string
	conn       *grpc.ClientConn
	ids        []int64 // those rows'
}

func startSwaps(t *testing.T) *swaps {
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	w := &swaps{T: t, base: filepath.Join(t.TempDir(), "ps_0"), addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if w.conn, err = grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close() })
	for id := int64(0); id < swapRows; id += 20 {
		w.ids = append(w.ids, id)
	}
	return w
}

func (w *swaps) export(version int64) {
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shards: 1}, Tables: map[string][]table.Row{}}
	for id := range int64(swapRows) {
		x := float32(0)
		if id%20 == 0 {
			x = float32(version)
		}
		s.Tables["t"] = append(s.Tables["t"], table.Row{ID: id, Values: slices.Repeat([]float32{x}, swapDim)})
	}
	if _, err := checkpoint.WriteShard(filepath.Join(w.base, strconv.FormatInt(version, 10)), s); err != nil {
		w.Fatal(err)
	}
}

func (w *swaps) start(rate int) *child {
	return startChild(w, "modelserver", "--model_name=ps_0", "--model_base_path="+w.base, "--grpc="+w.addr, "--http=127.0.0.1:0", "--poll-interval=20ms", "--linger=100ms", "--load-rate="+strconv.Itoa(rate))
}

// answered is the version that answers, with its rows and no others.
func (w *swaps) answered() (int64, error) {
	ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
	defer cancel()
	spec := tfserving.Spec("ps_0", 0)
	spec.SignatureName = "lookup"
	var res apis.PredictResponse
	req := &apis.PredictRequest{ModelSpec: spec, Inputs: map[string]*tfserving.TensorProto{"t": tfserving.NewInt64(w.ids)}}
	if err := w.conn.Invoke(ctx, "/"+tfserving.PredictionService+"/Predict", req, &res, grpc.WaitForReady(true)); err != nil {
		return 0, err
	}
	version := res.GetModelSpec().GetVersion().GetValue()
	got, err := tfserving.Floats(nil, res.GetOutputs()["t"], len(w.ids)*swapDim)
	if err != nil || len(got) != len(w.ids)*swapDim {
		w.Fatalf("%d numbers, %v", len(got), err)
	}
	for i, x := range got {
		if x != float32(version) {
			w.Fatalf("version %d answers row %d with %v", version, w.ids[i/swapDim], x)
		}
	}
	return version, nil
}

func (w *swaps) until(want int64) {
	w.Helper()
	wait.Until(w.T, fmt.Sprintf("version %d", want), func() error {
		got, err := w.answered()
		if err == nil && got != want {
			err = fmt.Errorf("version %d answers", got)
		}
		return err
	})
}
