package modelserver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// negate turns every row round: scores of an earlier export beside these rows would be
// neither version's.
func (w *world) negate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rows := range w.rows {
		for id, r := range rows {
			next := make([]float32, len(r))
			for i := range r {
				next[i] = -100 * r[i]
			}
			rows[id] = next
		}
	}
}

// versions are the version states of a sub-model, newest first.
func (s *served) versions(sub string) []string {
	res, err := s.models.GetModelStatus(testContext(s.w.t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker+":"+sub, 0)})
	if err != nil {
		return []string{err.Error()}
	}
	var got []string
	for _, v := range res.GetModelVersionStatus() {
		got = append(got, fmt.Sprintf("%d %v", v.GetVersion(), v.GetState()))
	}
	return got
}

// answersAs holds an answer against the version that it should be of, and its scores.
func (s *served) answersAs(version int64, want []float32) {
	t := s.w.t
	t.Helper()
	res, err := s.predict.Predict(testContext(t), request(someUsers, someMovies))
	if err != nil {
		t.Fatal(err)
	}
	if got := res.GetModelSpec().GetVersion().GetValue(); got != version {
		t.Fatalf("answered by version %d, want %d", got, version)
	}
	if got := res.GetOutputs()["score"].GetFloatVal(); !slices.Equal(got, want) {
		t.Fatalf("version %d: scores %v, want %v", version, got, want)
	}
}

// until waits for the versions of a sub-model to be in these states.
func (s *served) until(sub string, want ...string) {
	s.w.t.Helper()
	wait.Until(s.w.t, s.name, func() error {
		if got := s.versions(sub); !slices.Equal(got, want) {
			return fmt.Errorf("versions %v, want %v", got, want)
		}
		return nil
	})
}

// While containers switch to another version one after the other, every answer is
// wholly of the one or of the other.
func TestVersionsAreNeverMixed(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	patient := func(c *modelserver.Config) { c.Linger = 15 * time.Second } // longer than a busy machine keeps an entry from asking
	ps := [2]*served{w.serve("ps-0", patient), w.serve("ps-1", patient)}
	for k, s := range ps {
		s.mustLoad(1, fmt.Sprintf("ps_%d", k))
		w.register(int32(k), 0, s.name, s.RowsAddr())
	}
	entry := w.serve("entry")
	entry.mustLoad(1, "entry")
	wait.Until(t, "version 1", func() error { return entry.check(someUsers, someMovies) })
	want := map[int64][]float32{1: make([]float32, len(someUsers)), 2: make([]float32, len(someUsers))}
	for i := range someUsers {
		want[1][i] = w.score(someUsers[i], someMovies[i])
	}
	w.negate()
	w.export(2, 2, 0)
	for i := range someUsers {
		want[2][i] = w.score(someUsers[i], someMovies[i])
	}
	answers := func(version int64) { t.Helper(); entry.answersAs(version, want[version]) }
	ps[0].mustLoad(2, "ps_0") // it answers both for as long as the entry asks for the old one
	for range 10 {
		answers(1)
	}
	ps[0].until("ps_0", "2 AVAILABLE", "1 AVAILABLE")
	entry.mustLoad(2, "entry") // ahead of ps_1: the old version goes on
	wait.Until(t, "the entry's new version", func() error {
		if got := entry.versions("entry"); got[0] != "2 AVAILABLE" {
			return errors.New(got[0])
		}
		return nil
	})
	for range 10 {
		answers(1)
	}
	ps[0].until("ps_0", "2 AVAILABLE", "1 AVAILABLE")
	entry.until("entry", "2 AVAILABLE", "1 AVAILABLE")
	req := request(someUsers, someMovies)
	req.ModelSpec = tfserving.Spec(ranker, 2)
	if _, err := entry.predict.Predict(testContext(t), req); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "version 2") {
		t.Fatalf("version 2 by name, before its rows are there: %v; want UNAVAILABLE", err)
	}
	ps[1].mustLoad(2, "ps_1")
	wait.Until(t, "version 2", func() error {
		res, err := entry.predict.Predict(testContext(t), request(someUsers, someMovies))
		if err != nil {
			t.Fatal(err) // somebody can answer all the time
		}
		v := res.GetModelSpec().GetVersion().GetValue()
		if !slices.Equal(res.GetOutputs()["score"].GetFloatVal(), want[v]) {
			t.Fatalf("version %d: scores %v, want %v", v, res.GetOutputs()["score"].GetFloatVal(), want[v])
		}
		if v != 2 {
			return fmt.Errorf("version %d still answers", v)
		}
		return nil
	})
	answers(2)
	// Nobody asks for version 1 any more.
	entry.until("entry", "2 AVAILABLE", "1 END")
	for k, s := range ps {
		s.until(fmt.Sprintf("ps_%d", k), "2 AVAILABLE", "1 END")
	}
	answers(2)
}

