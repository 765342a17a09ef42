package audit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// Each lie must be caught by the checks named, and by no others.
func TestVerifyCatches(t *testing.T) {
	truth, err := newWorld(t, tamper{}).report().JSON()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(d bus.DeltaDraft, change func(*delta.Delta)) bus.DeltaDraft {
		m := new(delta.Delta)
		if err := proto.Unmarshal(d.Data, m); err != nil {
			t.Fatal(err)
		}
		change(m)
		var err error
		if d.Data, err = proto.Marshal(m); err != nil {
			t.Fatal(err)
		}
		return d
	}
	// Deltas in the order of the world: shard 0: rows, dense, rows, dense, rows, dense;
	// shard 1: rows, rows, rows.
	for _, tc := range []struct {
		name  string
		world tamper
		lie   func(t *testing.T, w *world, in *Inputs)
		fails []string // beginnings of names
		says  string   // in one of the details
	}{
		{
			name: "a delta is dropped",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				return append(ds[:7:7], ds[8:]...)
			}},
			// The records it held were never served with it: their rows came later.
			fails: []string{"deltas of training shard 1", "freshness", "rows folded from all deltas", "export 1 and the deltas"},
			says:  "the records from 10 on are in none",
		},
		{
			name: "the last delta is dropped",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				return ds[:8]
			}},
			fails: []string{"deltas of training shard 1", "freshness", "rows folded from all deltas", "export 1 and the deltas"},
			says:  "the deltas end at offset 20, the topic at 30",
		},
		{
			name: "records are learnt twice",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				ds[7] = edit(ds[7], func(d *delta.Delta) { d.Ranges[0].From = 7 })
				return ds
			}},
			fails: []string{"deltas of training shard 1"},
			says:  "records were learnt twice",
		},
		{
			name: "an offset is skipped",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				for _, i := range []int{4, 8} {
					ds[i] = edit(ds[i], func(d *delta.Delta) { d.Ranges[0].From++ })
				}
				return ds
			}},
			fails: []string{"deltas of training shard 0", "deltas of training shard 1", "freshness samples", "AUC of biases", "lag"},
			says:  "begins at offset 21, so the records from 20 on are in none",
		},
		{
			name: "a bit of a row flips on its way",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				ds[8] = edit(ds[8], func(d *delta.Delta) {
					v := d.Rows[0].Values
					binary.LittleEndian.PutUint32(v, binary.LittleEndian.Uint32(v)^1)
				})
				return ds
			}},
			fails: []string{"rows folded from all deltas", "export 1 and the deltas"},
			says:  "differs in value 0",
		},
		{
			name: "a row is removed on its way",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				ds[8] = edit(ds[8], func(d *delta.Delta) {
					d.Rows[0].Removed = append(d.Rows[0].Removed, d.Rows[0].Ids[0])
					d.Rows[0].Ids = d.Rows[0].Ids[1:]
					d.Rows[0].Values = d.Rows[0].Values[8:]
				})
				return ds
			}},
			fails: []string{"rows folded from all deltas", "export 1 and the deltas"},
			says:  "is missing",
		},
		{
			name: "a dense variable is another",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				ds[5] = edit(ds[5], func(d *delta.Delta) { d.Dense[0].Values[0] ^= 1 })
				return ds
			}},
			fails: []string{"rows folded from all deltas", "export 1 and the deltas"},
			says:  "variable w differs in value 0",
		},
		{
			name:  "the checkpoint holds a row that nobody learnt",
			world: tamper{shards: func(s *[2]*checkpoint.Shard) { s[1].Tables["user"][0].Values[1] = 99 }},
			fails: []string{"rows folded from all deltas", "export 1 and the deltas"},
			says:  "the checkpoint has 99",
		},
		{
			name:  "the checkpoint's fact names other offsets",
			world: tamper{saved: func(c *training.Checkpoint) { c.Offsets[1] = 29 }},
			fails: []string{"every checkpoint", "the last checkpoint stands", "ratings learnt", "served rows"},
			says:  "partition 1 ends at offset 31, the checkpoint has learnt up to 29",
		},
		{
			name: "a byte of a checkpoint flips",
			lie: func(t *testing.T, w *world, in *Inputs) {
				path := filepath.Join(w.dir, "model.ckpt-3", "ps_1")
				files, err := os.ReadDir(path)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					if strings.Contains(f.Name(), "manifest") {
						continue
					}
					name := filepath.Join(path, f.Name())
					data, err := os.ReadFile(name)
					if err != nil {
						t.Fatal(err)
					}
					if len(data) == 0 {
						continue
					}
					data[len(data)/2] ^= 4
					if err := os.WriteFile(name, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			},
			fails: []string{"every checkpoint", "served rows"},
			says:  "checkpoint 3, shard 1",
		},
		{
			name: "a checkpoint's shard is gone",
			lie: func(t *testing.T, w *world, in *Inputs) {
				if err := os.RemoveAll(filepath.Join(w.dir, "model.ckpt-3", "ps_1")); err != nil {
					t.Fatal(err)
				}
			},
			fails: []string{"every checkpoint", "served rows"},
			says:  "checkpoint 3, shard 1",
		},
		{
			name: "a rating is not in Kafka",
			world: tamper{records: func(t *Topic) {
				t.Records = append(t.Records[:30:30], t.Records[31:]...) // rating 1: before anything was served
			}},
			fails: []string{"ratings in Kafka", "freshness", "AUC of biases"},
			says:  "lost on their way into Kafka",
		},
		{
			name: "a rating is in Kafka twice",
			world: tamper{records: func(t *Topic) {
				t.Records[31].Headers[rating.HeaderIndex] = "1"
			}},
			fails: []string{"each rating is stored once", "AUC of biases"},
			says:  "rating 1 of the source is stored twice",
		},
		{
			name:  "an impression is missing",
			world: tamper{impress: func(i *impression.Impression) bool { return i.Model != model || i.RequestID != "s-15" || i.Row != 1 }},
			fails: []string{"every scored rating left an impression", "scores without an impression", "ratings compared", "AUC online", "AUC frozen", "AUC of biases", "lag"},
			says:  "1 ratings name a request",
		},
		{
			name:  "an impression fewer is missing than the report says",
			lie:   func(_ *testing.T, _ *world, in *Inputs) { in.Report.Run.Unlogged = 1 },
			fails: []string{"scores without an impression"},
			says:  "other impressions than the report says",
		},
		{
			name: "the disk has lost a delta of dense variables",
			lie: func(_ *testing.T, w *world, in *Inputs) {
				in.Deltas = hole{in.Deltas, 2}
			},
			fails: []string{"deltas missing within the stream"},
			says:  "make a new export",
		},
		{
			name: "the entry of the export is cut short",
			lie: func(t *testing.T, w *world, _ *Inputs) {
				if err := os.Truncate(filepath.Join(w.dir, "exported_models", "entry", "1", "spec.json"), 20); err != nil {
					t.Fatal(err)
				}
			},
			fails: []string{"export 1 and the deltas"},
			says:  "spec.json",
		},
		{
			name: "the model scored otherwise than the report says",
			world: tamper{impress: func(i *impression.Impression) bool {
				if i.Model == model {
					i.Score = 1 - i.Score
				}
				return true
			}},
			fails: []string{"AUC online"},
			says:  "the impressions and labels give another figure",
		},
		{
			name:  "a replica served later than the report says",
			world: tamper{late: 3 * time.Second},
			fails: []string{"freshness"},
			says:  "the facts give another figure",
		},
		{
			name:  "an event more than was counted",
			world: tamper{event: true},
			lie:   func(t *testing.T, w *world, in *Inputs) { in.Report.Run.LogSeq++ },
			fails: []string{"events by type"},
			says:  "the log holds 1 metricReported, the report says 0",
		},
		{
			name: "a view's hash is another",
			lie: func(t *testing.T, w *world, in *Inputs) {
				h := in.Report.Hashes["fleet"]
				h.Hash = strings.Repeat("0", 64)
				in.Report.Hashes["fleet"] = h
			},
			fails: []string{"view fleet at"},
			says:  "folding the log from sequence 1 gives another state",
		},
		{
			name:  "the report claims more ratings",
			lie:   func(t *testing.T, w *world, in *Inputs) { in.Report.RatingsTrained++ },
			fails: []string{"ratings learnt"},
		},
		{
			name: "the report forgets a refusal",
			lie: func(t *testing.T, w *world, in *Inputs) {
				delete(in.Report.Rejected, "unexpected EOF")
				in.Report.RatingsRejected--
			},
			fails: []string{"ratings rejected", "rejected, by reason"},
		},
		{
			name:  "another version was served",
			lie:   func(t *testing.T, w *world, in *Inputs) { in.Report.ModelVersion = 7 },
			fails: []string{"the served version was exported"},
			says:  "no modelExported of that version",
		},
		{
			name: "the source had another rating",
			lie: func(t *testing.T, w *world, in *Inputs) {
				w.ratings[17].Rating = 0.5
				in.Source = &source{w.ratings}
			},
			fails: []string{"the topic holds the source"},
			says:  "rating 17 of the source is",
		},
		{
			name: "a replica serves an old row",
			lie: func(t *testing.T, w *world, in *Inputs) {
				w.shards[1].Tables["user"][0].Values[0]--
				in.Replicas = []Replica{{Name: "ps:1/0", Model: model, Shard: 1, Rows: scanner{w: w, v: 1}}}
			},
			fails: []string{"replica ps:1/0"},
			says:  "differs in value 0",
		},
		{
			name: "freshness without acks is better than its bound",
			lie: func(t *testing.T, w *world, in *Inputs) {
				in.Acks = nil
				in.Report.Freshness.P99 += 500
			},
			fails: []string{"freshness p99, bounded"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(report.Report)
			if err := json.Unmarshal(truth, r); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, tc.world)
			r.Run.Started = w.t0 // the worlds differ in time alone
			r.Run.SyncSeq = min(r.Run.SyncSeq, uint64(len(w.drafts)))
			for name, h := range r.Hashes { // facts hold times and paths of their world
				r.Hashes[name] = report.ViewHash{Seq: h.Seq, Hash: hashAt(t, w, name, h.Seq)}
			}
			in := w.inputs(r)
			if tc.lie != nil {
				tc.lie(t, w, &in)
			}
			var said []string
			used := map[string]bool{}
			for _, c := range verify(t, in) {
				if c.OK {
					continue
				}
				expected := false
				for _, f := range tc.fails {
					if strings.HasPrefix(c.Name, f) {
						expected, used[f] = true, true
					}
				}
				if !expected {
					t.Errorf("failed too: %v", c)
				}
				said = append(said, c.String())
			}
			for _, f := range tc.fails {
				if !used[f] {
					t.Errorf("check %q did not fail", f)
				}
			}
			if all := strings.Join(said, "\n"); !strings.Contains(all, tc.says) {
				t.Errorf("nothing says %q:\n%s", tc.says, all)
			}
		})
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
			fails: []string{"export 1 and the deltas"}, says: "no such file",
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
