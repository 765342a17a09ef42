package trainer

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
)

// transaction writes n ratings to a partition and ends the transaction as told: its
// offsets, and the marker behind it, are holes to a reader unless it committed.
func (w *world) transaction(c *kgo.Client, partition int32, n int, commit kgo.TransactionEndTry) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), wait.Patience)
	defer cancel()
	if err := c.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	for i := range n {
		user := int64(5000 + i)
		r := &kgo.Record{Topic: "ratings", Partition: partition, Value: fmt.Appendf(nil, `{"userId":%d,"movieId":1,"rating":4}`, user)}
		var fids []int64
		if commit {
			fids = []int64{modelspec.FID(1, user), modelspec.FID(2, 1)}
		}
		w.fids[partition] = append(w.fids[partition], fids)
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.fids[partition] = append(w.fids[partition], nil) // the marker
	w.ends[partition] += int64(n) + 1
	w.mu.Unlock()
	if err := c.EndTransaction(ctx, commit); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) transactional() *kgo.Client {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Addr()), kgo.TransactionalID("producer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// Aborted ratings are never learnt, and neither they nor the markers are parked.
func TestTransactionsAreLearntOnceCommitted(t *testing.T) {
	w := newWorld(t, 2, 2)
	c := w.transactional()
	a := w.run(w.config("a", 0))
	w.write(20)
	w.transaction(c, 0, 5, kgo.TryCommit)
	w.transaction(c, 1, 7, kgo.TryAbort)
	w.transaction(c, 0, 3, kgo.TryAbort)
	w.write(10)
	w.transaction(c, 1, 2, kgo.TryCommit)
	for i := range w.shards {
		w.learnt(i, w.ends[0]+w.ends[1]) // the last marker too: nothing lags behind for ever
	}
	a.stop(t)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	w.checkLetters()
}

// A bounded job ends behind markers, behind aborted records, and where every record has
// expired.
func TestBoundedJobEndsInHoles(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("deterministic ", inOrder), func(t *testing.T) {
			w := newWorld(t, 4, 1)
			w.shards[0].inOrder = inOrder
			w.write(20)
			c := w.transactional()
			w.transaction(c, 0, 3, kgo.TryCommit)
			w.transaction(c, 1, 20, kgo.TryAbort)
			w.expire(2)
			cfg := w.config("a", 0)
			cfg.StopAtEnd, cfg.Deterministic = true, inOrder
			w.run(cfg).wait(t)
			w.shards[0].checkBooks(w.ends)
			w.checkLetters()
		})
	}
}

// expire deletes every record of a partition.
func (w *world) expire(partition int32) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.fids[partition] {
		w.fids[partition][i] = nil
		delete(w.broken, fmt.Sprintf("kafka:ratings/%d %d", partition, i))
	}
	w.deleteBelow(partition, w.ends[partition])
}

// deleteBelow deletes a partition's records below an offset, as retention does.
func (w *world) deleteBelow(partition int32, offset int64) {
	w.t.Helper()
	req := kmsg.NewDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "ratings", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	if _, err := req.RequestWith(w.t.Context(), w.kafka()); err != nil {
		w.t.Fatal(err)
	}
}

// A shard that comes back at the beginning learns what the others have learnt, from where
// the job began; where retention has removed some of that, nothing is skipped.
func TestShardBackAtTheBeginningSkipsNothing(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.write(40)
	w.expire(0)
	well := health.New()
	a := w.start(w.config("a", 0), func(e *services.Env) { e.Health = well }, func(*Server) {})
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	w.shards[1].mu.Lock()
	w.shards[1].kept = nil // it comes back as at the job's very start
	w.shards[1].mu.Unlock()
	w.write(60)
	w.learnt(0, 100)
	w.learnt(1, 100)
	w.shards[1].crash()
	w.learnt(1, 100)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	w.deleteBelow(0, 70)
	w.shards[1].crash()
	problem(t, well, "reading ratings/0", "out of range")
	a.stop(t)
	if got := w.shards[1].now.next[0]; got > 40 {
		t.Errorf("the shard went on at %d without what the other has learnt", got)
	}
}
