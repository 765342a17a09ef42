// Package product measures what ships: the log, the way of a rating, predictions, training, row
// look-ups.
package product

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/demo"
)

const (
	clusterShards   = 2
	clusterReplicas = 2
	startPatience   = time.Minute
	startPoll       = 2 * time.Millisecond
	clusterSync     = 25 * time.Millisecond // between flushes of a training shard
)

// stackCluster is a whole stack in a temporary folder, with the demo's defaults and a
// served first model.
type stackCluster struct {
	stack   *host.Stack
	job     *demo.Job
	entry   string // gRPC
	rest    string
	rows    *rowwire.Pool
	writers []*rowWriter // by training shard; nil until Rewrite
	stop    context.CancelFunc
	running chan error
}

// StartCluster starts one in this process, as [Start] says.
func StartCluster(ctx context.Context) (Cluster, error) { return startStack(ctx, host.Ports{}, 0) }

// anyPort stands for each port of a stack: its certificate is of the address alone.
const anyPort = "127.0.0.1:1"

// startStack starts one with these ports, and that of its ZooKeeper view; 0: one that is free.
func startStack(ctx context.Context, ports host.Ports, zk int) (_ *stackCluster, err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return nil, err
	}
	c := &stackCluster{rows: rowwire.NewPool(nil), running: make(chan error, 1)}
	defer func() {
		if err != nil {
			if c.stack == nil {
				err = errors.Join(err, os.RemoveAll(dir))
			} else {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	c.stack, err = host.Start(ctx, host.Config{Logs: connect.Config{BZID: "bench", Level: "error"}, Dir: dir, Ports: ports, ZKPort: zk, Shards: clusterShards, Replicas: clusterReplicas,
		Trainers: 2, Partitions: 4, Batch: 64, Linger: 10 * time.Millisecond, Sync: clusterSync, Checkpoints: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	go func() { c.running <- c.stack.Run(run, func() {}) }()
	if c.job, err = demo.OpenJob(ctx, c.stack.Config.Logs); err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := c.job.Declare(ready, modelspec.MovieRanking()); err != nil {
		return nil, err
	}
	keys, err := ports.TLS.Load()
	if err != nil {
		return nil, err
	}
	var dial []grpc.DialOption
	if keys != nil {
		conf, err := mtls.To(keys, anyPort)
		if err != nil {
			return nil, err
		}
		dial = append(dial, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	}
	entry, err := c.job.Serve(ready, c.stack.Exports(), demo.SizeOf(c.stack), modelspec.MovieRanking(), func(string, ...any) {}, dial...)
	c.entry, c.rest = entry.GetGrpcAddress(), entry.GetHttpAddress()
	return c, err
}

func (c *stackCluster) PredictAddr() string { return c.entry }
func (c *stackCluster) RESTAddr() string    { return c.rest }
func (c *stackCluster) Model() string       { return host.ModelName }
func (c *stackCluster) Brokers() []string   { return c.stack.Brokers() }
func (c *stackCluster) Topic() string       { return c.stack.Config.Topics.Ratings }

// Close ends the roles, then the logs, and removes the folder.
func (c *stackCluster) Close() error {
	var errs []error
	c.rows.Close()
	if c.job != nil {
		errs = append(errs, c.job.Close())
	}
	if c.stop != nil {
		c.stop()
		errs = append(errs, <-c.running)
	}
	dir := c.stack.Config.Dir
	errs = append(errs, c.stack.Close(), os.RemoveAll(dir))
	return errors.Join(errs...)
}

// Served waits for the shards by their commands, for the deltas by the ranges they
// carry, and for the replicas by the sequences of the rows they answer with.
func (c *stackCluster) Served(ctx context.Context, ends map[int32]int64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*startPatience)
	defer cancel()
	for { // AwaitTrained looks too seldom for a short run
		least, err := c.job.Trained(ctx, clusterShards)
		if err != nil {
			return err
		}
		if reached(least, ends) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the trainers, which stand at %v of %v: %w", least, ends, ctx.Err())
		case <-time.After(startPoll):
		}
	}
	for {
		proofs, err := c.published(ctx, ends)
		if err != nil {
			return err
		}
		if proofs != nil {
			return c.held(ctx, proofs)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the deltas of %v: %w", ends, ctx.Err())
		case <-time.After(startPoll):
		}
	}
}

func reached(least, ends map[int32]int64) bool {
	for p, end := range ends {
		if least[p] < end {
			return false
		}
	}
	return true
}

// proof is a row that a serving shard has only once it has applied the delta at seq.
type proof struct {
	table string
	id    int64
	seq   uint64
}

// published looks from the end of the sync stream backwards for the ranges that end at
// ends, of every training shard. It returns the newest row written for each serving
// shard, or nil while something is not published yet.
func (c *stackCluster) published(ctx context.Context, ends map[int32]int64) (map[int]proof, error) {
	deltas := c.job.Bus.Deltas()
	last, err := deltas.Last(ctx)
	if err != nil {
		return nil, err
	}
	prefix := bus.DeltaSubject(c.stack.Config.Logs.BZID, host.JobName, "")
	proofs := map[int]proof{}
	type place struct {
		shard     string
		partition int32
	}
	seen := map[place]bool{}
	missing := clusterShards * len(ends)
	for seq := last; seq > 0 && (missing > 0 || len(proofs) < clusterShards); seq-- {
		m, err := deltas.Get(ctx, seq)
		if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrTrimmed) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		shard, ok := strings.CutPrefix(m.Subject, prefix)
		if _, err := strconv.Atoi(shard); !ok || err != nil {
			continue // dense variables
		}
		var d delta.Delta
		if err := proto.Unmarshal(m.Data, &d); err != nil {
			return nil, fmt.Errorf("delta %d: %w", seq, err)
		}
		for _, r := range d.GetRanges() {
			at := place{shard, r.GetPartition()}
			end, wanted := ends[r.GetPartition()]
			if !wanted || seen[at] {
				continue
			}
			if r.GetTo() < end {
				return nil, nil // its newest delta is older than what was learnt
			}
			seen[at] = true
			missing--
		}
		for _, rows := range d.GetRows() {
			for _, id := range rows.GetIds() {
				k := modelspec.ShardOf(int64(id), clusterShards)
				if _, ok := proofs[k]; !ok {
					proofs[k] = proof{rows.GetTable(), int64(id), seq}
				}
			}
		}
	}
	if missing > 0 || len(proofs) < clusterShards {
		return nil, nil
	}
	return proofs, nil
}

// held waits until every replica answers with the rows of proofs, or newer ones.
func (c *stackCluster) held(ctx context.Context, proofs map[int]proof) error {
	for key, r := range c.job.Replicas(host.ModelName) {
		p, ok := proofs[int(r.GetTask())]
		if !ok {
			return fmt.Errorf("replica %s is of a shard that does not exist", key)
		}
		for {
			client, err := c.rows.Get(ctx, r.GetRowsAddress())
			if err != nil {
				return fmt.Errorf("replica %s: %w", key, err)
			}
			res, err := client.Lookup(ctx, &rowwire.LookupRequest{Model: host.ModelName, Shard: uint32(r.GetTask()), WithSeqs: true,
				Tables: []rowwire.TableIDs{{Table: p.table, IDs: []int64{p.id}}}})
			if err != nil {
				return fmt.Errorf("replica %s: %w", key, err)
			}
			if len(res.Seqs) == 1 && len(res.Seqs[0]) == 1 && res.Seqs[0][0] >= p.seq {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait until replica %s holds delta %d: %w", key, p.seq, ctx.Err())
			case <-time.After(startPoll):
			}
		}
	}
	return nil
}
