package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/projections/registry"
)

// Inputs are the report and everything that it can be recomputed from. Nil optional
// inputs leave their checks out, and say so.
type Inputs struct {
	Report      *report.Report
	Log         bus.Log
	Deltas      bus.Deltas
	DeadLetters bus.DeadLetters
	Ratings     *Topic
	Scores      *Scores

	// Parts are folders like the job's, with model.ckpt-<id>/ and exported_models/, that have what the one does not
	// which facts name.
	Parts     checkpoint.Folders
	UserSlot  uint32 // of the user's feature; 0: 1
	MovieSlot uint32 // of the movie's feature; 0: 2

	Acks     Acks      // optional: for freshness from the ack
	Source   Source    // optional: the ratings once more, for the topic's contents and the best AUC
	Replicas []Replica // optional: rows ports of the serving replicas
}

// Verify recomputes the report. An error means that an input could not be read at all;
// everything else is a check that fails with a sentence.
func Verify(ctx context.Context, in Inputs) ([]Check, error) {
	r := in.Report
	if r == nil || in.Log == nil || in.Deltas == nil || in.DeadLetters == nil || in.Ratings == nil || in.Scores == nil {
		return nil, errors.New("verify: the report, the log, the deltas, the dead letters, the ratings and the scores must be given")
	}
	v := &verifier{Inputs: in}
	v.UserSlot, v.MovieSlot = max(v.UserSlot, 1), movieSlot(v.MovieSlot)
	var err error
	if v.history, err = ReadHistory(ctx, in.Log, r.Run.BZID, r.Run.Job, r.Run.LogSeq); err != nil {
		return nil, err
	}
	if v.deltas, err = ReadDeltas(ctx, in.Deltas, r.Run.BZID, r.Run.Job, r.Run.SyncSeq); err != nil {
		return nil, err
	}
	if v.rejected, err = CountRejected(ctx, in.DeadLetters, r.Run.Topic, r.Run.LetterSeq); err != nil {
		return nil, err
	}
	if v.Ratings, v.later = in.Ratings.Until(r.Run.TopicEnds); v.later > 0 {
		v.add(Check{Name: "ratings since the report", OK: true, Got: fmt.Sprint(v.later), Detail: "They are left out: what follows is about the state that the report is of"})
	}
	v.ratings()
	v.events()
	v.whole()
	v.checkpoints()
	v.timelines()
	v.learning()
	v.freshness()
	if err := v.replay(ctx); err != nil {
		return nil, err
	}
	v.claims()
	v.rows()
	for _, rep := range in.Replicas {
		if v.truth != nil && v.later == 0 { // otherwise they have moved on
			v.add(v.truth.Agree(ctx, rep, max(r.Run.ServeShards, 1)))
		}
	}
	return v.checks, nil
}

type verifier struct {
	Inputs
	history  *History
	deltas   Deltas
	rejected Rejected
	later    int // ratings that came behind those of the report
	best     []float64
	last     []*checkpoint.Shard // of the newest checkpoint
	saved    *training.Checkpoint
	truth    *Rows
	checks   []Check
}

func (v *verifier) add(c ...Check) { v.checks = append(v.checks, c...) }

