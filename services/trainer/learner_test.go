package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/feed"
	"github.com/monolith-go/monolith/services/trainer/internal/attempt"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// What is about the content of a batch is refused, and nothing else.
func TestWhatIsRefused(t *testing.T) {
	for err, want := range map[error]bool{step.ErrGradients: true, step.ErrTooLarge: true, rowwire.Errorf(rowwire.Invalid, "x"): true, rowwire.Errorf(rowwire.Gap, "x"): false, errors.New("x"): false} {
		if refused(err) != want {
			t.Errorf("%v is refused: %v", err, !want)
		}
	}
}

// A partition that cannot be learnt is a problem after a few attempts, for as long as it is
// this trainer's.
func TestAPartitionThatCannotBeLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		w.ready(0, 3, 1, 0, "h:1") // this trainer was told of one shard
		w.caughtUp(s)
		l := &learner{s: s, reader: s.source.Open("", 0, func(error) {})}
		soft, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.run(soft, t.Context()) }()
		synctest.Wait()
		says(t, s, "at once", l.named("learning"), "")
		time.Sleep(time.Minute)
		says(t, s, "after many attempts", l.named("learning"), "start it with --shards 3")
		stop()
		<-ended
		says(t, s, "given up", l.named("learning"), "")
	})
}

// records are ratings of those users, from offset on.
func records(offset int64, users ...int64) (recs []kafka.Record) {
	for i, u := range users {
		value := fmt.Appendf(nil, `{"userId":%d,"movieId":1,"rating":4}`, u)
		if u < 0 {
			value = []byte("broken")
		}
		recs = append(recs, kafka.Record{Topic: "ratings", Offset: offset + int64(i), Value: value})
	}
	return recs
}

// learning is a learner of partition 0 on shards that keep no books of the ids.
func (w *world) learning(change func(*Config)) *learner {
	w.t.Helper()
	for _, s := range w.shards {
		s.truth = nil
	}
	cfg := w.config("a", 0)
	change(&cfg)
	s := w.view(cfg)
	b := s.started()
	b.Partitions = 1
	w.started(b)
	for _, f := range w.shards {
		f.inOrder = cfg.Deterministic
	}
	w.caughtUp(s)
	l := &learner{s: s, epoch: 1, ring: newRing(s.engine), turns: feed.Turns{Size: int64(cfg.Batch), N: 1},
		reader: s.source.Open("", 0, func(error) {})}
	w.t.Cleanup(func() { l.reader.Close() })
	return l
}

func (w *world) letters() (offsets []uint64) {
	w.t.Helper()
	all, err := w.b.DeadLetters().List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range all {
		offsets = append(offsets, l.StreamSeq)
	}
	slices.Sort(offsets)
	return offsets
}

// oddCase is a batch of records, and what becomes of those that cannot be learnt.
type oddCase struct {
	users   []int64 // 666: its gradients cannot be applied; negative: it is no record
	odd     int     // in a row before
	fenced  bool
	want    int      // in a row afterwards
	letters []uint64 // parked
	says    string
}

// Records that cannot be learnt are counted in a row; only a record that is learnt ends the
// row, and a row that is too long is the model's fault.
func TestOddRecordsInARow(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		for name, tc := range map[string]oddCase{
			"a good one":                {[]int64{1}, 5, false, 0, nil, ""},
			"good ones":                 {[]int64{1, 2, 3}, 5, false, 0, nil, ""},
			"no records":                {[]int64{-1, -1}, 5, false, 5, []uint64{0, 1}, ""},
			"none":                      {nil, 5, false, 5, nil, ""},
			"an odd one":                {[]int64{666}, 5, false, 6, []uint64{0}, ""},
			"a good and an odd one":     {[]int64{1, 666}, 5, false, map[bool]int{false: 1, true: 0}[inOrder], []uint64{1}, ""},
			"one of three is odd":       {[]int64{666, 1, 2}, 5, false, 0, []uint64{0}, ""},
			"the last that is parked":   {[]int64{666}, oddInARow - 2, false, oddInARow - 1, []uint64{0}, ""},
			"one more":                  {[]int64{666}, oddInARow - 1, false, map[bool]int{false: oddInARow, true: oddInARow - 1}[inOrder], nil, "the model is at fault"},
			"many, with a good one":     {[]int64{1, 666, 666}, oddInARow - 1, false, map[bool]int{false: 2, true: 0}[inOrder], []uint64{1, 2}, ""},
			"fenced":                    {[]int64{1}, 5, true, 5, nil, "fenced"},
			"no record, fenced":         {[]int64{-1}, 5, true, 5, []uint64{0}, "fenced"},
			"an odd one, then fenced":   {[]int64{666}, 5, true, 6, []uint64{0}, "fenced"},
			"odd and good, then fenced": {[]int64{1, 666, 2}, 5, true, map[bool]int{false: 5, true: 6}[inOrder], map[bool][]uint64{true: {1}}[inOrder], "fenced"},
		} {
			t.Run(fmt.Sprintf("%s, deterministic %v", name, inOrder), func(t *testing.T) {
				t.Parallel()
				tc.run(t, inOrder)
			})
		}
	}
}

