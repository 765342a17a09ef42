package audit

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

// lie is a world, or what is said of it, that is not as it should be.
type lie struct {
	name  string
	world tamper
	lie   func(t *testing.T, w *world, in *Inputs)
	fails []string // beginnings of names of checks
	says  string   // in one of the details
}

// Each lie must be caught by the checks named, and by no others.
func TestVerifyCatches(t *testing.T) {
	truth, err := newWorld(t, tamper{}).report().JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range slices.Concat(lostDeltas(t), bentDeltas(t), bentCheckpoints(), bentRatings(), bentReports()) {
		t.Run(l.name, func(t *testing.T) { l.isCaught(t, truth) })
	}
}

func (l *lie) isCaught(t *testing.T, truth []byte) {
	r := new(report.Report)
	if err := json.Unmarshal(truth, r); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, l.world)
	r.Run.Started = w.t0 // the worlds differ in time alone
	r.Run.SyncSeq = min(r.Run.SyncSeq, uint64(len(w.drafts)))
	for name, h := range r.Hashes { // facts hold times and paths of their world
		r.Hashes[name] = report.ViewHash{Seq: h.Seq, Hash: hashAt(t, w, name, h.Seq)}
	}
	in := w.inputs(r)
	if l.lie != nil {
		l.lie(t, w, &in)
	}
	var said []string
	used := map[string]bool{}
	for _, c := range verify(t, in) {
		if c.OK {
			continue
		}
		expected := false
		for _, f := range l.fails {
			if strings.HasPrefix(c.Name, f) {
				expected, used[f] = true, true
			}
		}
		if !expected {
			t.Errorf("failed too: %v", c)
		}
		said = append(said, c.String())
	}
	for _, f := range l.fails {
		if !used[f] {
			t.Errorf("check %q did not fail", f)
		}
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, l.says) {
		t.Errorf("nothing says %q:\n%s", l.says, all)
	}
}

// edited is a delta that was changed on its way.
func edited(t *testing.T, d bus.DeltaDraft, change func(*delta.Delta)) bus.DeltaDraft {
	t.Helper()
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

// lostDeltas are deltas that are not there, or say so of records. The world's come in this order:
// of shard 0 rows, dense, rows, dense, rows, dense; of shard 1 rows, rows, rows.
func lostDeltas(t *testing.T) []lie {
	return []lie{
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
				ds[7] = edited(t, ds[7], func(d *delta.Delta) { d.Ranges[0].From = 7 })
				return ds
			}},
			fails: []string{"deltas of training shard 1"},
			says:  "records were learnt twice",
		},
		{
			name: "an offset is skipped",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				for _, i := range []int{4, 8} {
					ds[i] = edited(t, ds[i], func(d *delta.Delta) { d.Ranges[0].From++ })
				}
				return ds
			}},
			fails: []string{"deltas of training shard 0", "deltas of training shard 1", "freshness samples", "AUC of biases", "lag"},
			says:  "begins at offset 21, so the records from 20 on are in none",
		},
		{
			name: "the disk has lost a delta of dense variables",
			lie: func(_ *testing.T, w *world, in *Inputs) {
				in.Deltas = hole{in.Deltas, 2}
			},
			fails: []string{"deltas missing within the stream"},
			says:  "make a new export",
		},
	}
}

// bentDeltas hold something else than was learnt; their order is that of lostDeltas.
func bentDeltas(t *testing.T) []lie {
	return []lie{
		{
			name: "a bit of a row flips on its way",
			world: tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
				ds[8] = edited(t, ds[8], func(d *delta.Delta) {
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
				ds[8] = edited(t, ds[8], func(d *delta.Delta) {
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
				ds[5] = edited(t, ds[5], func(d *delta.Delta) { d.Dense[0].Values[0] ^= 1 })
				return ds
			}},
			fails: []string{"rows folded from all deltas", "export 1 and the deltas"},
			says:  "variable w differs in value 0",
		},
	}
}

// bentCheckpoints are checkpoints and exports that hold something else than was learnt.
func bentCheckpoints() []lie {
	return []lie{
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
			name: "the entry of the export is cut short",
			lie: func(t *testing.T, w *world, _ *Inputs) {
				if err := os.Truncate(filepath.Join(w.dir, "exported_models", "entry", "1", "spec.json"), 20); err != nil {
					t.Fatal(err)
				}
			},
			fails: []string{"export 1 and the deltas"},
			says:  "spec.json",
		},
	}
}

// bentRatings are ratings and impressions that were lost, repeated or changed.
func bentRatings() []lie {
	return []lie{
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
			name: "the source had another rating",
			lie: func(t *testing.T, w *world, in *Inputs) {
				w.ratings[17].Rating = 0.5
				in.Source = &source{w.ratings}
			},
			fails: []string{"the topic holds the source"},
			says:  "rating 17 of the source is",
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
	}
}

// bentReports say something else than happened.
func bentReports() []lie {
	return []lie{
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
	}
}
