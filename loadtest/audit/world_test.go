package audit

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/projections/registry"
)

const (
	bzid, job, model, frozenModel, topic = "t", "job", "movies", "movies-frozen", "ratings"
	nRatings, perFlush, flushes          = 60, 10, 3
	applyMs                              = 40 // a rating's delta is served that long after its flush began
)

// world is a small finished run, made by hand: 60 ratings on 2 partitions, 2 training
// shards that flush every 10 offsets of each partition, 2 serving shards of 2 replicas.
type world struct {
	t       *testing.T
	bus     *mem.Bus
	dir     string
	t0      time.Time // of rating 0; one comes every millisecond
	ratings []rating.Rating
	topic   *Topic
	scores  *Scores
	acks    Acks
	drafts  []bus.DeltaDraft     // what the training shards publish, in order
	shards  [2]*checkpoint.Shard // at the end
	exports [2]*checkpoint.Shard // after the first flush
	applied map[string][]*transfer.Applied
}

// tamper is how a test makes a world a lie. Each hook may be nil.
type tamper struct {
	records func(*Topic)
	deltas  func([]bus.DeltaDraft) []bus.DeltaDraft
	shards  func(*[2]*checkpoint.Shard)
	saved   func(*training.Checkpoint)
	impress func(*impression.Impression) bool // false: lost
	late    time.Duration                     // added to every time of application by c1
	event   bool                              // one event more
}

func when(t0 time.Time, i int) time.Time { return t0.Add(time.Duration(i) * time.Millisecond) }

func newWorld(t *testing.T, x tamper) *world {
	t.Helper()
	w := &world{
		t: t, bus: mem.New(), dir: t.TempDir(), t0: time.Now().Add(time.Hour).Truncate(time.Millisecond),
		topic:  &Topic{First: map[int32]int64{0: 0, 1: 0}, Ends: map[int32]int64{0: 30, 1: 31}},
		scores: &Scores{}, acks: Acks{}, applied: map[string][]*transfer.Applied{},
	}
	t.Cleanup(func() { w.bus.Close() })
	w.produce(x)
	w.serving()
	w.learn()
	if x.shards != nil {
		x.shards(&w.shards)
	}
	if x.deltas != nil {
		w.drafts = x.deltas(w.drafts)
	}
	w.publish(x)
	w.facts(x)
	return w
}