// learnOne learns records as one batch of partition 0, up to offset 10.
func (l *learner) learnOne(ctx context.Context, w *world, recs []kafka.Record) error {
	st, of := l.ring.steps[0], step.Span{Recs: recs, From: 0, To: 10}
	learn := l.halving
	if l.s.cfg.Deterministic {
		learn, of.When.Turn = l.sifted, w.shards[0].now.turn
	}
	if err := st.load(of); err != nil {
		return err
	}
	return learn(ctx, ctx, st)
}

func (tc *oddCase) run(t *testing.T, inOrder bool) {
	bad := modelspec.FID(1, 666)
	w := newWorld(t, 1, 2)
	w.poisoned(func(fid int64) bool { return fid == bad })
	l := w.learning(func(c *Config) { c.Deterministic = inOrder })
	l.odd = tc.odd
	if tc.fenced {
		for _, s := range w.shards {
			s.epochs[0] = 9
		}
	}
	recs := records(0, tc.users...)
	err := l.learnOne(t.Context(), w, recs)
	if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(strings.ToLower(err.Error()), tc.says) && !(tc.fenced && attempt.Refusal(err) == rowwire.Fenced) {
		t.Errorf("%v, want %q", err, tc.says)
	}
	if l.odd != tc.want || !slices.Equal(w.letters(), tc.letters) {
		t.Errorf("%d odd ones in a row, want %d; parked are %v, want %v", l.odd, tc.want, w.letters(), tc.letters)
	}
	tc.told(w, l, recs, err)
	for i, s := range w.shards {
		if next := s.now.next[0]; tc.says == "" && next != 10 || tc.says != "" && next != 0 {
			t.Errorf("shard %d stands at %d", i, next)
		}
	}
}

// told fails unless the model's divergence, and nothing else, is a fact, once.
func (tc *oddCase) told(w *world, l *learner, recs []kafka.Record, err error) {
	t := w.t
	t.Helper()
	facts, _ := w.facts(l.s.own())
	told := 0
	for _, f := range facts {
		if h := f.GetHealthFailed(); h != nil {
			told++
			if h.GetFrom() != 0 || h.GetTo() != 10 || h.GetPartition() != 0 {
				t.Errorf("healthFailed %v", h)
			}
		}
	}
	diverged := errors.Is(err, errDiverged)
	if l.diverged != diverged || (told == 1) != diverged || told > 1 {
		t.Errorf("diverged %v, told %d times", l.diverged, told)
	}
	if diverged {
		if err := l.learnOne(t.Context(), w, recs); !errors.Is(err, errDiverged) {
			t.Errorf("once more: %v", err)
		}
		if again, _ := w.facts(l.s.own()); len(again) != len(facts) {
			t.Error("it is told twice")
		}
	}
}

// A letter that cannot be parked keeps its record from being learnt over; from the third
// attempt on people see it.
func TestLettersThatCannotBeParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		letters := &failingLetters{DeadLetters: w.b.DeadLetters(), err: fmt.Errorf("parking: %w", bus.ErrUnavailable)}
		s.env.Bus = otherLetters{w.b, letters}
		l := &learner{s: s, reader: s.source.Open("", 0, func(error) {})}
		r := step.Rejected{Record: kafka.Record{Topic: "ratings", Offset: 7, Headers: map[string]string{"b": "2", "a": "1"}}, Reason: "odd"}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { ended <- l.park(ctx, r) }()
		synctest.Wait()
		for n := 1; n <= health.Reported+1; n++ {
			for letters.tried() < n {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			want := ""
			if n >= health.Reported {
				want = "parking"
			}
			says(t, s, fmt.Sprint("attempt ", n), healthLetters, want)
		}
		letters.fail(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		says(t, s, "parked", healthLetters, "")
		all, err := w.b.DeadLetters().List(t.Context())
		if err != nil || len(all) != 1 || all[0].Stream != "kafka:ratings/0" || all[0].StreamSeq != 7 || all[0].Reason != "odd" || fmt.Sprint(all[0].Header) != "map[a:[1] b:[2]]" {
			t.Errorf("letters %+v, %v", all, err)
		}
		for _, err := range []error{errors.New("refused"), bus.ErrUnavailable} {
			letters.fail(err)
			if err == bus.ErrUnavailable {
				cancel()
			}
			if got := l.park(ctx, r); !errors.Is(got, err) || letters.tried() != 1 {
				t.Errorf("%v: %v after %d attempts", err, got, letters.tried())
			}
		}
	})
}

