package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// problems are those of a trainer's health state, by name.
func problems(s *Server) map[string]string {
	out := map[string]string{}
	for _, p := range s.env.Health.Problems() {
		out[p.Name] = p.Reason
	}
	return out
}

func says(t *testing.T, s *Server, what, name, reason string) {
	t.Helper()
	if got, ok := problems(s)[name]; ok != (reason != "") || !strings.Contains(got, reason) {
		t.Errorf("%s: %s: %q, want %q", what, name, got, reason)
	}
}

// A chief that has stopped its job leads no more, whatever its lease does.
func TestTheChiefOfAStoppedJobEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "enough"}}})
		ended := make(chan error, 1)
		go func() { ended <- s.chief().Lead(t.Context()) }()
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Fatal("the chief goes on")
		}
		facts, headers := w.facts(jobSubject())
		if len(facts) != 1 || !strings.HasPrefix(facts[0].GetJobStopped().GetReason(), "enough (at the last checkpoint, since the job does not run: ") || headers[0].Causation == "" {
			t.Errorf("facts %v", facts)
		}
	})
}

// A running job whose shards are away is stopped at its last checkpoint, though not before
// they had time to come back with what they have learnt.
func TestAStopWaitsForShardsThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		w.started(s.started())
		w.append(jobSubject(), &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: &training.Checkpoint{
			Id: 1, Dir: w.dir, Offsets: map[int32]int64{0: 7}, Shards: []*training.ShardFile{{Path: "p", Hash: "h"}}}}}})
		w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{}}})
		synctest.Wait()
		begin := time.Now()
		if err := s.chief().Term(1).Begin(t.Context()); !errors.Is(err, chief.ErrStopped) {
			t.Errorf("begin: %v", err)
		}
		if took := time.Since(begin); took < chief.StopPatience || took > chief.StopPatience+15*time.Second {
			t.Errorf("it was stopped after %v, want about %v", took, chief.StopPatience)
		}
		j := s.job()
		facts, _ := w.facts(jobSubject())
		if stopped := facts[len(facts)-1].GetJobStopped(); !j.Stopped || stopped.GetOffsets()[0] != 7 || !strings.HasPrefix(stopped.GetReason(), "on request (") {
			t.Errorf("stopped %v with %v", j.Stopped, stopped)
		}
		says(t, s, "at the end", chief.HealthStart, "")
	})
}

// A request for a checkpoint that fails is answered by the failure, and the chief goes on.
// What the attempt wrote is deleted; one that wrote nothing has an id all the same.
func TestFailedCheckpointsAreAnswers(t *testing.T) {
	w := newWorld(t, 1, 2)
	s := w.view(w.config("a", 0))
	b := s.started()
	b.Partitions = 1
	w.started(b)
	c := s.chief().Term(1)
	w.caughtUp(s)
	ask := func() {
		t.Helper()
		w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Export: true}}})
		w.caughtUp(s)
		if err := c.AnswerOpen(t.Context()); err != nil {
			t.Fatalf("the chief gives up: %v", err)
		}
		if open := s.chief().Open(); len(open) != 0 {
			t.Errorf("open are %v", open)
		}
	}
	failed := func() *training.CheckpointFailed {
		facts, headers := w.facts(jobSubject())
		if headers[len(headers)-1].Causation == "" {
			t.Errorf("the last fact answers nobody: %v", facts[len(facts)-1])
		}
		return facts[len(facts)-1].GetCheckpointFailed()
	}
	files := func() (names []string) {
		for _, dir := range []string{w.dir, filepath.Join(w.dir, cut.ExportsDir, "ps_0"), filepath.Join(w.dir, cut.ExportsDir, "entry")} {
			all, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			for _, e := range all {
				names = append(names, e.Name())
			}
		}
		return names
	}
	w.shards[1].busy = 1
	ask()
	if f := failed(); f.GetId() != 1 || !strings.Contains(f.GetReason(), "holds the shard") {
		t.Errorf("nothing was written: %v", f)
	}
	w.shards[1].snapErr = errors.New("disk full")
	ask()
	if f := failed(); f.GetId() != 1 || !strings.Contains(f.GetReason(), "disk full") {
		t.Errorf("a shard had written: %v", f)
	}
	if got := files(); !slices.Equal(got, []string{cut.ExportsDir}) {
		t.Errorf("left are %v", got)
	}
	w.shards[1].snapErr = nil
	ask()
	j := s.job()
	if len(j.Checkpoints) != 1 || j.Checkpoints[0].V.GetId() != 2 || len(j.Exports) != 1 {
		t.Errorf("checkpoints %v, exports %v", j.Checkpoints, j.Exports)
	}
	if got := files(); !slices.Equal(got, []string{"ckpt.info-2", cut.ExportsDir, "model.ckpt-2", "2", "2"}) {
		t.Errorf("there are %v", got)
	}
}

