package modelserver

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// What a candidate cannot do costs the caller nothing: the stable version answers.
func TestCandidateCostsNobodyAnAnswer(t *testing.T) {
	old, candidate := new(entry.Model), new(entry.Model)
	canary := &publish.CanaryDeclared{Stable: 1, Candidate: 2, Share: 1}
	scores := [][]float32{{0.5}}
	good := func(*entry.Model) (entry.Input, error) { return entry.Input{}, nil }
	bad := func(*entry.Model) (entry.Input, error) {
		return entry.Input{}, status.Error(codes.InvalidArgument, "no such output")
	}
	for _, tc := range []struct {
		name    string
		mode    publish.CanaryDeclared_Mode
		there   bool
		input   func(*entry.Model) (entry.Input, error)
		fails   error
		rec     *entry.Recorder
		by      *entry.Model
		outcome string
		queued  int
	}{
		{"it answers", publish.CanaryDeclared_ANSWER, true, good, nil, nil, candidate, "answered", 0},
		{"it is not AVAILABLE", publish.CanaryDeclared_ANSWER, false, good, nil, nil, old, "absent", 0},
		{"it lacks an output", publish.CanaryDeclared_ANSWER, true, bad, nil, nil, old, "failed", 0},
		{"it fails", publish.CanaryDeclared_ANSWER, true, good, status.Error(codes.Internal, "it does"), nil, old, "failed", 0},
		{"a copy", publish.CanaryDeclared_SHADOW, true, good, nil, &entry.Recorder{RequestID: "id"}, old, "", 1},
		{"nobody records the answer", publish.CanaryDeclared_SHADOW, true, good, nil, nil, old, "", 0},
		{"it is not AVAILABLE for a copy", publish.CanaryDeclared_SHADOW, false, good, nil, &entry.Recorder{RequestID: "id"}, old, "absent", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			canary.Mode = tc.mode
			c := newCanaries(prometheus.NewRegistry(), func(*apis.ModelSpec) (*publish.CanaryDeclared, *entry.Model) {
				if tc.there {
					return canary, candidate
				}
				return canary, nil
			}, func(_ context.Context, m []*entry.Model, _ entry.Input, _ *entry.Recorder) (*entry.Model, [][]float32, error) {
				return m[0], scores, tc.fails
			})
			by, got, err := c.answer(t.Context(), "id", nil, tc.input, tc.rec, func() (*entry.Model, [][]float32, error) { return old, scores, nil })
			if by != tc.by || len(got) != 1 || err != nil {
				t.Errorf("answered by the candidate: %v, %v, %v", by == candidate, got, err)
			}
			if tc.outcome != "" {
				if n := testutil.ToFloat64(c.requests.WithLabelValues(tc.outcome)); n != 1 {
					t.Errorf("%v requests are counted as %s", n, tc.outcome)
				}
			}
			if len(c.queue) != tc.queued {
				t.Errorf("%d copies wait, want %d", len(c.queue), tc.queued)
			}
		})
	}
}

// Copies beyond the queue are dropped at once and counted, and so is one of too many rows.
func TestCopiesAreBounded(t *testing.T) {
	c := newCanaries(prometheus.NewRegistry(), nil, nil)
	for range shadowQueue + 3 {
		c.copy(shadow{}, 1)
	}
	<-c.queue
	c.copy(shadow{}, shadowRows+1)
	if n := testutil.ToFloat64(c.requests.WithLabelValues("dropped")); n != 4 || len(c.queue) != shadowQueue-1 {
		t.Errorf("%v dropped and %d wait", n, len(c.queue))
	}
}