// ratings checks what is in the training topic, and what was refused.
func (v *verifier) ratings() {
	r := v.Report
	stream, index, foreign := 0, map[int]rating.Rating{}, 0
	var fault string
	for _, rec := range v.Ratings.Records {
		if rec.Headers[rating.HeaderStream] != r.Run.Stream {
			foreign++
			continue
		}
		stream++
		got, err := rating.Decode(rec.Value)
		i, ierr := strconv.Atoi(rec.Headers[rating.HeaderIndex])
		if err = errors.Join(err, ierr); err != nil {
			fault = fmt.Sprintf("%s/%d offset %d: %v", rec.Topic, rec.Partition, rec.Offset, err)
			continue
		}
		if _, again := index[i]; again {
			fault = fmt.Sprintf("rating %d of the source is stored twice, the second time at %s/%d offset %d", i, rec.Topic, rec.Partition, rec.Offset)
		}
		index[i] = got
	}
	detail := "ratings were lost on their way into Kafka, or rows were refused without a dead letter"
	v.add(equal("ratings in Kafka = read - refused rows", r.RatingsRead-v.rejected.CSV, int64(stream), detail))
	v.add(equal("each rating is stored once", stream, len(index), fault))
	v.add(equal("ratings rejected = dead letters of rows and records", r.RatingsRejected, v.rejected.CSV+v.rejected.Kafka, "the report counts other refusals than the dead-letter stream holds"))
	reasons := v.rejected.ByReason
	if !maps.Equal(r.Rejected, reasons) {
		v.add(Check{Name: "rejected, by reason", Want: fmt.Sprint(r.Rejected), Got: fmt.Sprint(reasons), Detail: "the dead-letter stream holds other reasons"})
	} else {
		v.add(Check{Name: "rejected, by reason", Want: counted(reasons), Got: counted(reasons), OK: true})
	}
	if v.Source == nil {
		return
	}
	c := Check{Name: "the topic holds the source, rating by rating", OK: true}
	differ := 0
	for i := 0; len(index) > 0; i++ {
		want, ok := v.Source.Next()
		if !ok {
			break
		}
		if p, known := v.Source.Best(); known {
			v.best = append(v.best, p)
		}
		got, ok := index[i]
		if !ok || got != want {
			if differ++; differ == 1 {
				c.Detail = fmt.Sprintf("rating %d of the source is %s, the topic has %s (stored: %t)", i, want.AppendJSON(nil), got.AppendJSON(nil), ok)
			}
		}
		delete(index, i)
	}
	if differ += len(index); differ > 0 && c.Detail == "" {
		c.Detail = fmt.Sprintf("the topic holds %d ratings that the source does not have", len(index))
	}
	c.Want, c.Got, c.OK = "0 differ", fmt.Sprintf("%d differ", differ), differ == 0
	v.add(c)
}

func counted(m map[string]int64) string {
	n := int64(0)
	for _, c := range m {
		n += c
	}
	return fmt.Sprintf("%d of %d kinds", n, len(m))
}

func (v *verifier) events() {
	c := Check{Name: "events by type, counted from sequence 1", Want: counted(v.Report.Events), Got: counted(v.history.Events), OK: maps.Equal(v.Report.Events, v.history.Events)}
	if !c.OK {
		for _, t := range sortedKeys(v.history.Events) {
			if v.Report.Events[t] != v.history.Events[t] {
				c.Detail = fmt.Sprintf("the log holds %d %s, the report says %d", v.history.Events[t], t, v.Report.Events[t])
				break
			}
		}
		for _, t := range sortedKeys(v.Report.Events) {
			if v.history.Events[t] == 0 && v.Report.Events[t] != 0 {
				c.Detail = fmt.Sprintf("the log holds no %s, the report says %d", t, v.Report.Events[t])
				break
			}
		}
	}
	v.add(c)
}

// whole checks that no delta is missing within the stream: those of dense variables name
// no Kafka ranges that could tell.
func (v *verifier) whole() {
	v.add(equal("deltas missing within the stream", 0, v.deltas.Missing,
		"MONOLITH_SYNC discards its oldest only, so the disk has lost them: make a new export, which serving loads whole"))
}

// cuts reads every checkpoint that is still on disk.
func (v *verifier) cuts() {
	c := Check{Name: "every checkpoint reads back", OK: true}
	read := 0
	for i, saved := range v.history.Checkpoints {
		shards, err := ReadCheckpoint(v.Parts, saved)
		newest := i == len(v.history.Checkpoints)-1
		switch {
		case errors.Is(err, fs.ErrNotExist) && (!newest || v.later > 0) && v.gone(saved):
			continue // removed by retention
		case err != nil:
			c.OK, c.Detail = false, err.Error()
			continue
		}
		read++
		if newest {
			v.last, v.saved = shards, saved
		}
	}
	c.Want, c.Got = fmt.Sprintf("%d cuts saved", len(v.history.Checkpoints)), fmt.Sprintf("%d read", read)
	if len(v.history.Checkpoints) == 0 {
		c.OK, c.Detail = false, "the log holds no checkpointSaved of this job"
	}
	v.add(c)
}

