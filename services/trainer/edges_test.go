package trainer

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/step"
)

func TestConfigAtItsBounds(t *testing.T) {
	good := Config{Job: "j", Model: "m", Brokers: []string{"h:1"}, Dir: "/d"}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"the least":          {func(*Config) {}, true},
		"a slash":            {func(c *Config) { c.Job = "a/b" }, false},
		"no job":             {func(c *Config) { c.Job = "" }, false},
		"no model":           {func(c *Config) { c.Model = "" }, false},
		"the first":          {func(c *Config) { c.Index = 0 }, true},
		"before the first":   {func(c *Config) { c.Index = -1 }, false},
		"no brokers":         {func(c *Config) { c.Brokers = nil }, false},
		"no topic's name":    {func(c *Config) { c.Topic = "a b" }, false},
		"one shard":          {func(c *Config) { c.Shards = 1 }, true},
		"less than one":      {func(c *Config) { c.Shards = -1 }, false},
		"one record":         {func(c *Config) { c.Batch = 1 }, true},
		"the most records":   {func(c *Config) { c.Batch = step.MaxBatch }, true},
		"one more":           {func(c *Config) { c.Batch = step.MaxBatch + 1 }, false},
		"fewer than none":    {func(c *Config) { c.Batch = -1 }, false},
		"a second":           {func(c *Config) { c.Linger = time.Second }, true},
		"more than that":     {func(c *Config) { c.Linger = time.Second + 1 }, false},
		"linger below 0":     {func(c *Config) { c.Linger = -1 }, false},
		"ahead":              {func(c *Config) { c.RecordAhead = 1 }, true},
		"behind":             {func(c *Config) { c.RecordAhead = -1 }, false},
		"no checkpoints":     {func(c *Config) { c.CheckpointEvery = 0 }, true},
		"negative":           {func(c *Config) { c.CheckpointEvery = -1 }, false},
		"every export":       {func(c *Config) { c.ExportEvery = 1 }, true},
		"no export":          {func(c *Config) { c.ExportEvery = -1 }, false},
		"keep one":           {func(c *Config) { c.Keep = 1 }, true},
		"keep most":          {func(c *Config) { c.Keep = maxKeep }, true},
		"keep more":          {func(c *Config) { c.Keep = maxKeep + 1 }, false},
		"keep none":          {func(c *Config) { c.Keep = -1 }, false},
		"a relative folder":  {func(c *Config) { c.Dir = "d" }, false},
		"one second":         {func(c *Config) { c.LeaseTTL = time.Second }, true},
		"a second and some":  {func(c *Config) { c.LeaseTTL = time.Second + time.Millisecond }, false},
		"less than a second": {func(c *Config) { c.LeaseTTL = time.Millisecond }, false},
		"any label":          {func(c *Config) { c.LabelRange = []float64{} }, true},
		"a range":            {func(c *Config) { c.LabelRange = []float64{0, 5} }, true},
		"a point":            {func(c *Config) { c.LabelRange = []float64{5, 5} }, false},
		"reversed":           {func(c *Config) { c.LabelRange = []float64{5, 0} }, false},
		"one number":         {func(c *Config) { c.LabelRange = []float64{5} }, false},
		"three":              {func(c *Config) { c.LabelRange = []float64{1, 2, 3} }, false},
		"open below":         {func(c *Config) { c.LabelRange = []float64{math.Inf(-1), 0} }, false},
		"open above":         {func(c *Config) { c.LabelRange = []float64{0, math.Inf(1)} }, false},
		"Examples":           {func(c *Config) { c.Format = "example" }, true},
		"no known format":    {func(c *Config) { c.Format = "xml" }, false},
		"no number":          {func(c *Config) { c.LabelRange = []float64{math.NaN(), 1} }, false},
	} {
		c := good
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := (&Config{Format: "example", LabelRange: []float64{1, 5}, TimeField: "t"}).input(); got != (input.Options{Format: input.Example, Min: 1, Max: 5, TimeField: "t"}) {
		t.Errorf("records are read by %+v", got)
	}
	if got := (&Config{}).input(); got != (input.Options{}) {
		t.Errorf("records are read by %+v where nothing is said", got)
	}
}