// produce fills the topics, the acks and the dead letters.
func (w *world) produce(x tamper) {
	for i := range nRatings {
		r := rating.Rating{User: int64(i%7 + 1), Movie: int64(i%11 + 1), Rating: float64(i*7%10+1) / 2, Timestamp: int64(i)}
		if i == 25 {
			r.Movie = 99 // a row of training shard 1 that only the second flush holds
		}
		w.ratings = append(w.ratings, r)
		rec := kafka.Record{
			Topic: topic, Partition: int32(i % 2), Offset: int64(i / 2), Time: when(w.t0, i), Value: r.AppendJSON(nil),
			Headers: map[string]string{rating.HeaderStream: "s", rating.HeaderIndex: strconv.Itoa(i)},
		}
		w.acks.Add(rec.Partition, rec.Offset, when(w.t0, i).Add(2*time.Millisecond))
		if i >= 6 { // the model is served from then on
			rec.Headers[rating.HeaderRequest], rec.Headers[rating.HeaderPosition] = fmt.Sprintf("s-%d", i/3), strconv.Itoa(i%3)
			for _, m := range []string{model, frozenModel} {
				imp := &impression.Impression{
					RequestID: rec.Headers[rating.HeaderRequest], Row: i % 3, Model: m,
					Inputs: map[string]int64{"user": r.User, "movie": r.Movie}, Score: float32(i*13%17) / 17, TimeUS: when(w.t0, i).UnixMicro(),
				}
				if m == frozenModel {
					imp.Score = float32((r.User*r.Movie)%13) / 13
					if i < 40 { // came up late: scored afterwards, under another request
						imp.RequestID = fmt.Sprintf("s-frozen-%d", i)
					}
					if i < nRatings/2 {
						continue
					}
				}
				if x.impress == nil || x.impress(imp) {
					w.scores.Add(imp)
				}
			}
		}
		w.topic.Records = append(w.topic.Records, rec)
	}
	w.topic.Records = append(w.topic.Records, kafka.Record{Topic: topic, Partition: 1, Offset: 30, Time: when(w.t0, 60), Value: []byte("{")})
	slices.SortStableFunc(w.topic.Records, func(a, b kafka.Record) int { return int(a.Partition - b.Partition) })
	if x.records != nil {
		x.records(w.topic)
	}
	for _, p := range []bus.Parked{
		{Reason: "the row has 3 fields, not 4", By: "demo", Stream: "csv:ratings.csv", StreamSeq: 9, Subject: "csv", Data: []byte("1,2,3")},
		{Reason: "unexpected EOF", By: "trainer", Stream: "kafka:ratings/1", StreamSeq: 30, Subject: topic, Data: []byte("{")},
	} {
		if _, err := w.bus.DeadLetters().Park(w.t.Context(), p); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) append(context, aggregate string, e proto.Message) {
	w.t.Helper()
	if _, err := w.bus.Log().Append(w.t.Context(), bus.Draft{Subject: events.Join(bzid, context, aggregate), Event: e, Expect: bus.Any}); err != nil {
		w.t.Fatalf("append %v: %v", e, err)
	}
}

// container of replica r of serving shard v: c0 .. c3.
func containerOf(v, r int) string { return fmt.Sprintf("c%d", 2*v+r) }

func (w *world) serving() {
	for k := range uint32(2) {
		w.append("shard", shard.Aggregate(job, k), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: job, Shard: k, Shards: 2, Epoch: 1, RowsAddress: "127.0.0.1:1"}}})
	}
	for v := range 2 {
		for r := range 2 {
			x := &replica.Replica{ModelName: model, ServerType: "ps", Task: int32(v), Replica: int32(r), Container: containerOf(v, r), Stat: replica.State_LOADING}
			w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: x}}})
			w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: replica.State_AVAILABLE, Version: 1}}})
		}
	}
}