// All that is open is answered, one after the other, up to the stop of the job.
func TestAllThatIsOpenIsAnswered(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := w.view(w.config("a", 0))
	w.started(s.started())
	for _, e := range []*training.Event{
		{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: "first"}}},
		{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "then"}}},
	} {
		w.append(jobSubject().Request(), e)
	}
	w.caughtUp(s)
	if err := s.chief().Term(1).AnswerOpen(t.Context()); !errors.Is(err, chief.ErrStopped) {
		t.Errorf("answer: %v", err)
	}
	facts, _ := w.facts(jobSubject())
	var got []string
	for _, f := range facts {
		if c := f.GetCheckpointSaved(); c != nil {
			got = append(got, c.GetReason())
		}
		if e := f.GetJobStopped(); e != nil {
			got = append(got, e.GetReason())
		}
	}
	if !slices.Equal(got, []string{"first", "then", "then"}) {
		t.Errorf("checkpoints and the stop: %q", got)
	}
}

// Checkpoints that fail one after the other are a problem from the third on, until one is
// made.
func TestCheckpointsThatFailInARow(t *testing.T) {
	w := busOnly(t)
	s := w.view(w.alone())
	c := s.chief().Term(1)
	for round := range 2 {
		for n := 1; n <= health.Reported+1; n++ {
			c.Attempted(errors.New("no space left"))
			want := ""
			if n >= health.Reported {
				want = "no space left"
			}
			says(t, s, fmt.Sprint("round ", round, ", failure ", n), chief.HealthCheckpoint, want)
		}
		c.Attempted(nil)
		says(t, s, "made", chief.HealthCheckpoint, "")
	}
}

// What passes by itself is tried again for as long as somebody waits, up to a bound.
func TestHowLongACommandIsTried(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse *bus.CommandError
		leaves time.Duration // the caller; 0: it stays
		least  time.Duration
		most   time.Duration
	}{
		"the caller stays":   {bus.Refuse(bus.CodeConflict, "held by another"), 0, chief.CommandPatience, chief.CommandPatience + 2*chief.PauseAfterError},
		"the caller leaves":  {bus.Refuse(bus.CodeConflict, "held by another"), 5 * time.Second, 5 * time.Second, 5*time.Second + 2*chief.PauseAfterError},
		"it does not pass":   {bus.Refuse(bus.CodeInternal, "no space left"), 0, 0, 0},
		"it is not there":    {bus.Refuse(bus.CodeNotFound, "no shard"), 2 * time.Second, 2 * time.Second, 4 * time.Second},
		"it is not ready":    {bus.Refuse(bus.CodeUnavailable, "soon"), 2 * time.Second, 2 * time.Second, 4 * time.Second},
		"it is misconceived": {bus.Refuse(bus.CodeInvalid, "what?"), 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := busOnly(t)
				trainertest.Commands(t, w.b, 1, func(int, string, []byte) (any, error) { return nil, tc.refuse })
				s := w.view(w.alone())
				gone := make(chan struct{})
				if tc.leaves > 0 {
					time.AfterFunc(tc.leaves, func() { close(gone) })
				}
				begin := time.Now()
				a := s.chief().Term(1).HandleRequest(t.Context(), chief.Order{Reason: "by hand", Gone: gone})
				if took := time.Since(begin); took < tc.least || took > tc.most {
					t.Errorf("it was given up after %v, want %v to %v", took, tc.least, tc.most)
				}
				if a.Err == nil || !strings.Contains(a.Err.Error(), tc.refuse.Message) {
					t.Errorf("answer %+v", a)
				}
			})
		})
	}
}

