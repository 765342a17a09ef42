package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/loadtest/report"
)

// JobInputs are the logs of one training job, of which there is no report.
type JobInputs struct {
	BZID, Job string
	Log       bus.Log
	Deltas    bus.Deltas
	Shards    int                        // training shards
	Parts     checkpoint.Folders         // as Inputs.Parts
	Hashes    map[string]report.ViewHash // of the live views, if they run

	// Bounds are the first and end offsets of the topic's partitions, asked for once the
	// newest checkpoint is known, so that it cannot be ahead of them.
	Bounds func(context.Context) (first, ends map[int32]int64, err error)
}

// VerifyJob proves what the logs of a job say of themselves while it goes on: each
// checkpoint reads back, the newest one lies within the topic, the deltas up to it hold
// every record once and give its very rows, from the first delta and from the newest
// export, and folding the log again gives each live view.
func VerifyJob(ctx context.Context, in JobInputs) ([]Check, error) {
	v, f, err := readFiles(ctx, in)
	if err != nil {
		return nil, err
	}
	if v.deltas, err = ReadDeltas(ctx, in.Deltas, in.BZID, in.Job, 0); err != nil {
		return nil, err
	}
	v.whole()
	if v.last != nil {
		until := v.take()
		first, ends, err := in.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		v.within(first, ends)
		for k := range uint32(in.Shards) {
			v.add(Tiles(v.upTo(until), k, v.history.Ready[k], v.saved.GetOffsets(), v.deltas.First))
		}
		if v.deltas.First == 1 {
			v.add(v.fold("rows folded from all deltas equal the last checkpoint", NewRows(), map[uint32]uint64{}, until, false))
		}
		if f.of != nil {
			v.exported(f, until)
		}
	}
	return v.checks, v.replay(ctx)
}

// rereads bounds how often files are read that retention removes meanwhile.
const rereads = 10

// readFiles reads the job's history, then its checkpoints and its newest export. The job goes
// on and its retention removes files that the history names: where one is missing and the log
// has come to name a newer one, both are read again.
func readFiles(ctx context.Context, in JobInputs) (v *verifier, f exportFiles, err error) {
	h, err := ReadHistory(ctx, in.Log, in.BZID, in.Job, 0)
	if err != nil {
		return nil, f, err
	}
	for range rereads {
		v = &verifier{history: h, Inputs: Inputs{Log: in.Log, Deltas: in.Deltas, Parts: in.Parts,
			Report: &report.Report{Hashes: in.Hashes, Run: report.Run{BZID: in.BZID, Job: in.Job}}}}
		v.cuts()
		f = exportFiles{}
		if v.last != nil {
			f = v.readExport(v.newestExport())
		}
		if v.last != nil && !errors.Is(f.err, fs.ErrNotExist) {
			break
		}
		if h, err = ReadHistory(ctx, in.Log, in.BZID, in.Job, 0); err != nil {
			return nil, f, err
		}
		if len(h.Checkpoints) == len(v.history.Checkpoints) && len(h.Exports) == len(v.history.Exports) {
			break // nothing is newer: the files are lost
		}
	}
	return v, f, nil
}

// within checks that the newest cut names offsets that the topic has.
func (v *verifier) within(first, ends map[int32]int64) {
	at := v.saved.GetOffsets()
	c := Check{Name: "the last checkpoint lies within the topic", Want: fmt.Sprintf("between %v and %v", first, ends), Got: fmt.Sprint(at), OK: true}
	for _, p := range sortedKeys(at) {
		if at[p] < first[p] || at[p] > ends[p] {
			c.OK = false
			c.Detail = fmt.Sprintf("Partition %d holds the offsets from %d to %d, the checkpoint has learnt up to %d: records were removed unlearnt, or the topic is another one", p, first[p], ends[p], at[p])
		}
	}
	v.add(c)
}

// upTo are the deltas that the newest cut contains.
func (v *verifier) upTo(until map[uint32]uint64) []Delta {
	var out []Delta
	for _, d := range v.deltas.All {
		if d.Seq <= until[d.GetShard()] {
			out = append(out, d)
		}
	}
	return out
}

// newestExport is the last one that the newest cut is not older than; nil: none.
func (v *verifier) newestExport() (newest *training.ModelExported) {
	for _, x := range v.history.Exports {
		if x.GetVersion() <= v.saved.GetId() {
			newest = x
		}
	}
	return newest
}