// An entry whose rows are served in another version alone says so.
func TestRowsOfAnotherVersionAreNoAnswer(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "version 1", func() error { return s.check(someUsers, someMovies) })
	w.negate()
	w.export(2, 2, 0)
	other := w.serve("c9")
	other.mustLoad(2, "ps_0", "ps_1")
	for k := range int32(2) {
		w.register(k, 0, other.name, other.RowsAddr())
	}
	wait.Until(t, "the other replicas", func() error {
		_, err := s.scores(someUsers, someMovies)
		if err == nil {
			return errors.New("the old replicas answer still")
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("%v; want UNAVAILABLE", err)
		}
		if !strings.Contains(err.Error(), "version 1 of job") {
			return err // the old connections end
		}
		return nil
	})
	// Two jobs give their first exports the same number.
	c, err := w.client(other)
	if err != nil {
		t.Fatal(err)
	}
	q := &rowwire.LookupRequest{Model: ranker, Shard: 1, Version: 2, Job: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{modelspec.FID(1, 7)}}}}
	if res, err := c.Lookup(testContext(t), q); err != nil || res.Version != 2 {
		t.Errorf("of its own job: %+v, %v", res, err)
	}
	q.Job = "another"
	if _, err := c.Lookup(testContext(t), q); rowwire.CodeOf(err) != rowwire.NotFound {
		t.Errorf("version 2 of another job: %v; want NOT_FOUND", err)
	}
	q.Version, q.Job = 0, ""
	if res, err := c.Lookup(testContext(t), q); err != nil || res.Version != 2 {
		t.Errorf("whatever is newest: %+v, %v", res, err)
	}
}

// Sub-models that are served elsewhere, or nowhere, keep nobody back.
func TestASubModelThatIsNotServedHereKeepsNobodyBack(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s, subs := w.one(2)
	odd := []string{"ranker:dense_0", ":entry", "ranker:ps_x", "ranker:ps_01", "ranker:entry_1"}
	var models []tfserving.Model
	for _, name := range odd {
		models = append(models, tfserving.Model{Name: name, BasePath: "/x", Policy: tfserving.Policy{Versions: []int64{4}}})
	}
	for _, sub := range subs {
		models = append(models, tfserving.Model{Name: ranker + ":" + sub, BasePath: w.dir + "/" + sub})
	}
	for range 2 { // sent again it changes nothing
		_, err := s.models.HandleReloadConfigRequest(testContext(t), &apis.ReloadConfigRequest{Config: tfserving.Config(models...)})
		if code := status.Code(err); code != codes.Unimplemented && code != codes.OK {
			t.Fatalf("reload: %v; want UNIMPLEMENTED for the one, the others loaded", err)
		}
		wait.Until(t, "the others", func() error { return s.check(someUsers, someMovies) })
	}
	for _, name := range odd {
		res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(name, 0)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v := res.GetModelVersionStatus()[0]
		if v.GetVersion() != 4 || v.GetState() != apis.ModelVersionStatus_END || v.GetStatus().GetErrorCode() == 0 || !strings.Contains(v.GetStatus().GetErrorMessage(), "entry and ps_<shard>") && !strings.Contains(v.GetStatus().GetErrorMessage(), "colon") {
			t.Errorf("%s: %v; want END with the reason", name, v)
		}
	}
}

// NOT_FOUND is for models that nobody has configured: clients do not try those again.
func TestWhatCannotAnswerYetIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	w.plan(1, 2, job)
	w.publish(w.learn("user", 1, 7, 3, 1, -1, 2, -2))
	w.gate = newGate(w)
	s, subs := w.one(2)
	code := func(spec *apis.ModelSpec) codes.Code {
		req := request([]int64{1}, []int64{2})
		req.ModelSpec = spec
		_, err := s.predict.Predict(testContext(t), req)
		return status.Code(err)
	}
	for name, want := range map[string]codes.Code{ranker: codes.Unavailable, ranker + ":ps_1": codes.Unavailable, ranker + ":ps_7": codes.NotFound, "nobody": codes.NotFound} {
		if got := code(tfserving.Spec(name, 0)); got != want {
			t.Errorf("%s is planned for this server, which has not been configured: %v, want %v", name, got, want)
		}
	}
	w.append("replica", "offered/entry:0/0", &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{
		Replica: &replica.Replica{ModelName: "offered", ServerType: "entry", Container: "c0", GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", Stat: replica.State_AVAILABLE, Version: 1}}}})
	wait.Until(t, "what its predecessor served", func() error { // under a layout there is no plan
		if got := code(tfserving.Spec("offered", 0)); got != codes.Unavailable {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	loaded := make(chan error, 1)
	go func() { loaded <- s.load(1, append(subs, "missing_0")...) }()
	<-w.gate.waiting
	wait.Until(t, "configured", func() error {
		if got := code(tfserving.Spec("nobody", 0)); got != codes.NotFound {
			return fmt.Errorf("an unknown model: %v", got)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		spec *apis.ModelSpec
		want codes.Code
	}{
		"rows that load":       {tfserving.Spec(ranker+":ps_1", 0), codes.Unavailable},
		"their version":        {tfserving.Spec(ranker+":ps_1", 1), codes.Unavailable},
		"another version":      {tfserving.Spec(ranker+":ps_1", 9), codes.NotFound},
		"what is never served": {tfserving.Spec(ranker+":missing_0", 0), codes.Unavailable},
		"another model":        {tfserving.Spec("other", 0), codes.NotFound},
	} {
		if got := code(tc.spec); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	close(w.gate.open)
	<-loaded
}
