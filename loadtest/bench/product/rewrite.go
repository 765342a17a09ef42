package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// rowWriter publishes rows of a training shard that is at rest, in its epoch and as it cuts them. The shard
// takes what it finds on its subject for a stranger's and goes on behind it.
type rowWriter struct {
	bus         bus.Deltas
	subject     string
	writer      publish.Writer
	epoch, step uint64
	last        uint64 // sequence on the subject
	count       int    // of publications
	newest      proof
}

// newRowWriter goes on behind the last delta of training shard k.
func newRowWriter(ctx context.Context, b bus.Deltas, bzid, job string, k int) (*rowWriter, error) {
	w := &rowWriter{bus: b, subject: bus.DeltaSubject(bzid, job, strconv.Itoa(k)), writer: publish.Writer{Job: job, Shard: uint32(k), Shards: clusterShards}}
	last, err := b.LastOf(ctx, w.subject)
	if err != nil {
		return nil, err
	}
	m, err := b.Get(ctx, last)
	if err != nil {
		return nil, fmt.Errorf("read the last delta of %s: %w", w.subject, err)
	}
	var d delta.Delta
	if err := proto.Unmarshal(m.Data, &d); err != nil {
		return nil, fmt.Errorf("delta %d: %w", last, err)
	}
	w.epoch, w.step, w.last = d.GetEpoch(), d.GetStep(), last
	return w, nil
}

// write publishes one flush of whole rows.
func (w *rowWriter) write(ctx context.Context, table string, dim int, ids []int64, values []float32) error {
	rows, _ := w.writer.Deltas(&publish.Dirty{Epoch: w.epoch, Step: w.step,
		Rows: []publish.Rows{{Table: table, Dim: dim, IDs: ids, Values: values, Format: publish.Format{Compressor: compress.FP32{}}}}})
	w.count++
	drafts := make([]bus.DeltaDraft, len(rows))
	for i, d := range rows {
		data, err := proto.Marshal(d)
		if err != nil {
			return err
		}
		drafts[i] = bus.DeltaDraft{Subject: w.subject, ID: fmt.Sprintf("%s/bench/%d.%d", w.subject, w.count, i), Data: data}
	}
	drafts[0].Expect = w.last
	last, err := w.bus.Publish(ctx, drafts...)
	if err != nil {
		return fmt.Errorf("publish rows on %s: %w", w.subject, err)
	}
	w.last, w.newest = last, proof{table, ids[len(ids)-1], last}
	return nil
}

func (c *stackCluster) Rewrite(ctx context.Context, movies []int64) error {
	const slot = 2
	table := modelspec.MovieRanking().GetTables()[slot-1]
	for k := len(c.writers); k < clusterShards; k++ {
		w, err := newRowWriter(ctx, c.job.Bus.Deltas(), c.stack.Config.Logs.BZID, host.JobName, k)
		if err != nil {
			return err
		}
		c.writers = append(c.writers, w)
	}
	ids := make([][]int64, clusterShards)
	for _, m := range movies {
		id := modelspec.FID(slot, m)
		k := modelspec.ShardOf(id, clusterShards)
		ids[k] = append(ids[k], id)
	}
	for k, of := range ids {
		if len(of) == 0 {
			continue
		}
		slices.Sort(of)
		values := make([]float32, int(table.GetDim())*len(of))
		for i := range values {
			values[i] = 0.1 * (rand.Float32() - 0.5) // as its initializer does
		}
		if err := c.writers[k].write(ctx, table.GetName(), int(table.GetDim()), of, values); err != nil {
			return err
		}
	}
	return nil
}

// Rewritten goes by the sequences of the rows that each replica answers with.
func (c *stackCluster) Rewritten(ctx context.Context) error {
	proofs := map[int]proof{}
	for k, w := range c.writers {
		if w.count == 0 {
			return errors.New("no row of a shard was rewritten: give more movies")
		}
		proofs[k] = w.newest
	}
	return c.held(ctx, proofs)
}
