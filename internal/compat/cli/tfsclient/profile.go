package tfsclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

const (
	// dataFiles is how many files profile sends.
	dataFiles = 500
	// randomRequests is how many requests it makes where there are no files.
	randomRequests = 64
	// longest is the longest latency that is told from longer ones, in microseconds.
	longest = int64(time.Hour / time.Microsecond)
)

// measured is what a sender saw, in microseconds.
type measured struct {
	took   *hdrhistogram.Histogram
	errors map[string]int64 // code -> calls
}

func newMeasured() measured {
	return measured{hdrhistogram.New(1, longest, 3), map[string]int64{}}
}

// summary is what profile tells.
type summary struct {
	Count   int64            `json:"count"` // answered
	Seconds float64          `json:"seconds"`
	Avg     float64          `json:"avg_ms"`
	P50     float64          `json:"p50_ms"`
	P99     float64          `json:"p99_ms"`
	Max     float64          `json:"max_ms"`
	QPS     float64          `json:"qps"`
	Errors  map[string]int64 `json:"errors"`
}

// profile has --parallel_num senders ask all servers with the same requests in turns, each
// waiting for its answer.
func (c *client) profile(ctx context.Context, conns []*grpc.ClientConn) error {
	requests, err := c.requests(ctx, conns[0])
	if err != nil {
		return err
	}
	until, cancel := context.WithTimeout(ctx, time.Duration(c.duration)*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var sent atomic.Int64
	seen := make([]measured, c.senders)
	began := time.Now()
	for i := range c.senders {
		seen[i] = newMeasured()
		all.Go(func() { c.send(until, conns, requests, &sent, seen[i]) })
	}
	all.Wait()
	return c.tell(seen, time.Since(began))
}

// send is one sender. A call that the end of the time cuts off does not count.
func (c *client) send(ctx context.Context, conns []*grpc.ClientConn, requests []*apis.PredictRequest, sent *atomic.Int64, seen measured) {
	for ctx.Err() == nil {
		n := sent.Add(1)
		if c.count > 0 && n > int64(c.count) {
			return
		}
		conn := conns[int(n)%len(conns)]
		began := time.Now()
		_, err := ask(ctx, c, conn, tfserving.NewPredictionClient(conn).Predict, requests[int(n)%len(requests)])
		switch {
		case err == nil:
			_ = seen.took.RecordValue(min(max(time.Since(began).Microseconds(), 1), longest)) // within its range
		case ctx.Err() == nil:
			seen.errors[status.Code(errors.Unwrap(err)).String()]++
		}
	}
}

// tell sums the senders up. A run with a failed call, or without an answer, has failed.
func (c *client) tell(seen []measured, took time.Duration) error {
	all := newMeasured()
	failed := int64(0)
	for _, m := range seen {
		all.took.Merge(m.took)
		for code, n := range m.errors {
			all.errors[code] += n
			failed += n
		}
	}
	at := func(p float64) float64 { return float64(all.took.ValueAtPercentile(p)) / 1000 }
	s := summary{
		Count: all.took.TotalCount(), Seconds: took.Seconds(), Avg: all.took.Mean() / 1000, P50: at(50), P99: at(99),
		Max: float64(all.took.Max()) / 1000, Errors: all.errors,
	}
	s.QPS = float64(s.Count) / max(s.Seconds, 1e-9)
	var err error
	if c.asJSON {
		err = json.NewEncoder(c.out).Encode(s)
	} else {
		_, err = fmt.Fprintf(c.out, "[Profile] Count: %d, Avg Latency: %.3f, P99 Latency: %.3f, QPS: %.2f\n", s.Count, s.Avg, s.P99, s.QPS)
	}
	switch {
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("%d of %d calls failed: %v", failed, failed+s.Count, s.Errors)
	case s.Count == 0:
		return errors.New("nothing was answered in the time that there was")
	}
	return nil
}

// requests are those that are sent: one for each file, or random ones.
func (c *client) requests(ctx context.Context, conn *grpc.ClientConn) (all []*apis.PredictRequest, err error) {
	if c.dataDir == "" {
		for range randomRequests {
			req, err := c.request(ctx, conn)
			if err != nil {
				return nil, err
			}
			if all = append(all, req); c.inputFile != "" {
				break
			}
		}
		return all, nil
	}
	paths, err := c.data()
	if err != nil {
		return nil, err
	}
	c.inputType = "example_batch"
	for _, path := range paths {
		key, tensor, err := c.samples(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, &apis.PredictRequest{ModelSpec: c.spec(), Inputs: map[string]*tfserving.TensorProto{key: tensor}})
	}
	return all, nil
}

// data are the files of --profile_data_dir; those that lack to 500 are made. One that a crash left
// half written is never there, since files appear by rename.
func (c *client) data() ([]string, error) {
	if err := os.MkdirAll(c.dataDir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.dataDir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(c.dataDir, e.Name()))
		}
	}
	for i := 0; len(paths) < dataFiles; i++ {
		path := filepath.Join(c.dataDir, fmt.Sprintf("random-%03d.pb", i))
		if slices.Contains(paths, path) {
			continue
		}
		b, err := c.exampleBatch("")
		if err != nil {
			return nil, err
		}
		raw, err := proto.Marshal(b)
		if err != nil {
			return nil, err
		}
		if err := durable.Swap(path, 0o644, c.framing.Append(nil, raw)); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths[:dataFiles], nil
}