// One checkpoint answers all commands that wait, and is an export where one wants that.
func TestCommandsThatWaitAreAnsweredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		c := s.chief().Term(1)
		ctx, stop := context.WithCancel(t.Context())
		stop() // as with the lease gone
		first := chief.Order{Done: make(chan chief.Answer, 1)}
		second := chief.Order{Done: make(chan chief.Answer, 1), Export: true}
		go func() { c.Asked <- second }()
		synctest.Wait()
		c.HandleRequests(ctx, first)
		for _, o := range []chief.Order{first, second} {
			if a := <-o.Done; !errors.Is(a.Err, cut.ErrTermEnded) || !cut.Passes(a.Err) {
				t.Errorf("answer %+v", a)
			}
		}
	})
}

// A checkpoint of the clock is made where something was learnt since the last one, and where
// that is not known.
func TestProgressSinceTheLastCheckpoint(t *testing.T) {
	w := newWorld(t, 2, 2)
	s := w.view(w.config("a", 0))
	c := s.chief().Term(1)
	b := s.started()
	b.Partitions = 2
	w.started(b)
	at := func(offsets ...int64) map[int32]int64 {
		m := map[int32]int64{}
		for p, o := range offsets {
			m[int32(p)] = o
		}
		return m
	}
	stand := func(first, second map[int32]int64) {
		for i, next := range []map[int32]int64{first, second} {
			w.shards[i].mu.Lock()
			w.shards[i].now.next = next
			w.shards[i].mu.Unlock()
		}
	}
	w.caughtUp(s)
	if !c.HasProgress(t.Context()) {
		t.Error("without a checkpoint there is nothing to make")
	}
	for id, offsets := range []map[int32]int64{at(1, 1), at(5, 6)} {
		w.append(jobSubject(), &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: &training.Checkpoint{
			Id: int64(id + 1), Dir: w.dir, Offsets: offsets, Shards: []*training.ShardFile{{Path: "p", Hash: "h"}, {Shard: 1, Path: "p", Hash: "h"}}}}}})
	}
	w.caughtUp(s)
	for name, tc := range map[string]struct {
		first, second map[int32]int64
		want          bool
	}{
		"nothing":                      {at(5, 6), at(5, 6), false},
		"a shard's first partition":    {at(5, 6), at(7, 6), true},
		"a shard's second":             {at(5, 8), at(5, 6), true},
		"both":                         {at(8, 8), at(8, 8), true},
		"where the first was, once":    {at(1, 1), at(1, 1), true},
		"a shard that went back":       {at(5, 6), at(4, 6), true},
		"a partition that began since": {at(5, 6, 3), at(5, 6), false}, // is none of the job's yet
	} {
		if stand(tc.first, tc.second); c.HasProgress(t.Context()) != tc.want {
			t.Errorf("%s: progress is %v", name, !tc.want)
		}
	}
	for name, tc := range map[string]struct {
		first, second map[int32]int64
		want          bool
	}{
		"all":                  {at(10, 20), at(10, 20), true},
		"beyond":               {at(11, 20), at(10, 21), true},
		"a shard lacks one":    {at(10, 20), at(9, 20), false},
		"of the other too":     {at(10, 19), at(10, 20), false},
		"nothing of partition": {at(10), at(10), false},
	} {
		if stand(tc.first, tc.second); c.AtEnd(t.Context(), []int64{10, 20}) != tc.want {
			t.Errorf("%s: at the end is %v", name, !tc.want)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if !c.HasProgress(gone) || c.AtEnd(gone, []int64{0, 0}) {
		t.Error("where the shards do not answer, there is no progress, or all is learnt")
	}
}

// Refused requests are parked once each, in their order.
func TestRefusedRequestsAreParkedOnce(t *testing.T) {
	w := busOnly(t)
	s := w.view(w.alone())
	counting := &countingLetters{DeadLetters: w.b.DeadLetters()}
	s.env.Bus = otherLetters{w.b, counting}
	c := s.chief().Term(1)
	ask := func(e *training.Event) uint64 {
		seq := w.append(jobSubject().Request(), e)
		if err := s.requests.Wait(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
		if err := c.ParkRefused(t.Context()); err != nil {
			t.Fatal(err)
		}
		return seq
	}
	start := &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{}}}
	var want []uint64
	for range 3 {
		want = append(want, ask(start)) // nothing is stopped
	}
	if !slices.Equal(counting.parked, want) {
		t.Errorf("parked %v, refused were %v", counting.parked, want)
	}
}

type countingLetters struct {
	bus.DeadLetters
	parked []uint64
}

func (l *countingLetters) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	l.parked = append(l.parked, p.StreamSeq)
	return l.DeadLetters.Park(ctx, p)
}
