package trainer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
)

// caughtUp waits until the views of s hold what is in the log.
func (w *world) caughtUp(s *Server) {
	w.t.Helper()
	last, err := w.b.Log().Last(w.t.Context())
	if err == nil {
		err = errors.Join(s.requests.Wait(w.t.Context(), last), s.lineage.Wait(w.t.Context(), last), s.fleet.Wait(w.t.Context(), last))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func stopped() *training.Event {
	return &training.Event{Body: &training.Event_JobStopped{JobStopped: &training.JobStopped{Reason: "enough"}}}
}

func restored() *training.Event {
	return &training.Event{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{Checkpoint: 1, Reason: "it diverged"}}}
}

func startRequested() *training.Event {
	return &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{Reason: "go on"}}}
}

// away and gone are what keeps Kafka from answering: it is away, or has no such topic.
const away, gone = "away", "without the topic"

// startCase is a job, and a chief that starts it.
type startCase struct {
	runs    func(b *training.JobStarted) // what the job was started as, from what this trainer is; nil: never
	then    []*training.Event
	asked   bool // for its start
	stopAt  bool // --stop-at-end
	inOrder bool
	kafka   string
	fact    string // appended: started, updated, or none
	ends    bool   // in it
	says    string // of the error
}

// What the chief of a job appends at its start, by what the job is and how the trainer was
// started.
func TestStartsOfAJob(t *testing.T) {
	for name, tc := range map[string]startCase{
		"never ran":                             {fact: "started"},
		"never ran, with an end":                {stopAt: true, fact: "started", ends: true},
		"never ran, and Kafka is away":          {kafka: away, says: "waiting for the training topic"},
		"runs":                                  {runs: func(*training.JobStarted) {}},
		"runs, and Kafka is away":               {runs: func(*training.JobStarted) {}, kafka: away},
		"runs, on a topic that is not there":    {runs: func(*training.JobStarted) {}, kafka: gone, says: "waiting for the training topic"},
		"runs on another topic":                 {runs: func(b *training.JobStarted) { b.TopicId = "another" }, says: "train under a new job name"},
		"runs, and the topic's id is new":       {runs: func(b *training.JobStarted) { b.TopicId = "" }, fact: "updated"},
		"runs, and the topic has grown":         {runs: func(b *training.JobStarted) { b.Partitions = 1 }, fact: "updated"},
		"runs as another":                       {runs: func(b *training.JobStarted) { b.Shards = 3 }, says: "start this trainer alike"},
		"runs from before hashes":               {runs: func(b *training.JobStarted) { b.SpecHash = "" }, fact: "started"},
		"runs without an end, and gets one":     {runs: func(*training.JobStarted) {}, stopAt: true, fact: "updated", ends: true},
		"runs in order without an end":          {runs: func(b *training.JobStarted) { b.Deterministic = true }, stopAt: true, inOrder: true, says: "start it again with --stop-at-end"},
		"runs in order without an end, as told": {runs: func(b *training.JobStarted) { b.Deterministic = true }, inOrder: true},
		"runs with an end":                      {runs: func(b *training.JobStarted) { b.Ends = map[int32]int64{0: 7} }, stopAt: true},
		"runs with an end, Kafka is away":       {runs: func(b *training.JobStarted) { b.Ends = map[int32]int64{0: 7} }, stopAt: true, kafka: away},
		"gets an end, and Kafka is away":        {runs: func(*training.JobStarted) {}, stopAt: true, kafka: away, says: "waiting for the training topic"},
		"is stopped":                            {runs: func(*training.JobStarted) {}, then: []*training.Event{stopped()}, says: chief.ErrIdle.Error()},
		"is to go on":                           {runs: func(*training.JobStarted) {}, then: []*training.Event{stopped()}, asked: true, fact: "started"},
		"is to go on to the end":                {runs: func(*training.JobStarted) {}, then: []*training.Event{stopped()}, asked: true, stopAt: true, fact: "started", ends: true},
		"is to go on, and Kafka is away":        {runs: func(*training.JobStarted) {}, then: []*training.Event{stopped()}, asked: true, kafka: away, says: "waiting for the training topic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.run(t)
		})
	}
}