// learn makes the shards' states, and the deltas on the way there. A row counts the
// ratings that touched it and their stars.
func (w *world) learn() {
	dim := 2
	for k := range 2 {
		subject := bus.DeltaSubject(bzid, job, strconv.Itoa(k))
		rows := map[string]map[int64][]float32{"user": {}, "movie": {}}
		dense := []float32{0, 0}
		snapshot := func(flush int) *checkpoint.Shard {
			offsets := map[int32]int64{0: int64(perFlush * (flush + 1)), 1: int64(perFlush * (flush + 1))}
			if flush == flushes-1 {
				offsets[1]++ // the refused record
			}
			s := &checkpoint.Shard{
				Manifest: checkpoint.Manifest{Job: job, Checkpoint: int64(flush + 1), Shard: uint32(k), Shards: 2, Epoch: 1,
					Offsets: offsets,
					Tables:  []checkpoint.TableInfo{{Name: "user", Dim: dim}, {Name: "movie", Dim: dim}}},
				Tables: map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{},
			}
			for name, t := range rows {
				for _, id := range sortedKeys(t) {
					s.Tables[name] = append(s.Tables[name], table.Row{ID: id, Values: slices.Clone(t[id]), Slots: []float32{1, 1}})
				}
			}
			if k == 0 {
				s.Dense["w"] = checkpoint.Variable{Shape: []uint32{2}, Values: slices.Clone(dense), Slots: []float32{1, 1}}
			}
			return s
		}
		for f := range flushes {
			touched := map[string]map[int64]bool{"user": {}, "movie": {}}
			for i := 2 * perFlush * f; i < 2*perFlush*(f+1); i++ {
				r := w.ratings[i]
				for name, fid := range map[string]int64{"user": modelspec.FID(1, r.User), "movie": modelspec.FID(2, r.Movie)} {
					if modelspec.ShardOf(fid, 2) != k {
						continue
					}
					if rows[name][fid] == nil {
						rows[name][fid] = make([]float32, dim)
					}
					rows[name][fid][0]++
					rows[name][fid][1] += float32(r.Rating)
					touched[name][fid] = true
				}
				dense[0]++
			}
			d := &delta.Delta{Job: job, Shard: uint32(k), Shards: 2, Epoch: 1, Chunks: 1}
			for _, name := range []string{"movie", "user"} {
				x := &delta.Rows{Table: name, Dim: uint32(dim)}
				for _, id := range sortedKeys(touched[name]) {
					x.Ids = append(x.Ids, uint64(id))
					for _, v := range rows[name][id] {
						x.Values = binary.LittleEndian.AppendUint32(x.Values, math.Float32bits(v))
					}
				}
				d.Rows = append(d.Rows, x)
			}
			from := int64(perFlush * f)
			d.Ranges = []*delta.Range{{Partition: 0, From: from, To: from + perFlush, Epoch: 1}, {Partition: 1, From: from, To: from + perFlush, Epoch: 1}}
			if f == flushes-1 {
				d.Ranges = append(d.Ranges, &delta.Range{Partition: 1, From: 30, To: 31, Epoch: 1}) // refused, but learnt past
			}
			w.draft(subject, d)
			if k == 0 {
				var b []byte
				for _, v := range dense {
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
				}
				w.draft(subject+".dense", &delta.Delta{Job: job, Shard: 0, Shards: 2, Epoch: 1, Chunks: 1, Dense: []*delta.Variable{{Name: "w", Shape: []uint32{2}, Values: b}}})
			}
			if f == 0 {
				w.exports[k] = checkpoint.Export(snapshot(0))
			}
			w.shards[k] = snapshot(flushes - 1)
		}
	}
}

func (w *world) draft(subject string, d *delta.Delta) {
	data, err := proto.Marshal(d)
	if err != nil {
		w.t.Fatal(err)
	}
	w.drafts = append(w.drafts, bus.DeltaDraft{Subject: subject, ID: fmt.Sprintf("%s-%d", subject, len(w.drafts)), Expect: bus.Any, Data: data})
}

// publish stores the deltas, and notes who applied them when.
func (w *world) publish(x tamper) {
	for _, d := range w.drafts {
		seq, err := w.bus.Deltas().Publish(w.t.Context(), d)
		if err != nil {
			w.t.Fatal(err)
		}
		m := new(delta.Delta)
		if err := proto.Unmarshal(d.Data, m); err != nil {
			w.t.Fatal(err)
		}
		k := m.GetShard()
		w.shards[k].Manifest.SyncSeq = seq
		if len(m.GetRanges()) > 0 && m.GetRanges()[0].GetFrom() == 0 || len(m.GetDense()) > 0 && w.exports[k].Manifest.SyncSeq == seq-1 {
			w.exports[k].Manifest.SyncSeq = seq
		}
		if len(m.GetRanges()) == 0 {
			continue
		}
		flush := int(m.GetRanges()[1].GetFrom()) / perFlush
		for v := range 2 {
			for r := range 2 {
				c := containerOf(v, r)
				at := when(w.t0, 2*perFlush*flush).Add(applyMs * time.Millisecond)
				if r == 1 {
					at = at.Add(5 * time.Millisecond) // the second replica is slower
				}
				if c == "c1" {
					at = at.Add(x.late)
				}
				w.applied[c] = append(w.applied[c], &transfer.Applied{SyncSeq: seq, UnixUs: at.UnixMicro()})
			}
		}
	}
}

// facts writes the checkpoint and the export, and says so.
func (w *world) facts(x tamper) {
	w.save(flushes, x.saved)
	w.export(1)
	for v := range 2 {
		for r := range 2 {
			c, sub := containerOf(v, r), fmt.Sprintf("ps_%d", v)
			w.append("sync", model+"/"+sub+"/"+c, &transfer.Event{Body: &transfer.Event_DeltasApplied{DeltasApplied: &transfer.DeltasApplied{ModelName: model, SubModel: sub, Container: c, Applied: w.applied[c]}}})
		}
	}
	if x.event {
		w.append("training", job, &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{Name: "auc", Value: 0.7, Samples: 1}}})
	}
}

