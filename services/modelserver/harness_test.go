package modelserver_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/modelspec/modelspectest"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/densetest"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	bzid    = "t.1" // needs escaping
	job     = "job"
	ranker  = "ranker"
	timeout = wait.Patience
)

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	t.Cleanup(cancel)
	return ctx
}

// world is what training would have left behind: rows, dense variables, a bus.
type world struct {
	t testing.TB
	// tracer is given to servers started after it is set.
	tracer trace.Tracer
	bus    *mem.Bus
	gate   *gate // of the deltas that servers started after it is set receive
	spec   *model.ModelSpec
	dir    string // exported_models
	// exportSpec is what row exports say of their model; nil as those of older builds.
	exportSpec *model.ModelSpec
	exportDim  int // of both tables

	cuts map[int64]cut // what was exported, by version

	mu    sync.Mutex
	rows  map[string]map[int64][]float32
	dense map[string][]float32
	tls   mtls.Files // of servers' ports
}

const dim = 4

// cut is how far the stream was when a version was exported, as its shards say.
type cut struct {
	shards  int
	syncSeq uint64
}

func newWorld(t testing.TB) *world {
	t.Helper()
	spec := modelspec.MovieRanking()
	for _, tab := range spec.Tables {
		tab.Dim = dim
	}
	spec.Layers = spec.Layers[1:]
	spec.Layers[0].Units = 6
	w := &world{t: t, bus: mem.New(), spec: spec, dir: t.TempDir(), exportDim: dim, cuts: map[int64]cut{},
		rows: map[string]map[int64][]float32{"user": {}, "movie": {}}, dense: map[string][]float32{}}
	t.Cleanup(func() { _ = w.bus.Close() })
	for id := range int64(20) {
		w.rows["user"][modelspec.FID(1, id)] = []float32{float32(id) * 0.1, 0.2, -0.3, 0.4}
		w.rows["movie"][modelspec.FID(2, id)] = []float32{0.5, -0.05 * float32(id), 0.1, -0.2}
	}
	for _, v := range modelspec.Variables(spec) {
		w.dense[v.Name] = modelspec.InitVariable(spec, v)
	}
	return w
}

// score is the right answer, computed from the world alone.
func (w *world) score(user, movie int64) float32 {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	tower, err := modelspectest.NewTower(w.spec)
	if err != nil {
		w.t.Fatal(err)
	}
	row := func(tab string, fid int64) []float32 {
		if r := w.rows[tab][fid]; r != nil {
			return r
		}
		return make([]float32, dim)
	}
	x := append(append([]float32(nil), row("user", modelspec.FID(1, user))...), row("movie", modelspec.FID(2, movie))...)
	var params [][]float32
	for _, v := range modelspec.Variables(w.spec) {
		params = append(params, w.dense[v.Name])
	}
	var ws densetest.Workspace
	logits, err := tower.Forward(params, x, 1, &ws)
	if err != nil {
		w.t.Fatal(err)
	}
	return densetest.Sigmoid(logits[0])
}

// export writes a version of every sub-model; syncSeq is what it contains.
func (w *world) export(version int64, shards int, syncSeq uint64) {
	w.t.Helper()
	w.exportAt(version, shards, syncSeq, syncSeq)
}

// exportAt says of the shards how far each had written, and of the whole how far the
// stream was.
func (w *world) exportAt(version int64, shards int, syncSeq, end uint64) {
	w.t.Helper()
	w.cuts[version] = cut{shards, syncSeq}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range shards {
		s := &checkpoint.Shard{
			Manifest: checkpoint.Manifest{Job: job, Checkpoint: version, Shard: uint32(k), Shards: uint32(shards), Epoch: 2, Step: 1, SyncSeq: syncSeq,
				Tables: []checkpoint.TableInfo{{Name: "user", Dim: w.exportDim}, {Name: "movie", Dim: w.exportDim}}},
			Tables: map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{}, Spec: w.exportSpec,
		}
		for name, rows := range w.rows {
			for id, values := range rows {
				if modelspec.ShardOf(id, shards) == k {
					s.Tables[name] = append(s.Tables[name], table.Row{ID: id, Values: values})
				}
			}
		}
		if _, err := checkpoint.WriteShard(w.path(fmt.Sprintf("ps_%d", k), version), s); err != nil {
			w.t.Fatal(err)
		}
	}
	e := &checkpoint.Entry{Spec: w.spec, Version: version, Job: job, Shards: uint32(shards), SyncSeq: end, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(w.spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: w.dense[v.Name]}
	}
	if err := checkpoint.WriteEntry(w.path("entry", version), e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) path(sub string, version int64) string {
	return filepath.Join(w.dir, sub, strconv.FormatInt(version, 10))
}

func (w *world) append(context, aggregate string, e proto.Message) uint64 {
	w.t.Helper()
	seqs, err := w.bus.Log().Append(testContext(w.t), bus.Draft{Subject: events.Join(bzid, context, aggregate), Event: e, Expect: bus.Any})
	if err != nil {
		w.t.Fatal(err)
	}
	return seqs[0]
}

func (w *world) plan(version int64, numPS uint32, job string) {
	w.t.Helper()
	subs := map[string]string{"entry": w.path("entry", version)}
	for k := range numPS {
		sub := fmt.Sprintf("ps_%d", k)
		subs[sub] = w.path(sub, version)
	}
	w.append("publish", ranker, &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{
		ModelName: ranker, ModelDir: w.dir, Version: version, NumPs: numPS, Job: job, Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c0", SubModels: subs}},
	}}})
}

