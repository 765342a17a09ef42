//go:build !nobench

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
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
	got, err := r.Run(t.Context(), []bench.Benchmark{serving.SwapRipple([]serving.SwapCase{{Rows: 4000, Dim: 8, Changed: 0.05, LoadRate: 1 << 20, Quiet: 200 * time.Millisecond, Rounds: 2}})})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || !strings.HasSuffix(got[2].Name, " memory") {
		t.Errorf("%+v", got)
	}
}

// A model server that is killed while it reads the next version of its shard serves one of the two when it
// comes back, and every answer on the way is whole: all rows of one version.
func TestKilledWhileVersionsChange(t *testing.T) {
	const rows, dim = 20_000, 8
	base := filepath.Join(t.TempDir(), "ps_0")
	export := func(version int) {
		s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shards: 1}, Tables: map[string][]table.Row{}}
		for id := range int64(rows) {
			x := float32(0)
			if id%20 == 0 {
				x = float32(version)
			}
			values := make([]float32, dim)
			for i := range values {
				values[i] = x
			}
			s.Tables["t"] = append(s.Tables["t"], table.Row{ID: id, Values: values})
		}
		if _, err := checkpoint.WriteShard(filepath.Join(base, strconv.Itoa(version)), s); err != nil {
			t.Fatal(err)
		}
	}
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	start := func(rate int) *child {
		return startChild(t, "modelserver", "--model_name=ps_0", "--model_base_path="+base, "--grpc="+addr, "--http=127.0.0.1:0", "--poll-interval=20ms", "--linger=100ms", "--load-rate="+strconv.Itoa(rate))
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var ids []int64
	for id := int64(0); id < rows; id += 20 {
		ids = append(ids, id)
	}
	answered := func() (int64, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		spec := tfserving.Spec("ps_0", 0)
		spec.SignatureName = "lookup"
		var res apis.PredictResponse
		err := conn.Invoke(ctx, "/"+tfserving.PredictionService+"/Predict", &apis.PredictRequest{ModelSpec: spec, Inputs: map[string]*tfserving.TensorProto{"t": tfserving.NewInt64(ids)}}, &res, grpc.WaitForReady(true))
		if err != nil {
			return 0, err
		}
		version := res.GetModelSpec().GetVersion().GetValue()
		got, err := tfserving.Floats(nil, res.GetOutputs()["t"], len(ids)*dim)
		if err != nil || len(got) != len(ids)*dim {
			t.Fatalf("%d numbers, %v", len(got), err)
		}
		for i, x := range got {
			if x != float32(version) {
				t.Fatalf("version %d answers row %d with %v", version, ids[i/dim], x)
			}
		}
		return version, nil
	}
	until := func(want int64) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("version %d", want), func() error {
			got, err := answered()
			if err == nil && got != want {
				err = fmt.Errorf("version %d answers", got)
			}
			return err
		})
	}
	export(1)
	server := start(0)
	until(1)
	for round := range 5 {
		server.kill()
		server = start(1 << 20) // an export takes about a second
		until(int64(round + 1))
		export(round + 2)
		// It is killed somewhere within.
		for end := time.Now().Add(time.Duration(150+250*round) * time.Millisecond); time.Now().Before(end); {
			if got, err := answered(); err != nil || got != int64(round+1) && got != int64(round+2) {
				t.Fatalf("round %d: version %d answers, %v", round, got, err)
			}
		}
		server.kill()
		if round == 2 { // what a copy left half done
			if err := os.Truncate(filepath.Join(base, strconv.Itoa(round+2), "table-00000.tfrecord"), 1000); err != nil {
				t.Fatal(err)
			}
			server = start(0)
			wait.Until(t, "the broken version to be refused", func() error {
				if said := server.err.String(); !strings.Contains(said, "corrupt") {
					return fmt.Errorf("it says %q", tail(said))
				}
				return nil
			})
			server.kill()
			export(round + 2)
		}
		server = start(0)
		until(int64(round + 2))
	}
}