// job puts what the case says into the log of a world, and returns the trainer and the topic's id.
func (tc *startCase) job(w *world) (s *Server, topicID string) {
	t := w.t
	t.Helper()
	w.write(20)
	cfg := w.config("a", 0)
	cfg.StopAtEnd, cfg.Deterministic = tc.stopAt, tc.inOrder
	if tc.kafka == away {
		cfg.Brokers = []string{"127.0.0.1:1"}
	}
	s = w.view(cfg)
	there, err := kafka.Plain.Describe(t.Context(), []string{w.broker.Addr()}, "ratings")
	if err != nil {
		t.Fatal(err)
	}
	if tc.runs != nil {
		b := s.started()
		b.Partitions, b.TopicId = 2, there.ID
		tc.runs(b)
		w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
	}
	if tc.kafka == gone {
		w.remove()
	}
	for _, e := range tc.then {
		w.append(jobSubject(), e)
	}
	if tc.asked {
		w.append(jobSubject().Request(), startRequested())
	}
	w.caughtUp(s)
	return s, there.ID
}

func (tc *startCase) run(t *testing.T) {
	w := newWorld(t, 2, 1)
	s, topicID := tc.job(w)
	before, _ := w.facts(jobSubject())
	err := s.chief().Term(1).Start(t.Context())
	if (err == nil) != (tc.says == "") || !strings.Contains(fmt.Sprint(err), tc.says) && tc.says != "" {
		t.Errorf("start: %v, want %q", err, tc.says)
	}
	facts, headers := w.facts(jobSubject())
	facts, headers = facts[len(before):], headers[len(before):]
	if tc.fact == "" {
		if len(facts) != 0 {
			t.Errorf("appended %v", facts)
		}
		return
	}
	tc.check(t, facts, headers, topicID)
	w.caughtUp(s)
	if err := s.chief().Term(1).Start(t.Context()); err != nil {
		t.Errorf("once more: %v", err)
	}
	if again, _ := w.facts(jobSubject()); len(again) != len(before)+1 {
		t.Errorf("once more, it appended %v", again[len(before)+1:])
	}
}

// check fails unless the one fact is as wanted.
func (tc *startCase) check(t *testing.T, facts []*training.Event, headers []events.Header, topicID string) {
	t.Helper()
	if len(facts) != 1 {
		t.Fatalf("appended %v, want one", facts)
	}
	if (headers[0].Causation != "") != tc.asked {
		t.Errorf("caused by %q", headers[0].Causation)
	}
	var got map[int32]int64
	if tc.fact == "started" {
		b := facts[0].GetJobStarted()
		if got = b.GetEnds(); b.GetPartitions() != 2 || b.GetTopicId() != topicID || b.GetSpecHash() == "" || tc.runs == nil && len(b.GetBegins()) != 2 {
			t.Errorf("started %v", b)
		}
	} else {
		got = facts[0].GetTopicUpdated().GetEnds()
	}
	if facts[0].GetJobStarted() == nil != (tc.fact == "updated") || fmt.Sprint(got) != fmt.Sprint(map[bool]map[int32]int64{true: {0: 20, 1: 20}}[tc.ends]) {
		t.Errorf("%v, want %s with ends: %v", facts[0], tc.fact, tc.ends)
	}
}

// joinCase is a job as a trainer finds it.
type joinCase struct {
	runs       func(b *training.JobStarted)
	before     []*training.Event // this trainer began
	after      []*training.Event
	asked      bool
	stopAt     bool
	inOrder    bool
	unprepared bool
	want       error  // of joins
	says       string // likewise
	over       bool   // learning ends, cleanly
}

// What a trainer finds of its job when it comes, and while it learns.
func TestWhetherATrainerJoins(t *testing.T) {
	alike := func(*training.JobStarted) {}
	bounded := func(b *training.JobStarted) { b.Ends = map[int32]int64{0: 7} }
	for name, tc := range map[string]joinCase{
		"none":                            {want: errSoon},
		"alike":                           {runs: alike},
		"no model":                        {runs: alike, unprepared: true, want: errSoon},
		"another":                         {runs: func(b *training.JobStarted) { b.Shards = 2 }, says: "start this trainer alike"},
		"stopped before":                  {runs: alike, before: []*training.Event{stopped()}, want: chief.ErrIdle},
		"stopped since":                   {runs: alike, after: []*training.Event{stopped()}, want: errOver, over: true},
		"stopped before, sent back since": {runs: alike, before: []*training.Event{stopped()}, after: []*training.Event{restored()}, stopAt: true, asked: true, want: chief.ErrIdle},
		"stopped before, to its end":      {runs: alike, before: []*training.Event{stopped()}, stopAt: true, want: errOver},
		"stopped before, asked to go":     {runs: alike, before: []*training.Event{stopped()}, stopAt: true, asked: true, want: chief.ErrIdle},
		"without an end":                  {runs: alike, stopAt: true, says: "has no end yet"},
		"in order, without an end":        {runs: func(b *training.JobStarted) { b.Deterministic = true }, stopAt: true, inOrder: true, says: "which would change its order"},
		"with an end":                     {runs: bounded, stopAt: true},
		"with an end, whatever it does":   {runs: bounded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.leaves(t, tc.joins(t)) })
		})
	}
}