type failingLetters struct {
	bus.DeadLetters
	mu    sync.Mutex
	err   error
	tries int
}

// fail has attempts end with err from now on, nil: well, and counts them anew.
func (l *failingLetters) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.tries = err, 0
}

func (l *failingLetters) tried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tries
}

func (l *failingLetters) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries++
	if l.err != nil {
		return 0, l.err
	}
	return l.DeadLetters.Park(context.WithoutCancel(ctx), p)
}

// Where a learner begins: at what the topic still has, where it stopped, or where the job
// began when others have gone on.
func TestWhereALearnerBegins(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(30)
	w.deleteBelow(0, 10)
	l := w.learning(func(*Config) {})
	b := l.s.started()
	b.Partitions, b.Begins = 1, map[int32]int64{0: 4}
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
	w.caughtUp(l.s)
	for name, tc := range map[string]struct {
		pos  shards.Position
		want int64
	}{
		"nothing was learnt":      {shards.Position{}, 10},
		"learnt up to somewhere":  {shards.Position{From: 17}, 17},
		"learnt one":              {shards.Position{From: 1}, 1},
		"others have gone on":     {shards.Position{Cuts: []int64{20}}, 4},
		"others, and this one":    {shards.Position{From: 6, Cuts: []int64{20}}, 6},
		"others are nowhere else": {shards.Position{Cuts: []int64{}}, 10},
	} {
		if got, err := l.start(t.Context(), tc.pos); err != nil || got != tc.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, tc.want)
		}
	}
}

// The log that is learnt from holds all that was learnt; one that ends there has nothing left
// that could fail.
func TestWhatTheLogMustHold(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(30)
	l := w.learning(func(*Config) {})
	ill := func() { l.s.env.Health.Fail(l.named("learning"), errors.New("it fails")) }
	for _, tc := range []struct {
		from int64
		well bool
		lost bool
	}{{0, false, false}, {29, false, false}, {30, true, false}, {31, false, true}} {
		ill()
		err := l.checkLog(t.Context(), shards.Position{From: tc.from}, -1)
		if errors.Is(err, kafka.ErrTruncated) != tc.lost || !tc.lost && err != nil || attempt.Lost(err) != tc.lost {
			t.Errorf("learnt up to %d: %v", tc.from, err)
		}
		says(t, l.s, fmt.Sprint("learnt up to ", tc.from), l.named("learning"), map[bool]string{false: "it fails"}[tc.well])
	}
	for err, want := range map[error]bool{kafka.ErrOutOfRange: true, kafka.ErrTruncated: true, kafka.ErrTopicChanged: true, kafka.ErrCorrupt: true, errors.New("x"): false, kafka.ErrClosed: false} {
		if attempt.Lost(err) != want {
			t.Errorf("with %v the log is lost: %v", err, !want)
		}
	}
	// What any shard has learnt counts, unless all of them go back to one cut.
	if _, _, err := l.reader.Bounds(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader := l.reader.LeaderEpoch()
	for _, tc := range []struct {
		cuts    []int64
		leader  int32
		inOrder bool
		lost    bool
	}{{nil, leader, false, false}, {[]int64{30}, leader, false, false}, {[]int64{20, 31}, leader, false, true}, {[]int64{31}, leader, true, false}, {[]int64{30}, -1, false, false}, {[]int64{31}, -1, false, true}, {nil, leader + 1, false, true}} {
		l.s.cfg.Deterministic = tc.inOrder
		if err := l.checkLog(t.Context(), shards.Position{From: 10, Cuts: tc.cuts}, tc.leader); errors.Is(err, kafka.ErrTruncated) != tc.lost || !tc.lost && err != nil {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	l.s.cfg.Deterministic = false
	if err := l.checkLog(t.Context(), shards.Position{}, leader+1); err != nil {
		t.Errorf("nothing was learnt yet: %v", err)
	}
	// The newest cut that knows its leader epoch is the one that counts.
	for id, epochs := range []map[int32]int32{{0: 99}, {0: 0}, nil} {
		w.append(jobSubject(), &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: &training.Checkpoint{
			Id: int64(id + 1), Dir: w.dir, Offsets: map[int32]int64{0: 20}, LeaderEpochs: epochs, Shards: []*training.ShardFile{{Path: "p", Hash: "h"}}}}}})
	}
	w.caughtUp(l.s)
	if err := l.checkLog(t.Context(), shards.Position{From: 20}, -1); err != nil {
		t.Errorf("a cut of this leader epoch: %v", err)
	}
	w.append(jobSubject(), &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: &training.Checkpoint{
		Id: 4, Dir: w.dir, Offsets: map[int32]int64{0: 40}, LeaderEpochs: map[int32]int32{0: 0}, Shards: []*training.ShardFile{{Path: "p", Hash: "h"}}}}}})
	w.caughtUp(l.s)
	if err := l.checkLog(t.Context(), shards.Position{From: 20}, -1); !errors.Is(err, kafka.ErrTruncated) || !strings.Contains(err.Error(), "checkpoint 4") {
		t.Errorf("a cut beyond the log: %v", err)
	}
}