// A topic that is another, or smaller, is not learnt; one that grew is.
func TestWhetherATopicFits(t *testing.T) {
	topic := func(id string, n int) kafka.Topic {
		return kafka.Topic{ID: id, Partitions: make([]kafka.Partition, n)}
	}
	for _, inOrder := range []bool{false, true} {
		s := &chief.Trainer{Settings: chief.Settings{Job: "j", Topic: "t", Deterministic: inOrder}, Source: source.Topic{Name: "t"}}
		for name, tc := range map[string]struct {
			b    *training.JobStarted
			t    kafka.Topic
			fits bool
			n    int32
		}{
			"the same":          {&training.JobStarted{TopicId: "a", Partitions: 2}, topic("a", 2), true, 2},
			"another":           {&training.JobStarted{TopicId: "a", Partitions: 2}, topic("b", 2), false, 2},
			"an id unknown":     {&training.JobStarted{Partitions: 2}, topic("b", 2), true, 2},
			"an id not told":    {&training.JobStarted{TopicId: "a", Partitions: 2}, topic("", 2), true, 2},
			"a partition more":  {&training.JobStarted{TopicId: "a", Partitions: 2}, topic("a", 3), true, 3},
			"a partition fewer": {&training.JobStarted{TopicId: "a", Partitions: 2}, topic("a", 1), false, 2},
		} {
			if err := s.Fits(tc.b, tc.t); (err == nil) != tc.fits {
				t.Errorf("%s: %v", name, err)
			}
			want := tc.n
			if inOrder {
				want = 2
			}
			if got := s.PartitionsOf(tc.b, tc.t); got != want {
				t.Errorf("%s: %d partitions, want %d", name, got, want)
			}
		}
		if got := s.PartitionsOf(nil, topic("a", 4)); got != 4 {
			t.Errorf("a job that begins: %d partitions", got)
		}
	}
	s := &chief.Trainer{}
	ends := map[int32]int64{0: 5}
	for name, tc := range map[string]struct {
		b    *training.JobStarted
		ends map[int32]int64
		want *training.TopicUpdated
	}{
		"nothing":             {&training.JobStarted{TopicId: "a", Partitions: 2}, nil, nil},
		"an id":               {&training.JobStarted{Partitions: 2}, nil, &training.TopicUpdated{TopicId: "a"}},
		"a partition":         {&training.JobStarted{TopicId: "a", Partitions: 1}, nil, &training.TopicUpdated{Partitions: 2}},
		"an end":              {&training.JobStarted{TopicId: "a", Partitions: 2}, ends, &training.TopicUpdated{Ends: ends}},
		"an end that was set": {&training.JobStarted{TopicId: "a", Partitions: 1, Ends: ends}, ends, nil},
	} {
		got := s.Update(tc.b, topic("a", 2), tc.ends).GetTopicUpdated()
		if (got == nil) != (tc.want == nil) || tc.want != nil && !proto.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if chief.Ends(&training.JobStarted{Partitions: 2}) != nil {
		t.Error("a job without an end has some")
	}
	if got := chief.Ends(&training.JobStarted{Partitions: 2, Ends: map[int32]int64{1: 7}}); !slices.Equal(got, []int64{0, 7}) {
		t.Errorf("ends %v", got)
	}
}

// A trainer joins only the job that it was started for.
func TestWhatAJobDiffersIn(t *testing.T) {
	e, err := step.New(trainertest.SmallSpec(), 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: Config{Job: "j", Model: "m", Topic: "t", Shards: 2}, engine: e}
	for name, tc := range map[string]struct {
		change func(*training.JobStarted)
		says   string
	}{
		"nothing":          {func(*training.JobStarted) {}, ""},
		"what is Kafka's":  {func(b *training.JobStarted) { b.Partitions, b.TopicId, b.Ends = 7, "x", map[int32]int64{0: 1} }, ""},
		"no hash":          {func(b *training.JobStarted) { b.SpecHash = "" }, ""},
		"another hash":     {func(b *training.JobStarted) { b.SpecHash = "i" }, "another declaration"},
		"another order":    {func(b *training.JobStarted) { b.Deterministic = true }, "deterministic true, not false"},
		"shards and topic": {func(b *training.JobStarted) { b.Shards, b.Topic = 3, "u" }, "topic u, not t and shards 3, not 2"},
	} {
		b := s.started()
		tc.change(b)
		if err := s.differs(b); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// How a checkpoint on command ends is told by its code: whether asking again may help.
func TestAnswersToACheckpointOnCommand(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"made": {nil, ""}, "it passes": {bus.ErrUnavailable, "UNAVAILABLE"}, "it stays": {errors.New("no space left"), "INTERNAL"},
		"refused for now": {bus.Refuse(bus.CodeConflict, "x"), "UNAVAILABLE"}, "refused for good": {bus.Refuse(bus.CodeInvalid, "x"), "INTERNAL"},
	} {
		c := (&chief.Trainer{Settings: chief.Settings{Job: theJob}}).Term(1)
		go func() {
			o := <-c.Asked
			o.Done <- chief.Answer{ID: 7, Seq: 9, Err: tc.err}
		}()
		body, err := c.HandleCheckpoint(t.Context(), nil)
		if tc.code == "" {
			if err != nil || string(body) != `{"checkpoint":7,"seq":9}` {
				t.Errorf("%s: %s, %v", name, body, err)
			}
			continue
		}
		var refused *bus.CommandError
		if !errors.As(err, &refused) || refused.Code != tc.code || !strings.Contains(refused.Error(), "checkpoint 7 failed") {
			t.Errorf("%s: %s, %v; want %s", name, body, err, tc.code)
		}
	}
}

// An end that nobody asked for is an error; one behind the end of ctx is clean.
func TestRunTellsWhyItEnds(t *testing.T) {
	w := newWorld(t, 1, 1)
	s, err := New(w.config("a", 0), services.Env{BZID: bzid, Bus: noLog{w.b}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, errNoLog) || !strings.HasPrefix(err.Error(), "trainer: find the end of the log") {
		t.Errorf("Run = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// A job that goes on as another ends its trainers with the difference.
func TestAJobThatBecomesAnotherIsLeft(t *testing.T) {
	w := newWorld(t, 1, 1)
	a := w.run(w.config("a", 0))
	j := w.until("the job runs", func(j lineage.Job) bool { return j.Started.V != nil && len(j.Checkpoints) > 0 })
	other := proto.CloneOf(j.Started.V)
	other.Shards = 9
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: other}})
	select {
	case err := <-a.done:
		if err == nil || !strings.Contains(err.Error(), "runs with shards 9, not 1") {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(wait.Patience):
		t.Error("the trainer stays")
	}
}

// noLog is a bus whose log cannot be read.
type noLog struct{ bus.Bus }

type brokenLog struct{ bus.Log }

var errNoLog = errors.New("the log is away")

func (b noLog) Log() bus.Log                           { return brokenLog{b.Bus.Log()} }
func (brokenLog) Last(context.Context) (uint64, error) { return 0, errNoLog }
