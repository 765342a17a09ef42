package modelserver_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

func (w *world) canary(candidate int64, share float64, mode publish.CanaryDeclared_Mode) {
	w.t.Helper()
	w.append("publish", ranker, &publish.Event{Body: &publish.Event_CanaryDeclared{CanaryDeclared: &publish.CanaryDeclared{
		ModelName: ranker, Stable: 1, Candidate: candidate, Share: share, Mode: mode, ExpiresMs: 1, Cause: 1, Rule: &publish.Rule{MinRatings: 1}}}})
}

func (w *world) verdict(candidate int64, v publish.CanaryDecided_Verdict) {
	w.t.Helper()
	w.append("publish", ranker, &publish.Event{Body: &publish.Event_CanaryDecided{CanaryDecided: &publish.CanaryDecided{
		ModelName: ranker, Candidate: candidate, Verdict: v, Reason: "r"}}})
}

// configure has the server told these versions of sub-models, and waits for no load.
func (s *served) configure(versions []int64, subs ...string) {
	s.w.t.Helper()
	var models []tfserving.Model
	for _, sub := range subs {
		models = append(models, tfserving.Model{Name: ranker + ":" + sub, BasePath: filepath.Join(s.w.dir, sub), Policy: tfserving.Policy{Versions: versions}})
	}
	if _, err := s.models.HandleReloadConfigRequest(testContext(s.w.t), &apis.ReloadConfigRequest{Config: tfserving.Config(models...)}); err != nil {
		s.w.t.Fatal(err)
	}
}

// canaryWorld serves version 1 of a model; version 2 has other rows, so that no score is of both.
func canaryWorld(t *testing.T, change ...func(*modelserver.Config)) (w *world, s *served, subs []string, want map[int64][]float32) {
	w = newWorld(t)
	w.export(1, 2, 0)
	want = map[int64][]float32{1: nil, 2: nil}
	scores := func(v int64) {
		for i := range someUsers {
			want[v] = append(want[v], w.score(someUsers[i], someMovies[i]))
		}
	}
	scores(1)
	w.negate()
	scores(2)
	w.plan(1, 2, "")
	s, subs = w.one(2, change...)
	s.mustLoad(1, subs...)
	return w, s, subs, want
}

// ask sends a request under an id and returns which version answered, which must be so wholly.
func (s *served) askAs(id string, want map[int64][]float32) int64 {
	t := s.w.t
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(testContext(t), "x-request-id", id, "x-impression", "1")
	res, err := s.predict.Predict(ctx, request(someUsers, someMovies))
	if err != nil {
		t.Fatal(err)
	}
	v := res.GetModelSpec().GetVersion().GetValue()
	if got := res.GetOutputs()["score"].GetFloatVal(); !slices.Equal(got, want[v]) {
		t.Fatalf("version %d: scores %v, want %v", v, got, want[v])
	}
	return v
}

// A candidate answers its share, the same ids always, once it is AVAILABLE and nobody before, while the
// stable version answers the others; after the verdict one version answers everybody.
func TestCandidateAnswersItsShare(t *testing.T) {
	w, s, subs, want := canaryWorld(t)
	answered := func() (by map[int64]int) {
		by = map[int64]int{}
		for i := range 200 {
			by[s.askAs(fmt.Sprint("request-", i), want)]++
		}
		return by
	}
	w.canary(2, 0.3, publish.CanaryDeclared_ANSWER)
	s.configure([]int64{1, 2}, subs...) // version 2 is not there yet
	if by := answered(); by[1] != 200 {
		t.Fatalf("without the candidate's files: %v", by)
	}
	wait.Until(t, "the share of an absent candidate is counted", func() error {
		if s.askAs("request-", want); s.counted(t, "monolith_modelserver_canary_total", "absent") == 0 {
			return fmt.Errorf("none is, by version %d", s.askAs("request", want))
		}
		return nil
	})
	w.export(2, 2, 0)
	for _, sub := range subs {
		s.until(sub, "2 AVAILABLE", "1 AVAILABLE")
	}
	wait.Until(t, "the candidate's share", func() error {
		if by := answered(); by[2] < 30 || by[2] > 90 {
			return fmt.Errorf("of 200 answers, %v by version", by)
		}
		return nil
	})
	for i := range 50 {
		id := fmt.Sprint("request-", i)
		if a, b := s.askAs(id, want), s.askAs(id, want); a != b {
			t.Errorf("%s was answered by version %d, then by %d", id, a, b)
		}
	}
	req := request(someUsers, someMovies)
	for _, v := range []int64{1, 2} { // by name nobody is diverted
		req.ModelSpec = tfserving.Spec(ranker, v)
		for range 10 {
			if res, err := s.predict.Predict(testContext(t), req); err != nil || res.GetModelSpec().GetVersion().GetValue() != v {
				t.Fatalf("version %d by name: %v, %v", v, res.GetModelSpec(), err)
			}
		}
	}
	w.verdict(2, publish.CanaryDecided_ROLLED_BACK)
	wait.Until(t, "the rollback", func() error {
		if by := answered(); by[1] != 200 { // though version 2 is newer, and loaded
			return fmt.Errorf("%v", by)
		}
		return nil
	})
	w.canary(2, 0.3, publish.CanaryDeclared_ANSWER)
	w.verdict(2, publish.CanaryDecided_PROMOTED)
	w.plan(2, 2, "")
	wait.Until(t, "the promotion", func() error {
		if by := answered(); by[2] != 200 {
			return fmt.Errorf("%v", by)
		}
		return nil
	})
	s.configure([]int64{2}, subs...)
	s.until("entry", "2 AVAILABLE", "1 END")
	if by := answered(); by[2] != 200 {
		t.Errorf("after the old version has gone: %v", by)
	}
}

