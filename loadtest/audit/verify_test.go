package audit

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func verify(t *testing.T, in Inputs) []Check {
	t.Helper()
	checks, err := Verify(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func TestVerifyIsContentWithTheTruth(t *testing.T) {
	w := newWorld(t, tamper{})
	r := w.report()
	if r.RatingsTrained != 60 || r.RatingsRejected != 2 || r.Freshness.Samples != 60 || r.Run.Scored != 54 || r.Run.Compared != 30 {
		t.Fatalf("the world is not the one the tests are about: %+v", r)
	}
	in := w.inputs(r)
	in.Source = &source{w.ratings}
	in.Replicas = []Replica{{Name: "ps:0/0", Model: model, Shard: 0, Rows: scanner{w: w, v: 0}}, {Name: "ps:1/0", Model: model, Shard: 1, Rows: scanner{w: w, v: 1}}}
	checks := verify(t, in)
	for _, c := range checks {
		if !c.OK {
			t.Error(c)
		}
	}
	if len(checks) < 25 || !Passed(checks) {
		t.Errorf("%d checks, passed: %t", len(checks), Passed(checks))
	}

	// Without the acks only a bound can be checked; the truth keeps it.
	in = w.inputs(r)
	in.Acks = nil
	if checks := verify(t, in); !Passed(checks) {
		t.Errorf("without acks: %v", checks)
	}
}

// TestVerifyOfARunWithoutSomeImpressions passes: impressions are dropped while the topic
// does not take them, and the report says how many.
func TestVerifyOfARunWithoutSomeImpressions(t *testing.T) {
	w := newWorld(t, tamper{impress: func(i *impression.Impression) bool { return i.Model != model || i.RequestID != "s-15" || i.Row != 1 }})
	r := w.report()
	if r.Run.Unlogged != 1 {
		t.Fatalf("%d scores without an impression", r.Run.Unlogged)
	}
	for _, c := range verify(t, w.inputs(r)) {
		if !c.OK {
			t.Error(c)
		}
	}
}

// TestVerifyAfterTheReport leaves out what came behind it: records, refusals, facts,
// deltas, and a checkpoint that retention has removed since.
func TestVerifyAfterTheReport(t *testing.T) {
	w := newWorld(t, tamper{})
	r := w.report()
	grown := *w.topic
	grown.Ends = map[int32]int64{0: 31, 1: 31}
	grown.Records = append(slices.Clone(w.topic.Records), kafka.Record{Topic: topic, Partition: 0, Offset: 30, Value: []byte(`{"userId":1,"movieId":1,"rating":5,"timestamp":1}`)})
	if _, err := w.bus.DeadLetters().Park(t.Context(), bus.Parked{Reason: "another", By: "trainer", Stream: "kafka:ratings/0", StreamSeq: 29, Subject: topic, Data: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	in := w.inputs(r)
	in.Ratings = &grown
	in.Replicas = []Replica{{Name: "ps:0/0", Model: "nobody asks for it", Rows: nil}}
	said := false
	for _, c := range verify(t, in) {
		said = said || c.Name == "ratings since the report" && c.Got == "1"
		if !c.OK {
			t.Error(c)
		}
	}
	if !said {
		t.Error("nothing is said of the rating that came later")
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "model.ckpt-3")); err != nil {
		t.Fatal(err)
	}
	for _, c := range verify(t, in) {
		if !c.OK {
			t.Error(c)
		}
	}
}

func TestReplayEqual(t *testing.T) {
	w := newWorld(t, tamper{})
	live := w.report().Hashes
	if ok, sentence, err := ReplayEqual(t.Context(), w.bus.Log(), "", live); !ok || sentence != "" || err != nil {
		t.Errorf("the truth: %t, %q, %v", ok, sentence, err)
	}
	if ok, _, err := ReplayEqual(t.Context(), w.bus.Log(), "", nil); ok || err != nil {
		t.Errorf("no view at all: %t, %v", ok, err)
	}
	live["plan"] = report.ViewHash{Seq: live["plan"].Seq, Hash: "0"}
	if ok, sentence, err := ReplayEqual(t.Context(), w.bus.Log(), "", live); ok || !strings.Contains(sentence, "view plan") || err != nil {
		t.Errorf("another hash: %t, %q, %v", ok, sentence, err)
	}
}

func TestVerifyNeedsItsInputs(t *testing.T) {
	w := newWorld(t, tamper{})
	truth, err := w.report().JSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Inputs){
		"no report":          func(in *Inputs) { in.Report = nil },
		"no topic":           func(in *Inputs) { in.Ratings = nil },
		"log too short":      func(in *Inputs) { in.Report.Run.LogSeq = 10_000 },
		"deltas too short":   func(in *Inputs) { in.Report.Run.SyncSeq = 10_000 },
		"view in the future": func(in *Inputs) { in.Report.Hashes = map[string]report.ViewHash{"fleet": {Seq: 10_000}} },
		"unknown view":       func(in *Inputs) { in.Report.Hashes = map[string]report.ViewHash{"weather": {Seq: 1}} },
	} {
		r := new(report.Report)
		if err := json.Unmarshal(truth, r); err != nil {
			t.Fatal(err)
		}
		in := w.inputs(r)
		spoil(&in)
		if checks, err := Verify(t.Context(), in); err == nil {
			t.Errorf("%s: %v", name, checks)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, w.inputs(w.report())); err == nil {
		t.Error("a cancelled verification says that it is done")
	}
}

// source plays ratings once.
type source struct{ left []rating.Rating }

func (s *source) Next() (rating.Rating, bool) {
	if len(s.left) == 0 {
		return rating.Rating{}, false
	}
	r := s.left[0]
	s.left = s.left[1:]
	return r, true
}

func (s *source) Best() (float64, bool) { return 0, false }

// scanner is a serving replica of shard v that serves what the training shards hold, in
// pages of three.
type scanner struct {
	w         *world
	v         int
	show      func(table string, row []float32) []float32 // nil: whole
	skipZeros bool
}

func (s scanner) Lookup(context.Context, *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	return nil, rowwire.Errorf(rowwire.Invalid, "not here")
}

func (s scanner) Apply(context.Context, *rowwire.ApplyRequest) (*rowwire.ApplyResponse, error) {
	return nil, rowwire.Errorf(rowwire.Invalid, "not here")
}

func (s scanner) Dense(context.Context, *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	return nil, rowwire.Errorf(rowwire.Invalid, "not here")
}

func (s scanner) Offsets(context.Context, *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	return nil, rowwire.Errorf(rowwire.Invalid, "not here")
}

func (s scanner) Scan(_ context.Context, r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	if r.Model != model || r.Shard != uint32(s.v) {
		return nil, rowwire.Errorf(rowwire.NotFound, "%s/%d is not served", r.Model, r.Shard)
	}
	out := &rowwire.ScanResponse{Dim: 2}
	for _, row := range s.w.shards[s.v].Tables[r.Table] { // training and serving shards are both 2
		if row.ID <= r.After {
			continue
		}
		if len(out.IDs) == 3 {
			out.More = true
			break
		}
		if s.skipZeros && row.Values[0] == 0 && row.Values[1] == 0 {
			continue
		}
		if s.show != nil {
			row.Values = s.show(r.Table, row.Values)
		}
		out.IDs, out.Values = append(out.IDs, row.ID), append(out.Values, row.Values...)
	}
	return out, nil
}

func TestHalfPrecision(t *testing.T) {
	for h, want := range map[uint16]float32{
		0: 0, 0x8000: float32(math.Copysign(0, -1)), 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 0x1p-24, 0x0400: 0x1p-14, 0x3555: 0.333251953125, 0x7c00: float32(math.Inf(1)),
	} {
		if got := fromHalf(h); math.Float32bits(got) != math.Float32bits(want) {
			t.Errorf("fromHalf(%#x) = %v, want %v", h, got, want)
		}
	}
}

// moving is a log of a job that goes on: then happens once it was read for the first time.
type moving struct {
	bus.Log
	then func()
}

func (m *moving) Follow(ctx context.Context, from, until uint64, f func(events.Recorded) error) error {
	err := m.Log.Follow(ctx, from, until, f)
	if m.then != nil {
		m.then()
		m.then = nil
	}
	return err
}

// disk has all that a shard wrote on a disk of its own.
func (w *world) disk(shard string) (dir string) {
	w.t.Helper()
	dir = w.t.TempDir()
	for _, pattern := range []string{"model.ckpt-*/" + shard, "exported_models/" + shard} {
		found, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil || len(found) == 0 {
			w.t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		for _, path := range found {
			rel, err := filepath.Rel(w.dir, path)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(filepath.Join(dir, rel)), 0o755)
			}
			if err == nil {
				err = os.Rename(path, filepath.Join(dir, rel))
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return dir
}

// TestVerifyJob proves a job without a report, and finds what is wrong with it.
func TestVerifyJob(t *testing.T) {
	for name, tc := range map[string]struct {
		world tamper
		lie   func(*world, *JobInputs)
		fails []string
		says  string
	}{
		"nothing is wrong": {},
		"the topic is another one": {
			lie: func(_ *world, in *JobInputs) {
				in.Bounds = func(context.Context) (_, _ map[int32]int64, _ error) {
					return map[int32]int64{0: 0, 1: 0}, map[int32]int64{0: 30, 1: 12}, nil
				}
			},
			fails: []string{"the last checkpoint lies within the topic"}, says: "records were removed unlearnt, or the topic is another one",
		},
		"a delta is dropped": {
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft { return append(ds[:7:7], ds[8:]...) }},
			fails: []string{"deltas of training shard 1", "rows folded from all deltas", "export 1 and the deltas"}, says: "are in none",
		},
		"a delta is lost on disk": {
			lie:   func(_ *world, in *JobInputs) { in.Deltas = hole{in.Deltas, 2} },
			fails: []string{"deltas missing within the stream"},
		},
		"the newest checkpoint is gone": {
			lie:   func(w *world, _ *JobInputs) { _ = os.RemoveAll(filepath.Join(w.dir, "model.ckpt-3")) },
			fails: []string{"every checkpoint reads back"},
		},
		"retention removes files while they are read": {
			lie: func(w *world, in *JobInputs) {
				in.Log = &moving{Log: in.Log, then: func() {
					_ = os.RemoveAll(filepath.Join(w.dir, "model.ckpt-3"))
					w.save(flushes+1, nil)
					_ = os.RemoveAll(filepath.Join(w.dir, "exported_models", "entry", "1"))
					w.export(2)
				}}
			},
		},
		"an export is gone": {
			lie:   func(w *world, _ *JobInputs) { _ = os.RemoveAll(filepath.Join(w.dir, "exported_models", "ps_1", "1")) },
			fails: []string{"export 1 and the deltas"}, says: "ps_1/1 lies in none of",
		},
		"a shard has a disk of its own": {
			lie: func(w *world, in *JobInputs) { in.Parts = checkpoint.Folders{w.t.TempDir(), w.disk("ps_1")} },
		},
		"a shard's disk is not named": {
			lie:   func(w *world, _ *JobInputs) { w.disk("ps_1") },
			fails: []string{"every checkpoint reads back"}, says: "model.ckpt-3/ps_1 lies in none of",
		},
		"a live view is another": {
			lie:   func(_ *world, in *JobInputs) { in.Hashes["fleet"] = report.ViewHash{Seq: 2, Hash: "00"} },
			fails: []string{"view fleet at 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.world)
			in := JobInputs{BZID: bzid, Job: job, Log: w.bus.Log(), Deltas: w.bus.Deltas(), Shards: 2, Hashes: map[string]report.ViewHash{"plan": {Seq: 3, Hash: hashAt(t, w, "plan", 3)}}}
			in.Bounds = func(context.Context) (_, _ map[int32]int64, _ error) { return w.topic.First, w.topic.Ends, nil }
			if tc.lie != nil {
				tc.lie(w, &in)
			}
			checks, err := VerifyJob(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var failed, details []string
			for _, c := range checks {
				if !c.OK {
					failed, details = append(failed, c.Name), append(details, c.Detail)
				}
			}
			if !slices.EqualFunc(failed, tc.fails, strings.HasPrefix) || !strings.Contains(strings.Join(details, "\n"), tc.says) {
				t.Errorf("failed: %q, want %q; %q", failed, tc.fails, details)
			}
			if len(checks) < 3 {
				t.Errorf("only %d checks", len(checks))
			}
		})
	}
}