// exported appends the facts of what export has written, as the job's chief does.
func (w *world) exported(version int64, syncSeq uint64) {
	w.t.Helper()
	c := &training.Checkpoint{Id: version, Dir: w.dir}
	for k := range w.cuts[version].shards {
		c.Shards = append(c.Shards, &training.ShardFile{Shard: uint32(k), Path: fmt.Sprint(k), Epoch: 2, Step: 1, SyncSeq: w.cuts[version].syncSeq, Hash: "h"})
	}
	w.append("training", job, &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: c}}})
	w.append("training", job, &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{
		Version: version, ModelDir: w.dir, SubModels: []string{"entry", "ps_0", "ps_1"}, SyncSeq: syncSeq}}})
}

func (w *world) register(task, number int32, container, addr string) {
	w.t.Helper()
	w.append("replica", fmt.Sprintf("%s/ps:%d/%d", ranker, task, number), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{
		Replica: &replica.Replica{ModelName: ranker, ServerType: "ps", Task: task, Replica: number, Container: container,
			GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", RowsAddress: addr, Stat: replica.State_AVAILABLE, Version: 1}}}})
}

// publish stores a delta of a training shard as it is.
func (w *world) publish(d *delta.Delta) uint64 {
	w.t.Helper()
	data, err := proto.Marshal(d)
	if err != nil {
		w.t.Fatal(err)
	}
	subject := bus.DeltaSubject(bzid, job, strconv.Itoa(int(d.GetShard())))
	if len(d.GetDense()) > 0 {
		subject += ".dense"
	}
	seq, err := w.bus.Deltas().Publish(testContext(w.t), bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: data,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	if err != nil {
		w.t.Fatal(err)
	}
	return seq
}

// learn changes one row in the world, and makes the delta that says so.
func (w *world) learn(tab string, slot uint32, id int64, epoch uint64, values ...float32) *delta.Delta {
	fid := modelspec.FID(slot, id)
	w.mu.Lock()
	w.rows[tab][fid] = values
	w.mu.Unlock()
	return rowDelta(tab, fid, epoch, values...)
}

func rowDelta(tab string, fid int64, epoch uint64, values ...float32) *delta.Delta {
	return &delta.Delta{Job: job, Shard: uint32(modelspec.ShardOf(fid, 2)), Shards: 2, Epoch: epoch, Step: 9, Chunks: 1,
		Rows: []*delta.Rows{{Table: tab, Dim: uint32(len(values)), Ids: []uint64{uint64(fid)}, Values: floats(values)}}}
}

func floats(v []float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// served is one running model server with clients.
type served struct {
	*modelserver.Server
	w       *world
	name    string
	conn    *grpc.ClientConn
	predict *tfserving.PredictionClient
	models  *tfserving.ModelClient
	metrics *prometheus.Registry
	health  *health.State
	stop    func() error
}

func (w *world) serve(name string, change ...func(*modelserver.Config)) *served {
	w.t.Helper()
	cfg := modelserver.Config{Container: name, PollInterval: 5 * time.Millisecond, SignalInterval: time.Millisecond, Linger: 20 * time.Millisecond, LookupTimeout: timeout}
	for _, f := range change {
		f(&cfg)
	}
	s := &served{w: w, name: name, metrics: prometheus.NewRegistry(), health: health.New()}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	var b bus.Bus = w.bus
	if w.gate != nil {
		b = gatedBus{w.bus, w.gate}
	}
	var err error
	s.Server, err = modelserver.New(cfg, services.Env{BZID: bzid, Bus: b, Log: log, Metrics: s.metrics, Tracer: w.tracer, Health: s.health, TLS: w.tls})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	w.t.Cleanup(func() {
		if err := s.stop(); err != nil {
			w.t.Errorf("%s: Run = %v", name, err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		w.t.Fatalf("%s: Run = %v before it was ready", name, err)
	case <-time.After(timeout):
		w.t.Fatalf("%s: not ready", name)
	}
	cc, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cc.Close() })
	s.conn = cc
	s.predict, s.models = tfserving.NewPredictionClient(cc), tfserving.NewModelClient(cc)
	return s
}

// load configures exactly these sub-models, and waits until they answer.
func (s *served) load(version int64, subs ...string) error {
	var models []tfserving.Model
	for _, sub := range subs {
		models = append(models, tfserving.Model{Name: ranker + ":" + sub, BasePath: filepath.Join(s.w.dir, sub), Policy: tfserving.Policy{Versions: []int64{version}}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := s.models.HandleReloadConfigRequest(ctx, &apis.ReloadConfigRequest{Config: tfserving.Config(models...)})
	return err
}

func (s *served) mustLoad(version int64, subs ...string) {
	s.w.t.Helper()
	if err := s.load(version, subs...); err != nil {
		s.w.t.Fatalf("%s: load %v: %v", s.name, subs, err)
	}
}

// client speaks the row protocol with s.
func (w *world) client(s *served) (*rowwire.Client, error) {
	c, err := rowwire.Dial(testContext(w.t), s.RowsAddr(), nil)
	if err == nil {
		w.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func request(users, movies []int64) *apis.PredictRequest {
	return &apis.PredictRequest{ModelSpec: tfserving.Spec(ranker, 0), Inputs: map[string]*tfserving.TensorProto{
		"user": tfserving.NewInt64(users), "movie": tfserving.NewInt64(movies)}}
}

func (s *served) scores(users, movies []int64) ([]float32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	res, err := s.predict.Predict(ctx, request(users, movies))
	if err != nil {
		return nil, err
	}
	return tfserving.Floats(nil, res.GetOutputs()["score"], 1<<16)
}

// check compares served scores with the world's.
func (s *served) check(users, movies []int64) error {
	got, err := s.scores(users, movies)
	if err != nil {
		return err
	}
	if len(got) != len(users) {
		return fmt.Errorf("%d scores for %d rows", len(got), len(users))
	}
	for i := range got {
		if want := s.w.score(users[i], movies[i]); math.Abs(float64(got[i]-want)) > 1e-6 {
			return fmt.Errorf("row %d (user %d, movie %d): score %v, want %v", i, users[i], movies[i], got[i], want)
		}
	}
	return nil
}

// applied listens to what the container signals; the function returned waits for seq.
func (w *world) applied(container, sub string) func(seq uint64) {
	w.t.Helper()
	got := make(chan uint64, 1024)
	stop, err := w.bus.Signals().Listen(testContext(w.t), bus.PulseSubject(bzid, "applied", container), func(_ string, payload []byte) {
		var a transfer.DeltasApplied
		if err := protojson.Unmarshal(payload, &a); err != nil {
			w.t.Errorf("signal does not decode: %v", err)
			return
		}
		if a.GetModelName() == ranker && a.GetSubModel() == sub && a.GetContainer() == container {
			for _, x := range a.GetApplied() {
				got <- x.GetSyncSeq()
			}
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(stop)
	return func(seq uint64) {
		w.t.Helper()
		for {
			select {
			case at := <-got:
				if at == seq {
					return
				}
			case <-time.After(timeout):
				w.t.Fatalf("%s/%s never signalled sequence %d", container, sub, seq)
			}
		}
	}
}

// gate holds deltas back until it is opened.
type gate struct {
	bus.Deltas
	waiting chan struct{} // closed once a delta is held back
	open    chan struct{}
	once    sync.Once
}

func newGate(w *world) *gate {
	return &gate{Deltas: w.bus.Deltas(), waiting: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) Follow(ctx context.Context, from, until uint64, subjects []string, handle func(bus.StoredDelta) error) error {
	return g.Deltas.Follow(ctx, from, until, subjects, func(d bus.StoredDelta) error {
		g.once.Do(func() { close(g.waiting) })
		select {
		case <-g.open:
		case <-ctx.Done():
			return ctx.Err()
		}
		return handle(d)
	})
}

type gatedBus struct {
	bus.Bus
	gate *gate
}

func (b gatedBus) Deltas() bus.Deltas { return b.gate }