// checkpoints compares the newest cut with the topic and with the report.
func (v *verifier) checkpoints() {
	v.cuts()
	c := Check{Name: "the last checkpoint stands at the end of the topic", Want: fmt.Sprint(v.Ratings.Ends), Got: "none"}
	trained := int64(0)
	if n := len(v.history.Checkpoints); n > 0 {
		at := v.history.Checkpoints[n-1].GetOffsets()
		c.Got, c.OK = fmt.Sprint(at), true
		for p, end := range v.Ratings.Ends {
			if at[p] != end {
				c.OK = false
				c.Detail = fmt.Sprintf("partition %d ends at offset %d, the checkpoint has learnt up to %d", p, end, at[p])
			}
		}
		for p, next := range at {
			trained += next - v.Ratings.First[p]
		}
	}
	v.add(c)
	v.add(equal("ratings learnt = offsets of the checkpoint - refused records", v.Report.RatingsTrained, trained-v.rejected.Kafka,
		"the checkpoint's offsets do not account for the number in the report"))

	c = Check{Name: "the served version was exported", Want: fmt.Sprint(v.Report.ModelVersion)}
	var versions []string
	for _, x := range v.history.Exports {
		versions = append(versions, fmt.Sprint(x.GetVersion()))
		c.OK = c.OK || x.GetVersion() == v.Report.ModelVersion
	}
	c.Got = strings.Join(versions, ", ")
	if !c.OK {
		c.Detail = "the log holds no modelExported of that version"
	}
	v.add(c)
}

