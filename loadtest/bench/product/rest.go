package product

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// RESTCase is one batch size.
type RESTCase struct {
	Batch, Callers int
	Each           time.Duration
	Rounds         int
	Target         float64 // of gRPC's rate
}

// RESTCases are those of a full run.
var RESTCases = []RESTCase{
	{Batch: 10, Callers: 8, Each: time.Second, Rounds: 3, Target: 0.5},
	{Batch: 100, Callers: 8, Each: time.Second, Rounds: 3, Target: 0.5},
	{Batch: 1000, Callers: 8, Each: time.Second, Rounds: 3, Target: 0.5},
}

// REST measures Predict over REST against the same requests over gRPC, by callers that wait.
func REST(start Start, cases []RESTCase) bench.Benchmark {
	return bench.Benchmark{Name: "rest", About: "Predict as JSON over HTTP, against the same requests over gRPC", Run: eachLearnt(start, cases, restCase)}
}

func restCase(ctx context.Context, r *bench.Runner, c Cluster, rc RESTCase) error {
	requests, err := predictRequests(c.Model(), rc.Batch)
	if err != nil {
		return err
	}
	return besideEntry(ctx, c, requests[0], func(entry *bytesClient, answer []byte) error {
		bodies, err := jsonOf(requests)
		if err != nil {
			return err
		}
		pool := &http.Transport{MaxIdleConnsPerHost: rc.Callers}
		defer pool.CloseIdleConnections()
		rest := restCaller{&http.Client{Transport: pool}, "http://" + c.RESTAddr() + "/v1/models/" + c.Model() + ":predict"}
		grpc := func(ctx context.Context) ([]byte, error) { return entry.call(ctx, requests[0]) }
		if err := rest.sameAs(ctx, bodies[0], grpc, rc.Batch); err != nil {
			return err
		}
		return r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("rest/batch=%d,callers=%d", rc.Batch, rc.Callers), Baseline: "gRPC",
			Figures: []bench.Figure{{Name: "rate", Unit: "calls/s", Better: bench.Higher, Target: rc.Target}, {Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower}},
			Rounds:  rc.Rounds, Warm: rc.Rounds > 1,
			Ours: func(ctx context.Context) ([]float64, error) {
				return closedLoop(ctx, rc.Callers, rc.Each, func(ctx context.Context, i int) error {
					_, err := rest.call(ctx, bodies[i%len(bodies)])
					return err
				})
			},
			Peer: func(ctx context.Context) ([]float64, error) {
				return closedLoop(ctx, rc.Callers, rc.Each, sized(entry, requests, len(answer)))
			},
		})
	})
}

// jsonOf are the same requests as REST takes them.
func jsonOf(requests [][]byte) ([][]byte, error) {
	out := make([][]byte, len(requests))
	for i, raw := range requests {
		var req apis.PredictRequest
		if err := proto.Unmarshal(raw, &req); err != nil {
			return nil, err
		}
		inputs := map[string][]int64{}
		for name, t := range req.GetInputs() {
			inputs[name] = t.GetInt64Val()
		}
		var err error
		if out[i], err = json.Marshal(map[string]any{"inputs": inputs}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// restCaller posts to one address.
type restCaller struct {
	client *http.Client
	url    string
}

func (c restCaller) call(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return answer, err
}

// A cluster learns on, so scores may change between two requests.
const (
	sameTries = 20
	samePause = 50 * time.Millisecond
)

// sameAs asks until the answer has the scores that gRPC has before it and behind it.
func (c restCaller) sameAs(ctx context.Context, body []byte, grpc func(context.Context) ([]byte, error), rows int) error {
	for try := 1; ; try++ {
		differs, err := c.differs(ctx, body, grpc, rows)
		if differs == nil || err != nil {
			return err
		}
		if try == sameTries {
			return fmt.Errorf("%d times in a row: %w", try, differs)
		}
		if err := retry.Sleep(ctx, samePause); err != nil {
			return err
		}
	}
}

// differs asks once, and says what differs.
func (c restCaller) differs(ctx context.Context, body []byte, grpc func(context.Context) ([]byte, error), rows int) (differs, err error) {
	before, err := scoresOf(ctx, grpc, rows)
	if err != nil {
		return nil, err
	}
	text, err := c.call(ctx, body)
	if err != nil {
		return nil, err
	}
	var got struct{ Outputs []float32 }
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, fmt.Errorf("the answer over REST: %w", err)
	}
	after, err := scoresOf(ctx, grpc, rows)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(before, after) {
		return errors.New("the scores over gRPC change"), nil
	}
	if len(got.Outputs) != len(after) {
		return fmt.Errorf("%d scores over REST, %d over gRPC", len(got.Outputs), len(after)), nil
	}
	for i, score := range after {
		if d := got.Outputs[i] - score; !(math.Abs(float64(d)) <= 1e-6) {
			return fmt.Errorf("score %d is %v over REST, %v over gRPC", i, got.Outputs[i], score), nil
		}
	}
	return nil, nil
}

// scoresOf are those of an answer over gRPC.
func scoresOf(ctx context.Context, grpc func(context.Context) ([]byte, error), rows int) ([]float32, error) {
	answer, err := grpc(ctx)
	if err != nil {
		return nil, err
	}
	var parsed apis.PredictResponse
	if err := proto.Unmarshal(answer, &parsed); err != nil {
		return nil, err
	}
	return tfserving.Floats(nil, parsed.GetOutputs()["score"], rows)
}