// save writes a checkpoint of the end, and the fact, which change may change.
func (w *world) save(id int64, change func(*training.Checkpoint)) {
	saved := &training.Checkpoint{Id: id, Dir: w.dir, Offsets: map[int32]int64{0: 30, 1: 31}}
	for k, s := range w.shards {
		s.Manifest.Checkpoint = id
		path := fmt.Sprintf("model.ckpt-%d/ps_%d", id, k)
		m, err := checkpoint.WriteShard(filepath.Join(w.dir, path), s)
		if err != nil {
			w.t.Fatal(err)
		}
		saved.Shards = append(saved.Shards, &training.ShardFile{Shard: uint32(k), Path: path, SyncSeq: m.SyncSeq, Hash: m.Hash})
	}
	if change != nil {
		change(saved)
	}
	w.append("training", job, &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: saved}}})
}

// export writes an export of the state after the first flush, and the fact.
func (w *world) export(version int64) {
	dir := filepath.Join(w.dir, "exported_models")
	for k, e := range w.exports {
		if _, err := checkpoint.WriteShard(filepath.Join(dir, fmt.Sprintf("ps_%d", k), fmt.Sprint(version)), e); err != nil {
			w.t.Fatal(err)
		}
	}
	entry := &checkpoint.Entry{Spec: modelspec.MovieRanking(), Version: version, Job: job, Shards: 2, SyncSeq: 1, Dense: w.exports[0].Dense}
	if err := checkpoint.WriteEntry(filepath.Join(dir, "entry", fmt.Sprint(version)), entry); err != nil {
		w.t.Fatal(err)
	}
	w.append("training", job, &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{
		Version: version, ModelDir: dir, SubModels: []string{"entry", "ps_0", "ps_1"}, SyncSeq: 1}}})
}

// report is the true report of this world.
func (w *world) report() *report.Report {
	r := &report.Report{RatingsRead: 61, ModelVersion: 1, ReplayHashEqual: true, Hashes: map[string]report.ViewHash{}}
	r.Run = report.Run{BZID: bzid, Job: job, Model: model, FrozenModel: frozenModel, Topic: topic, Stream: "s", Shards: 2, ServeShards: 2, Replicas: 2, Half: 30, Started: w.t0}
	err := Measure(w.t.Context(), MeasureInputs{Log: w.bus.Log(), Deltas: w.bus.Deltas(), DeadLetters: w.bus.DeadLetters(), Ratings: w.topic, Acks: w.acks, Scores: w.scores}, r)
	if err != nil {
		w.t.Fatal(err)
	}
	a := Learning(w.topic, w.scores, "s", model, frozenModel, 30, nil)
	r.AUCOnline, r.AUCFrozen, r.AUCBest = report.Figure(a.Online), report.Figure(a.Frozen), report.Unknown()
	r.Run.Scored, r.Run.Unlogged, r.Run.Compared = a.Scored, a.Missing, a.Compared
	for _, name := range registry.Names() {
		_, hash, err := registry.Replay(w.t.Context(), w.bus.Log(), name, "", follow.End)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Hashes[name] = report.ViewHash{Seq: r.Run.LogSeq, Hash: hash}
	}
	return r
}

func (w *world) inputs(r *report.Report) Inputs {
	return Inputs{Report: r, Log: w.bus.Log(), Deltas: w.bus.Deltas(), DeadLetters: w.bus.DeadLetters(), Ratings: w.topic, Scores: w.scores, Acks: w.acks}
}

func hashAt(t *testing.T, w *world, view string, seq uint64) string {
	t.Helper()
	_, hash, err := registry.Replay(t.Context(), w.bus.Log(), view, "", seq)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