// gone tells whether a checkpoint's whole folder was removed.
func (v *verifier) gone(c *training.Checkpoint) bool {
	for _, f := range c.GetShards() {
		if _, err := v.Parts.Beside(c.GetDir()).Of(filepath.Dir(f.GetPath())); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

func (v *verifier) timelines() {
	for k := range v.Report.Run.Shards {
		v.add(Tiles(v.deltas.All, uint32(k), v.history.Ready[uint32(k)], v.Ratings.Ends, v.deltas.First))
	}
}

func (v *verifier) learning() {
	r := v.Report
	var best func(int) (float64, bool)
	if len(v.best) > 0 {
		best = func(i int) (float64, bool) {
			if i >= len(v.best) {
				return 0, false
			}
			return v.best[i], true
		}
	}
	a := Learning(v.Ratings, v.Scores, r.Run.Stream, r.Run.Model, r.Run.FrozenModel, r.Run.Half, best)
	v.add(equal("every scored rating left an impression", r.Run.Scored, a.Scored,
		fmt.Sprintf("%d ratings name a request of which the topic holds no impression", a.Missing)))
	lost := equal("scores without an impression", r.Run.Unlogged, a.Missing, "the topic lacks other impressions than the report says")
	if lost.OK && a.Missing > 0 {
		lost.Detail = "They were answered, and count as none: impressions are dropped while the topic does not take them, and go with a model server that dies"
	}
	v.add(lost)
	v.add(equal("ratings compared", r.Run.Compared, a.Compared, "the second half has another number of ratings with scores than the report says"))
	// Scores travel as float32 and pairs are counted in whole numbers: equal, but for a
	// pair of ids scored twice by the frozen copy in batches that rounded differently.
	v.add(near("AUC online", float64(r.AUCOnline), a.Online, 1e-12, "the impressions and labels give another figure"))
	v.add(near("AUC frozen", float64(r.AUCFrozen), a.Frozen, 1e-6, "the impressions and labels give another figure"))
	if best != nil || !r.AUCBest.Known() {
		v.add(near("AUC best possible", float64(r.AUCBest), a.Best, 1e-12, "the simulator's probabilities give another figure"))
	}
}

func (v *verifier) freshness() {
	r := v.Report
	rated := v.Ratings.Rated(v.UserSlot, v.MovieSlot, v.Acks)
	f := Freshness(v.deltas.All, v.history.Applied, v.history.Lifetimes, rated, r.Run.Model, max(r.Run.Shards, 1), max(r.Run.ServeShards, 1))
	var again report.Report
	f.Fill(&again, r.Run.Started)
	got, want := again.Freshness, r.Freshness
	left := fmt.Sprintf("%d ratings are in no delta, %d found no replica available, %d were never reported as served", f.Unlearnt, f.Unserved, f.Unknown)
	if v.Acks != nil { // without them a rating near the birth of a replica may fall on its other side
		v.add(equal("freshness samples", want.Samples, got.Samples, left))
		v.add(
			near("freshness p50, from the ack", float64(want.P50), float64(got.P50), 1e-6, "the facts give another figure"),
			near("freshness p99, from the ack", float64(want.P99), float64(got.P99), 1e-6, "the facts give another figure"),
			near("freshness p50, from the record's time", float64(want.ProducedP50), float64(got.ProducedP50), 1e-6, "the facts give another figure"),
			near("freshness p99, from the record's time", float64(want.ProducedP99), float64(got.ProducedP99), 1e-6, "the facts give another figure"),
		)
		v.baseline(f)
		return
	}
	// The record's time comes before its ack, so this figure bounds the reported one.
	for _, x := range []struct {
		name      string
		said, may report.Figure
	}{{"p50", want.P50, got.P50}, {"p99", want.P99, got.P99}} {
		c := Check{Name: "freshness " + x.name + ", bounded by the record's time", Want: "at most " + figure(float64(x.may)), Got: figure(float64(x.said))}
		c.OK = x.said <= x.may+1 || !x.said.Known() && !x.may.Known() // record times are whole milliseconds
		c.Detail = "Without " + AckFile + " only a bound can be recomputed; " + left
		v.add(c)
	}
}

// baseline is compared where the report has one: reports of before have none.
func (v *verifier) baseline(f Freshnesses) {
	r := v.Report
	if r.AUCBaseline == 0 {
		return
	}
	b := Baselines(v.Ratings, v.Scores, f, r.Run.Stream, r.Run.Model, r.Run.FrozenModel, r.Run.Half)
	v.add(
		near("AUC of biases", float64(r.AUCBaseline), b.Online, 1e-12, "ratings, labels and the lags that the facts give make another figure"),
		near("AUC of biases frozen at half time", float64(r.AUCBaselineFrozen), b.Frozen, 1e-12, "the ratings and labels give another figure"),
		near("lag p50, ratings", float64(r.Lag.P50), b.LagP50, 1e-9, "the facts give another figure"),
	)
}

func (v *verifier) replay(ctx context.Context) error {
	for _, name := range sortedKeys(v.Report.Hashes) {
		h := v.Report.Hashes[name]
		_, hash, err := registry.Replay(ctx, v.Log, name, v.Report.Run.BZID, h.Seq)
		if err != nil {
			return fmt.Errorf("replay %s: %w", name, err)
		}
		v.add(equal(fmt.Sprintf("view %s at %d", name, h.Seq), h.Hash, hash, "folding the log from sequence 1 gives another state than the live view had"))
	}
	return nil
}

// claims checks what the report says of the views.
func (v *verifier) claims() {
	v.add(equal("the report claims equal hashes", true, v.Report.ReplayHashEqual && len(v.Report.Hashes) > 0, "it names no view, or says that one differed"))
}

// rows folds what serving folds, and compares it with the training shards' last cut.
func (v *verifier) rows() {
	if v.last == nil && v.later > 0 {
		v.add(Check{Name: "served rows equal the training shards'", OK: true, Got: "left out", Detail: "Retention has removed the report's last checkpoint; verify reads a newer state without a report"})
		return
	}
	if v.last == nil {
		v.add(Check{Name: "served rows equal the training shards'", Want: "the last checkpoint", Got: "unreadable", Detail: "there is nothing to compare with"})
		return
	}
	until := v.take()
	if v.deltas.First == 1 {
		v.add(v.fold("rows folded from all deltas equal the last checkpoint", NewRows(), map[uint32]uint64{}, until, false))
	}
	for _, x := range v.history.Exports {
		if x.GetVersion() == v.Report.ModelVersion {
			v.exported(v.readExport(x), until)
			break
		}
	}
}

// take makes the newest cut the truth, and returns the last delta in it of each training
// shard.
func (v *verifier) take() (until map[uint32]uint64) {
	v.truth, until = NewRows(), map[uint32]uint64{}
	for _, s := range v.last {
		v.truth.AddShard(s)
		until[s.Manifest.Shard] = s.Manifest.SyncSeq
	}
	return until
}

// exportFiles is what the files of an export hold; of is nil where there is none.
type exportFiles struct {
	of   *training.ModelExported
	rows *Rows
	from map[uint32]uint64 // by training shard: the last delta in it
	err  error
}

// readExport reads the files of x, which may be nil.
func (v *verifier) readExport(x *training.ModelExported) (f exportFiles) {
	if f.of = x; x != nil {
		f.rows, f.from, f.err = v.export(x)
	}
	return f
}

// exported compares what serving makes of an export and the deltas behind it, up to those
// in the newest cut, with that cut.
func (v *verifier) exported(f exportFiles, until map[uint32]uint64) {
	name := fmt.Sprintf("export %d and the deltas behind it equal the last checkpoint", f.of.GetVersion())
	switch {
	case f.err != nil:
		v.add(Check{Name: name, Want: "a readable export", Got: "none", Detail: f.err.Error()})
	case f.of.GetSyncSeq()+1 < v.deltas.First:
		v.add(Check{Name: name, Want: fmt.Sprintf("deltas from %d", f.of.GetSyncSeq()+1), Got: fmt.Sprintf("deltas from %d", v.deltas.First), Detail: "the stream has discarded deltas that the export lacks"})
	default:
		v.add(v.fold(name, f.rows, f.from, until, true))
	}
}

// export reads the parameter-server parts of an export.
func (v *verifier) export(x *training.ModelExported) (*Rows, map[uint32]uint64, error) {
	var others checkpoint.Folders
	for _, dir := range v.Parts {
		others = append(others, filepath.Join(dir, filepath.Base(x.GetModelDir())))
	}
	folders := others.Beside(x.GetModelDir())
	rows, from := NewRows(), map[uint32]uint64{}
	for _, sub := range x.GetSubModels() {
		if !filepath.IsLocal(sub) {
			return nil, nil, fmt.Errorf("sub-model %q leads out of the export", sub)
		}
		folder := filepath.Join(sub, fmt.Sprint(x.GetVersion()))
		dir, err := folders.Of(folder)
		if err != nil {
			return nil, nil, err
		}
		folder = filepath.Join(dir, folder)
		if !strings.HasPrefix(sub, "ps_") {
			if _, err := checkpoint.ReadEntry(folder); err != nil {
				return nil, nil, err
			}
			continue
		}
		s, err := checkpoint.ReadShard(folder)
		if err != nil {
			return nil, nil, err
		}
		rows.AddShard(s)
		from[s.Manifest.Shard] = s.Manifest.SyncSeq
	}
	return rows, from, nil
}

// fold applies each shard's deltas in (from, until] to base and compares.
func (v *verifier) fold(name string, base *Rows, from, until map[uint32]uint64, dense bool) Check {
	c := Check{Name: name, Want: fmt.Sprintf("%d rows, 0 differ", v.truth.Len())}
	for _, d := range v.deltas.All {
		if k := d.GetShard(); d.Seq <= from[k] || d.Seq > until[k] {
			continue
		}
		if err := base.Fold(d.Delta); err != nil {
			c.Got, c.Detail = "unreadable", fmt.Sprintf("delta %d: %v", d.Seq, err)
			return c
		}
	}
	sentence, n := v.truth.Diff(base, dense)
	c.Got, c.OK, c.Detail = fmt.Sprintf("%d rows, %d differ", base.Len(), n), n == 0, sentence
	return c
}