// joins checks what a trainer finds that comes, and returns it.
func (tc *joinCase) joins(t *testing.T) *Server {
	w := busOnly(t)
	cfg := w.alone()
	cfg.StopAtEnd, cfg.Deterministic = tc.stopAt, tc.inOrder
	s := w.view(cfg)
	if tc.unprepared {
		s.prepared = make(chan struct{})
	}
	if tc.runs != nil {
		b := s.started()
		b.Partitions = 1
		tc.runs(b)
		w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
	}
	for _, e := range tc.before {
		w.append(jobSubject(), e)
	}
	var err error
	if s.begin, err = w.b.Log().Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range tc.after {
		w.append(jobSubject(), e)
	}
	if tc.asked {
		w.append(jobSubject().Request(), startRequested())
	}
	w.caughtUp(s)
	switch err := s.joins(); {
	case tc.says != "":
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("joins: %v, want %q", err, tc.says)
		}
	case !errors.Is(err, tc.want) || tc.want == nil && err != nil:
		t.Errorf("joins: %v, want %v", err, tc.want)
	}
	return s
}

// leaves checks whether a trainer that learns goes. Nobody leaves a job that was stopped before,
// or has not begun: it may yet go on.
func (tc *joinCase) leaves(t *testing.T, s *Server) {
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.untilStopped(ctx) }()
	synctest.Wait()
	differs := tc.runs != nil && strings.Contains(tc.says, "alike")
	select {
	case err := <-ended:
		if !tc.over && !differs || (err != nil) != differs {
			t.Errorf("it leaves with %v", err)
		}
		ended <- nil
	default:
		if tc.over || differs {
			t.Error("it stays")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("at the end of ctx: %v", err)
	}
}

// A trainer waits for its job without ending, and says what it waits for once it is more than
// a start.
func TestATrainerWaitsForItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		joined := make(chan error, 1)
		go func() { joined <- s.join(t.Context()) }()
		waits := func(what, problem string) {
			t.Helper()
			synctest.Wait()
			says(t, s, what, healthJob, problem)
			select {
			case err := <-joined:
				t.Fatalf("%s: it has joined, %v", what, err)
			default:
			}
		}
		waits("no job", "")
		other := s.started()
		other.Partitions, other.Shards = 1, 9
		w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: other}})
		waits("another job", "shards 9, not 1")
		s.begin = 1 << 40 // as if it had begun behind the stop
		w.append(jobSubject(), stopped())
		waits("a stopped job", "")
		b := s.started()
		b.Partitions = 1
		w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
		synctest.Wait()
		if err := <-joined; err != nil {
			t.Error(err)
		}
		says(t, s, "joined", healthJob, "")
	})
}

// The clock that records are held against does not fall behind the newest checkpoint.
func TestHowLateARecordMayBeDated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		cfg := w.alone()
		cfg.RecordAhead = time.Hour
		s := w.view(cfg)
		if got, want := s.latestRecord(), time.Now().Add(time.Hour); !got.Equal(want) {
			t.Errorf("without a checkpoint: %v, want %v", got, want)
		}
		time.Sleep(90 * time.Minute)
		saved := time.Now()
		w.append(jobSubject(), &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: &training.Checkpoint{
			Id: 1, Dir: w.dir, Shards: []*training.ShardFile{{Path: "p", Hash: "h"}}}}}})
		w.caughtUp(s)
		for _, passed := range []time.Duration{0, time.Minute, 0} {
			time.Sleep(passed)
			if got, want := s.latestRecord(), time.Now().Add(time.Hour); !got.Equal(want) {
				t.Errorf("%v behind a checkpoint: %v, want %v", time.Since(saved), got, want)
			}
		}
	})
}