// A bounded partition is learnt to its end and no further, in either mode.
func TestABoundedPartitionIsDone(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		for _, end := range []int64{0, 15, 16, 17, 20} {
			t.Run(fmt.Sprintf("%d, deterministic %v", end, inOrder), func(t *testing.T) {
				w := newWorld(t, 1, 1)
				w.write(20)
				l := w.learning(func(c *Config) { c.Deterministic = inOrder })
				b := l.s.started()
				b.Partitions, b.Ends = 1, map[int32]int64{0: end}
				w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
				w.caughtUp(l.s)
				l.turns.Ends = []int64{end}
				ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
				defer cancel()
				for range 2 {
					if err := l.learnFrom(ctx, ctx, shards.Position{From: w.shards[0].now.next[0], Level: true}); !errors.Is(err, errDone) {
						t.Errorf("%v", err)
					}
					if next := w.shards[0].now.next[0]; next != end {
						t.Errorf("the shard stands at %d, want %d", next, end)
					}
				}
				if got, want := len(w.shards[0].now.ranges), int((end+15)/16); got != want {
					t.Errorf("%d batches, want %d", got, want)
				}
			})
		}
	}
}

// In deterministic mode a partition goes on at a batch's beginning, or at its end.
func TestWhereADeterministicPartitionGoesOn(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(40)
	l := w.learning(func(c *Config) { c.Deterministic = true })
	b := l.s.started()
	b.Partitions, b.Ends = 1, map[int32]int64{0: 20}
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
	w.caughtUp(l.s)
	l.turns.Ends = []int64{20}
	for from, want := range map[int64]string{1: "no multiple of the batch size 16", 17: "no multiple of the batch size 16", 19: "no multiple", 20: errDone.Error(), 21: errDone.Error()} {
		if err := l.learnFrom(t.Context(), t.Context(), shards.Position{From: from, Level: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("at %d: %v, want %q", from, err, want)
		}
	}
}

// A learner at the end of a bounded partition waits for a shard that has lost some of it, and
// goes on at once where one has lost it already.
func TestTheEndOfABoundedPartition(t *testing.T) {
	w := newWorld(t, 1, 2)
	l := w.learning(func(*Config) {})
	b := l.s.started()
	b.Partitions, b.Ends = 1, map[int32]int64{0: 10}
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
	w.caughtUp(l.s)
	ended := make(chan struct{})
	awaits := func(ctx context.Context, at ...int64) {
		for i, s := range w.shards {
			s.mu.Lock()
			s.now.next = map[int32]int64{0: at[i]}
			s.saved = s.now.clone()
			s.mu.Unlock()
		}
		go func() { l.awaitWork(ctx); ended <- struct{}{} }()
	}
	soon := func(what string) {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(wait.Patience):
			t.Fatalf("%s: it waits", what)
		}
	}
	awaits(t.Context(), 10, 9)
	soon("a shard lacks some")
	awaits(t.Context(), 10, 10)
	select {
	case <-ended:
		t.Fatal("all shards have all, and it does not wait")
	case <-time.After(50 * time.Millisecond):
	}
	w.shards[1].crash()
	soon("a shard came back")
	ctx, cancel := context.WithCancel(t.Context())
	awaits(ctx, 10, 11)
	cancel()
	soon("after the end of ctx")
}
