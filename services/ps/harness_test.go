package ps

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	bzid = pstest.BZID
	job  = pstest.Job
	day  = 86400
)

// world is a bus with declared models and a folder.
type world struct {
	t      testing.TB
	bus    bus.Bus
	dir    string
	health *health.State
	log    *slog.Logger // of the shards; nil: nothing is logged
	cuts   int64        // checkpoints that clock has made
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, bus: mem.New(), dir: t.TempDir(), health: health.New()}
	t.Cleanup(func() { _ = w.bus.Close() })
	for _, spec := range []*model.ModelSpec{pstest.Counting(), pstest.Learning()} {
		w.append("model", spec.GetName(), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	}
	return w
}

func (w *world) append(context, aggregate string, e proto.Message) (seq uint64) {
	w.t.Helper()
	seqs, err := w.bus.Log().Append(soon(w.t), bus.Draft{Subject: events.Join(bzid, context, aggregate), Event: e, Expect: bus.Any})
	if err != nil {
		w.t.Fatal(err)
	}
	return seqs[0]
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	t.Cleanup(cancel)
	return ctx
}

// proc is a running shard with a connection to it.
type proc struct {
	*world
	*Server
	stop func() error // ends Run and returns its error
	done <-chan struct{}
	*rowwire.Client
}

func (w *world) config() Config {
	return Config{
		Job: job, Model: "counting", Shards: 1, Dir: w.dir,
		SyncInterval: 2 * time.Millisecond, HeartbeatInterval: 20 * time.Millisecond, Drain: 5 * time.Second,
	}
}

func (w *world) server(cfg Config) *Server {
	w.t.Helper()
	s, err := New(cfg, services.Env{BZID: bzid, Bus: w.bus, Metrics: prometheus.NewRegistry(), Health: w.health, Log: w.log})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// start runs a shard until the test ends or stop is called.
func (w *world) start(cfg Config) *proc {
	w.t.Helper()
	return w.run(w.server(cfg))
}

func (w *world) run(s *Server) *proc {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() { defer close(done); err = s.Run(ctx) }()
	p := &proc{world: w, Server: s, done: done, stop: sync.OnceValue(func() error { cancel(); <-done; return err })}
	w.t.Cleanup(func() { _ = p.stop() })
	select {
	case <-s.Ready():
	case <-done:
		w.t.Fatalf("Run ended before the shard was ready: %v", err)
	case <-time.After(wait.Patience):
		w.t.Fatal("the shard does not become ready")
	}
	c, derr := rowwire.Dial(soon(w.t), s.Addr(), nil)
	if derr != nil {
		w.t.Fatal(derr)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	p.Client = c
	return p
}

// call asks a command of a shard.
func call[A any](w *world, shard int, endpoint string, body any) (a A, err error) {
	w.t.Helper()
	payload, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := w.bus.Commands().Call(soon(w.t), bzid, shardcmd.Command(job, shard, endpoint), payload)
	if err != nil {
		return a, err
	}
	if m, ok := any(&a).(proto.Message); ok {
		return a, protojson.Unmarshal(reply, m)
	}
	return a, json.Unmarshal(reply, &a)
}

func must[A any](w *world, shard int, endpoint string, body any) A {
	w.t.Helper()
	a, err := call[A](w, shard, endpoint, body)
	if err != nil {
		w.t.Fatalf("%s: %v", endpoint, err)
	}
	return a
}

// checkpoint makes a cut over all shards and, with fact, appends checkpointSaved.
func (w *world) checkpoint(shards int, id int64, generation uint64) *training.Checkpoint {
	w.t.Helper()
	name := fmt.Sprintf("cut-%d-%d", id, generation)
	targets := map[int32]int64{}
	for i := range shards {
		st := must[shardcmd.State](w, i, shardcmd.Hold, shardcmd.HoldRequest{Cut: name, Generation: generation})
		for p, next := range st.Next {
			targets[p] = max(targets[p], next)
		}
	}
	c := &training.Checkpoint{Id: id, Dir: w.dir, Offsets: targets, Generation: generation}
	for i := range shards {
		st := must[shardcmd.State](w, i, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: name, Targets: targets})
		c.Turn = st.Turn
	}
	for i := range shards {
		c.Shards = append(c.Shards, w.snapshot(i, shardcmd.SnapshotRequest{Cut: name, Checkpoint: id, Export: true, Generation: generation, Turn: c.Turn}))
	}
	for i := range shards {
		must[shardcmd.State](w, i, shardcmd.Release, shardcmd.ReleaseRequest{Cut: name})
	}
	return c
}

// snapshot has a held shard write its part.
func (w *world) snapshot(shard int, r shardcmd.SnapshotRequest) *training.ShardFile {
	w.t.Helper()
	payload, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := w.bus.Commands().Call(soon(w.t), bzid, shardcmd.Command(job, shard, shardcmd.Snapshot), payload)
	if err != nil {
		w.t.Fatalf("snapshot: %v", err)
	}
	f := new(training.ShardFile)
	if err := protojson.Unmarshal(reply, f); err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *world) save(c *training.Checkpoint) {
	w.t.Helper()
	for _, f := range c.GetShards() { // a chief adds them up
		f.Slots = nil
	}
	w.append("training", job, &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: c}}})
}