// A candidate that alone is loaded answers nobody who does not name it.
func TestCandidateAloneAnswersNobody(t *testing.T) {
	w, s, subs, want := canaryWorld(t)
	w.export(2, 2, 0)
	w.canary(2, 1, publish.CanaryDeclared_SHADOW)
	s.configure([]int64{1, 2}, subs...)
	for _, sub := range subs {
		s.until(sub, "2 AVAILABLE", "1 AVAILABLE")
	}
	s.configure(nil, subs...) // the newest: version 2
	s.until("entry", "2 AVAILABLE", "1 END")
	wait.Until(t, "no answer", func() error {
		_, err := s.scores(someUsers, someMovies)
		if status.Code(err) != codes.Unavailable {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	req := request(someUsers, someMovies)
	req.ModelSpec = tfserving.Spec(ranker, 2)
	if res, err := s.predict.Predict(testContext(t), req); err != nil || !slices.Equal(res.GetOutputs()["score"].GetFloatVal(), want[2]) {
		t.Errorf("by name: %v, %v", res, err)
	}
}

// A candidate in shadow scores copies of what the stable version answers and records, and its
// impressions say that they are no answers.
func TestCandidateInShadow(t *testing.T) {
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{impression.Topic: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	w, s, subs, want := canaryWorld(t, func(c *modelserver.Config) {
		c.Brokers, c.PredictionsTopic, c.SampleRate = []string{broker.Addr()}, impression.Topic, -1
	})
	w.export(2, 2, 0)
	w.canary(2, 1, publish.CanaryDeclared_SHADOW)
	s.configure([]int64{1, 2}, subs...)
	for _, sub := range subs {
		s.until(sub, "2 AVAILABLE", "1 AVAILABLE")
	}
	asked := 0
	wait.Until(t, "a shadow", func() error {
		if v := s.askAs(fmt.Sprint("request-", asked), want); v != 1 {
			t.Fatalf("version %d answered", v)
		}
		if asked++; s.counted(t, "monolith_modelserver_canary_total", "shadowed") == 0 {
			return fmt.Errorf("none of %d", asked)
		}
		return nil
	})
	got := map[string]map[int64][]float32{} // by request and version
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker.Addr()}, Topic: impression.Topic, MaxWait: 100 * time.Millisecond, MaxBytes: 1 << 20})
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for offset, shadows := int64(0), 0; shadows < len(someUsers); {
		recs, next, err := r.Fetch(ctx, offset)
		if err != nil {
			t.Fatal(err)
		}
		offset = next
		for _, rec := range recs {
			i, err := impression.Decode(rec.Value)
			if err != nil {
				t.Fatal(err)
			}
			if i.Shadow != (i.Version == 2) || i.TookUS <= 0 {
				t.Fatalf("version %d, shadow %v, took %d µs", i.Version, i.Shadow, i.TookUS)
			}
			if i.Shadow {
				shadows++
			}
			if got[i.RequestID] == nil {
				got[i.RequestID] = map[int64][]float32{}
			}
			got[i.RequestID][i.Version] = append(got[i.RequestID][i.Version], i.Score)
		}
	}
	both := 0
	for id, by := range got {
		if !slices.Equal(by[1], want[1]) || by[2] != nil && !slices.Equal(by[2], want[2]) {
			t.Errorf("%s: scores %v, want %v", id, by, want)
		}
		if by[2] != nil {
			both++
		}
	}
	if both == 0 {
		t.Error("no request was scored by both versions")
	}
}