func (w *world) readShard(c *training.Checkpoint, shard int) *checkpoint.Shard {
	w.t.Helper()
	s, err := checkpoint.ReadShard(filepath.Join(w.dir, c.GetShards()[shard].GetPath()))
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (p *proc) teach(r *rowwire.ApplyRequest) *rowwire.ApplyResponse {
	p.t.Helper()
	res, err := p.Apply(soon(p.t), r)
	if err != nil {
		p.t.Fatalf("apply %d to %d: %v", r.From, r.To, err)
	}
	return res
}

func (p *proc) hash() string {
	p.t.Helper()
	return must[shardcmd.HashResponse](p.world, p.cfg.Shard, shardcmd.Hash, struct{}{}).Hash
}

// table reads a whole table over the wire.
func (p *proc) table(name string) map[int64][]float32 {
	p.t.Helper()
	rows := map[int64][]float32{}
	after := int64(table.NoID)
	for {
		res, err := p.Scan(soon(p.t), &rowwire.ScanRequest{Model: job, Shard: uint32(p.cfg.Shard), Table: name, After: after, Limit: 100})
		if err != nil {
			p.t.Fatal(err)
		}
		for i, id := range res.IDs {
			rows[id] = res.Values[i*int(res.Dim) : (i+1)*int(res.Dim)]
			after = id
		}
		if !res.More {
			return rows
		}
	}
}

// band names a band of a dense variable, by where it begins.
type band struct {
	name string
	at   int
}

// mirror is a follower of the sync stream, as a serving shard is.
type mirror struct {
	rows   map[string]map[int64][]float32
	dense  map[band][]float32
	ranges []*delta.Range
	seen   []bus.StoredDelta
	epochs map[string]uint64
}

// follow folds every delta stored so far, and fails on what no follower could use.
func (w *world) follow() *mirror {
	w.t.Helper()
	r := &mirror{rows: map[string]map[int64][]float32{}, dense: map[band][]float32{}, epochs: map[string]uint64{}}
	last, err := w.bus.Deltas().Last(soon(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	if last == 0 {
		return r
	}
	err = w.bus.Deltas().Follow(soon(w.t), 1, last, nil, func(m bus.StoredDelta) error {
		var d delta.Delta
		if err := proto.Unmarshal(m.Data, &d); err != nil {
			return err
		}
		if len(m.Data) >= 512<<10 && (len(d.GetDense()) != 1 || len(m.Data) >= 1<<20) { // a band may be longer, alone
			w.t.Errorf("delta %d has %d bytes", m.Seq, len(m.Data))
		}
		r.seen = append(r.seen, m)
		if d.GetEpoch() < r.epochs[m.Subject] {
			w.t.Errorf("delta %d of epoch %d came after epoch %d", m.Seq, d.GetEpoch(), r.epochs[m.Subject])
		}
		r.epochs[m.Subject] = d.GetEpoch()
		for _, rows := range d.GetRows() {
			t := r.rows[rows.GetTable()]
			if t == nil {
				t = map[int64][]float32{}
				r.rows[rows.GetTable()] = t
			}
			dim := int(rows.GetDim())
			for i, id := range rows.GetIds() {
				n := map[delta.Encoding]int{delta.Encoding_FP32: 4 * dim, delta.Encoding_FP16: 2 * dim, delta.Encoding_INT8: dim, delta.Encoding_BITS: (dim + 7) / 8}[rows.GetEncoding()]
				t[int64(id)] = pstest.Row(rows, rows.GetValues()[i*n:(i+1)*n])
			}
			for _, id := range rows.GetRemoved() {
				delete(t, int64(id))
			}
		}
		for _, v := range d.GetDense() {
			r.dense[band{v.GetName(), int(v.GetAt())}] = pstest.Floats(v.GetValues())
		}
		r.ranges = append(r.ranges, d.GetRanges()...)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// settled waits until all that p has learnt is published, and returns what a follower has.
func (p *proc) settled() *mirror {
	p.t.Helper()
	ctx := soon(p.t)
	err := p.do(ctx, func(ctx context.Context) error { return p.publish(ctx, func(int) bool { return true }) })
	if err != nil {
		p.t.Fatalf("publish: %v", err)
	}
	return p.world.follow()
}

// sameRows says whether the follower holds exactly the shard's rows and variables.
func (p *proc) sameRows(r *mirror) {
	p.t.Helper()
	for _, name := range []string{"user", "movie"} {
		want, got := p.table(name), r.rows[name]
		if !maps.EqualFunc(want, got, slices.Equal[[]float32]) {
			p.t.Errorf("table %s: the follower holds %v, the shard %v", name, got, want)
		}
	}
	d, err := p.Dense(soon(p.t), &rowwire.DenseRequest{Job: job, Shard: uint32(p.cfg.Shard), Turn: p.st.Standing().Turn, Generation: p.st.Standing().Generation})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, v := range d.Tensors {
		if held := r.dense[band{v.Name, int(v.At)}]; !slices.Equal(v.Values, held) {
			p.t.Errorf("variable %s at %d: the follower holds %v, the shard %v", v.Name, v.At, held, v.Values)
		}
	}
}
