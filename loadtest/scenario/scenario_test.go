package scenario

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const topic = "ratings"

// server answers Predict with truth(model, user, movie), after before has allowed it.
type server struct {
	tfserving.UnimplementedPrediction
	before func(ctx context.Context, model, requestID string, users, movies []int64) error
}

func truth(model string, user, movie int64) float32 {
	return float32(len(model))/64 + float32(user%7)/16 + float32(movie%5)/64 // exact in float32
}

func (s *server) Predict(ctx context.Context, in *apis.PredictRequest) (*apis.PredictResponse, error) {
	users, err := tfserving.Int64s(nil, in.GetInputs()["user"], MaxBatch)
	if err != nil {
		return nil, err
	}
	movies, err := tfserving.Int64s(nil, in.GetInputs()["movie"], MaxBatch)
	if err != nil {
		return nil, err
	}
	model := in.GetModelSpec().GetName()
	md, _ := metadata.FromIncomingContext(ctx)
	id := ""
	if v := md.Get(RequestIDKey); len(v) == 1 {
		id = v[0]
	}
	if s.before != nil {
		if err := s.before(ctx, model, id, users, movies); err != nil {
			return nil, err
		}
	}
	out := make([]float32, len(users))
	for i := range users {
		out[i] = truth(model, users[i], movies[i])
	}
	return &apis.PredictResponse{Outputs: map[string]*tfserving.TensorProto{"score": tfserving.NewFloat(out)}}, nil
}

func serve(t *testing.T, s *server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tfserving.RegisterPrediction(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return ln.Addr().String()
}

// broker starts a broker at that address; "": at one to which it may come back.
func broker(t *testing.T, dir, addr string) *kafka.Broker {
	t.Helper()
	if addr == "" {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		addr = fmt.Sprint("127.0.0.1:", port)
	}
	b, err := kafka.StartBroker(kafka.BrokerConfig{Dir: dir, Addr: addr, Topics: map[string]int32{topic: 4}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writer(t *testing.T, addr string) *kafka.Writer {
	t.Helper()
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: []string{addr}})
	t.Cleanup(w.Close)
	return w
}

// ratings has one movie per rating, so that a movie names an index.
func ratings(n int) gen.Source {
	var rs []rating.Rating
	for i := range n {
		rs = append(rs, rating.Rating{User: int64(i % 23), Movie: int64(i), Rating: float64(i%10+1) / 2, Timestamp: int64(i)})
	}
	return gen.Ratings(rs)
}

// records reads the whole topic.
func records(t *testing.T, addr string) (all []kafka.Record) {
	t.Helper()
	for p := range int32(4) {
		err := kafka.Plain.ScanPartition(t.Context(), []string{addr}, topic, p, 0, func(r kafka.Record) error { all = append(all, r); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// onceEach fails unless the topic holds exactly ratings 0 .. n-1, one record each, each
// partition in their order.
func onceEach(t *testing.T, addr string, n int) {
	t.Helper()
	seen, last := map[int]int{}, map[int32]int{}
	for _, r := range records(t, addr) {
		i, err := strconv.Atoi(r.Headers[rating.HeaderIndex])
		if err != nil {
			t.Fatal(err)
		}
		seen[i]++
		if before, ok := last[r.Partition]; ok && before >= i {
			t.Errorf("partition %d holds rating %d before %d", r.Partition, before, i)
		}
		last[r.Partition] = i
		if got, err := rating.Decode(r.Value); err != nil || got.Movie != int64(i) || string(r.Key) != strconv.FormatInt(got.User, 10) {
			t.Errorf("record of rating %d: key %s, %+v, %v", i, r.Key, got, err)
		}
	}
	for i := range n {
		if seen[i] != 1 {
			t.Errorf("rating %d is stored %d times", i, seen[i])
		}
	}
	if len(seen) != n {
		t.Errorf("%d ratings stored, want %d", len(seen), n)
	}
}

func TestStream(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	defer b.Close()
	var early atomic.Int64
	srv := &server{before: looksInto(b.Addr(), &early)}
	var frozen atomic.Bool
	var outcomes []Outcome
	res, err := Stream(t.Context(), StreamConfig{
		Source: ratings(120), Name: "test", Rate: 400, Topic: topic,
		PredictAddr: serve(t, srv), Model: "movies", MaxTick: 5, MaxInFlight: 4,
		FrozenModel: func() string {
			if frozen.Load() {
				return "movies-frozen"
			}
			return ""
		},
		Writer: writer(t, b.Addr()), Brokers: []string{b.Addr()},
		OnOutcome: func(o Outcome) {
			outcomes = append(outcomes, o)
			frozen.Store(o.Index >= 40)
		},
		PredictTimeout: wait.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	if early.Load() > 0 {
		t.Errorf("%d ratings were in the log before they were scored", early.Load())
	}
	if !res.Exhausted || res.Taken != 120 || res.Produced != 120 || res.Scored != 120 || len(res.PredictErrors)+len(res.FrozenErrors) > 0 {
		t.Errorf("result %+v", res)
	}
	onceEach(t, b.Addr(), 120)
	frozenScores := scoredAndStored(t, outcomes, records(t, b.Addr()))
	if frozenScores == 0 || frozenScores > 80 {
		t.Errorf("%d frozen scores of at most 80", frozenScores)
	}
}

// looksInto counts the ratings that are in the log when the served model is asked for their score.
func looksInto(broker string, early *atomic.Int64) func(ctx context.Context, model, id string, users, movies []int64) error {
	return func(ctx context.Context, model, _ string, _, movies []int64) error {
		if model != "movies" {
			return nil
		}
		for p := range int32(4) {
			err := kafka.Plain.ScanPartition(ctx, []string{broker}, topic, p, 0, func(r kafka.Record) error {
				if got, err := rating.Decode(r.Value); err != nil || slices.Contains(movies, got.Movie) {
					early.Add(1)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// scoredAndStored holds that outcomes come in order, 2.5 ms apart, with the scores that the server
// gave and the places at which the log has them. It returns how many the frozen copy has scored.
func scoredAndStored(t *testing.T, outcomes []Outcome, stored []kafka.Record) (frozen int) {
	t.Helper()
	byIndex := map[int]kafka.Record{}
	for _, r := range stored {
		i, _ := strconv.Atoi(r.Headers[rating.HeaderIndex])
		byIndex[i] = r
	}
	for i, o := range outcomes {
		if o.Index != i {
			t.Fatalf("outcome %d has index %d", i, o.Index)
		}
		if want := float64(truth("movies", o.Rating.User, o.Rating.Movie)); o.Score != want {
			t.Errorf("rating %d scored %v, want %v", i, o.Score, want)
		}
		if !math.IsNaN(o.Frozen) {
			frozen++
			if want := float64(truth("movies-frozen", o.Rating.User, o.Rating.Movie)); o.Frozen != want {
				t.Errorf("rating %d frozen score %v, want %v", i, o.Frozen, want)
			}
		}
		r := byIndex[i]
		if r.Partition != o.Partition || r.Offset != o.Offset || r.Headers[rating.HeaderRequest] != o.RequestID ||
			r.Headers[rating.HeaderPosition] != strconv.Itoa(o.Position) || r.Headers[rating.HeaderStream] != "test" {
			t.Errorf("rating %d: record %d/%d %v, outcome %+v", i, r.Partition, r.Offset, r.Headers, o)
		}
		if o.Acked.Before(o.Scheduled) || r.Time.After(o.Acked) {
			t.Errorf("rating %d: scheduled %v, record %v, acked %v", i, o.Scheduled, r.Time, o.Acked)
		}
		if i > 0 {
			if gap := o.Scheduled.Sub(outcomes[i-1].Scheduled); gap < 2*time.Millisecond || gap > 3*time.Millisecond {
				t.Errorf("rating %d was scheduled %v after the one before, at 400 per second", i, gap)
			}
		}
	}
	return frozen
}

func TestStreamGoesOnUnscored(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	defer b.Close()
	var calls atomic.Int64
	srv := &server{before: func(context.Context, string, string, []int64, []int64) error {
		if calls.Add(1)%2 == 0 {
			return status.Error(codes.Unavailable, "shard 1 has no replica")
		}
		return nil
	}}
	unscored := 0
	res, err := Stream(t.Context(), StreamConfig{
		Source: ratings(200), Name: "test", Topic: topic, MaxTick: 10, MaxInFlight: 3,
		PredictAddr: serve(t, srv), Model: "movies",
		Writer: writer(t, b.Addr()), Brokers: []string{b.Addr()},
		OnOutcome: func(o Outcome) {
			if math.IsNaN(o.Score) != (o.RequestID == "") {
				t.Errorf("rating %d: score %v under request %q", o.Index, o.Score, o.RequestID)
			}
			if math.IsNaN(o.Score) {
				unscored++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Produced != 200 || res.Scored != 100 || unscored != 100 || res.PredictErrors["Unavailable"] != 10 {
		t.Errorf("%+v, %d unscored", res, unscored)
	}
	onceEach(t, b.Addr(), 200)
	for _, r := range records(t, b.Addr()) {
		_, named := r.Headers[rating.HeaderRequest]
		_, placed := r.Headers[rating.HeaderPosition]
		if named != placed {
			t.Errorf("headers %v", r.Headers)
		}
	}
}

func TestStreamBeforeServing(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	defer b.Close()
	srv := &server{before: func(context.Context, string, string, []int64, []int64) error {
		t.Error("Predict was called before the model is served")
		return nil
	}}
	res, err := Stream(t.Context(), StreamConfig{
		Source: ratings(30), Name: "test", Topic: topic, PredictAddr: serve(t, srv), Model: "movies",
		Serving: func() bool { return false }, Writer: writer(t, b.Addr()),
	})
	if err != nil || res.Produced != 30 || res.Scored != 0 || len(res.PredictErrors) != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A serving port that hangs holds up at most MaxInFlight ticks, and loses none.
func TestStreamInFlightIsBounded(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	defer b.Close()
	var now, most atomic.Int64
	full, release := make(chan struct{}), make(chan struct{})
	srv := &server{before: func(ctx context.Context, _, _ string, _, _ []int64) error {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 5 {
			close(full)
		}
		<-release
		return nil
	}}
	done := make(chan error, 1)
	go func() {
		_, err := Stream(t.Context(), StreamConfig{
			Source: ratings(100), Name: "test", Topic: topic, MaxTick: 4, MaxInFlight: 5, PredictTimeout: time.Minute,
			PredictAddr: serve(t, srv), Model: "movies", Writer: writer(t, b.Addr()),
		})
		done <- err
	}()
	<-full
	select {
	case err := <-done:
		t.Fatalf("the stream ended with unanswered calls: %v", err)
	case <-time.After(50 * time.Millisecond): // room for a sixth call to go wrong
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if most.Load() > 5 {
		t.Errorf("%d ticks were in flight, at most 5 were allowed", most.Load())
	}
	onceEach(t, b.Addr(), 100)
}

func TestStreamStopsAndResumes(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	defer b.Close()
	addr := serve(t, &server{})
	w := writer(t, b.Addr())
	first, stop := context.WithCancel(t.Context())
	cfg := StreamConfig{
		Source: ratings(500), Name: "test", Rate: 1000, Topic: topic, PredictAddr: addr, Model: "movies", Writer: w,
		OnOutcome: func(o Outcome) {
			if o.Index == 100 {
				stop()
			}
		},
	}
	res, err := Stream(first, cfg)
	if err != nil || res.Exhausted || res.Produced != res.Taken || res.Produced <= 100 || res.Produced > 400 {
		t.Fatalf("stopped stream: %+v, %v", res, err)
	}
	onceEach(t, b.Addr(), int(res.Produced))

	// A record of another source in the same topic is none of ours.
	if _, err := w.Write(t.Context(), kafka.Record{Topic: topic, Partition: 0, Value: []byte("x"),
		Headers: map[string]string{rating.HeaderStream: "other", rating.HeaderIndex: "499"}}); err != nil {
		t.Fatal(err)
	}
	stored, err := FindStored(t.Context(), kafka.Plain, []string{b.Addr()}, topic, "test")
	if err != nil || stored.Len() != int(res.Produced) || !stored.Has(100) || stored.Has(499) {
		t.Fatalf("%d stored, want %d: %v", stored.Len(), res.Produced, err)
	}
	cfg.Source, cfg.Rate, cfg.OnOutcome, cfg.Skip = ratings(500), 0, nil, stored.Has
	again, err := Stream(t.Context(), cfg)
	if err != nil || !again.Exhausted || again.Taken != 500 || again.Skipped != res.Produced || again.Produced != 500-res.Produced {
		t.Fatalf("resumed stream: %+v, %v", again, err)
	}
	all := 0
	for _, r := range records(t, b.Addr()) {
		if r.Headers[rating.HeaderStream] == "test" {
			all++
		}
	}
	if all != 500 {
		t.Errorf("%d ratings stored, want 500", all)
	}
}

// The broker goes away in the middle and comes back on the same folder: every rating
// is stored exactly once, whether or not the ack of its write was lost.
func TestStreamOutlivesTheBroker(t *testing.T) {
	dir := t.TempDir()
	b := broker(t, dir, "")
	addr := b.Addr()
	down := make(chan struct{})
	var once sync.Once
	type result struct {
		res StreamResult
		err error
	}
	done := make(chan result, 1)
	cfg := StreamConfig{
		Source: ratings(2000), Name: "test", Rate: 2000, Topic: topic, PredictAddr: serve(t, &server{}), Model: "movies",
		Writer: writer(t, addr), Brokers: []string{addr},
		OnOutcome: func(o Outcome) {
			if o.Index == 500 {
				once.Do(func() { close(down) })
			}
		},
	}
	go func() {
		res, err := Stream(t.Context(), cfg)
		done <- result{res, err}
	}()
	<-down
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = broker(t, dir, addr)
	defer b.Close()
	r := <-done
	if r.err != nil || r.res.Produced != 2000 {
		t.Fatalf("%+v, %v", r.res, r.err)
	}
	onceEach(t, addr, 2000)
}

func TestStreamGivesUpOnlyAtItsDrainLimit(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	addr := b.Addr()
	w := writer(t, addr)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	res, err := Stream(ctx, StreamConfig{
		Source: ratings(100_000), Name: "test", Rate: 1000, Topic: topic, PredictAddr: serve(t, &server{}), Model: "movies",
		Writer: w, Brokers: []string{addr}, Drain: 200 * time.Millisecond,
		OnOutcome: func(o Outcome) {
			if o.Index == 50 {
				_ = b.Close()
				stop()
			}
		},
	})
	if err == nil && res.Produced < res.Taken {
		t.Errorf("%d of %d ratings were lost without an error", res.Taken-res.Produced, res.Taken)
	}
	if res.Produced <= 50 || res.Produced == 100_000 {
		t.Errorf("%+v", res)
	}
}

func TestStreamRefuses(t *testing.T) {
	w := writer(t, "127.0.0.1:1")
	ok := StreamConfig{Source: ratings(1), Name: "n", Topic: topic, PredictAddr: "127.0.0.1:1", Writer: w}
	for name, mend := range map[string]func(*StreamConfig){
		"no source":     func(c *StreamConfig) { c.Source = nil },
		"no name":       func(c *StreamConfig) { c.Name = "" },
		"negative rate": func(c *StreamConfig) { c.Rate = -1 },
		"NaN rate":      func(c *StreamConfig) { c.Rate = math.NaN() },
		"huge tick":     func(c *StreamConfig) { c.MaxTick = MaxBatch + 1 },
	} {
		c := ok
		mend(&c)
		if _, err := Stream(t.Context(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestScores(t *testing.T) {
	var asked [][]int64
	away := 2 // calls, from the first one on
	srv := &server{before: func(_ context.Context, model, id string, users, _ []int64) error {
		if model != "frozen" || id == "" {
			return status.Error(codes.NotFound, model)
		}
		if away--; away >= 0 {
			return status.Error(codes.Unavailable, "no replica is available")
		}
		asked = append(asked, users)
		return nil
	}}
	c, err := Dial(serve(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var s Scores
	nan := math.NaN()
	for i := range 40 {
		r := rating.Rating{User: int64(i % 7), Movie: int64(i), Rating: 1}
		if i%2 == 0 {
			r.Rating = 5
		}
		o := Outcome{Index: i, Rating: r, Score: float64(i % 2), Frozen: nan, Best: 1 - float64(i%2)}
		if i == 30 {
			o.Score = nan
		}
		if i == 25 {
			o.Frozen = 0.25
		}
		s.Add(o)
	}
	if err := s.Backfill(t.Context(), c, nil, "frozen", "x", 20, 8, nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, users := range asked {
		n += len(users)
		if len(users) > 8 {
			t.Errorf("a call of %d examples, at most 8 were allowed", len(users))
		}
	}
	if n != 19 {
		t.Errorf("%d ratings were scored late, want the 19 of the second half without a score", n)
	}
	var rep report.Report
	s.Fill(&rep, 20, 10)
	if rep.AUCOnline != 0 || rep.AUCBest != 1 || !(rep.AUCFrozen > 0 && rep.AUCFrozen < 1) || rep.Run.Compared != 19 || rep.Run.Scored != 39 {
		t.Errorf("online %v, frozen %v, best %v over %d of %d scored", rep.AUCOnline, rep.AUCFrozen, rep.AUCBest, rep.Run.Compared, rep.Run.Scored)
	}
	if len(rep.Series.AUC) != 4 || rep.Series.AUC[0].Ratings != 10 || rep.Series.AUC[1].Frozen.Known() || !rep.Series.AUC[3].Frozen.Known() {
		t.Errorf("series %+v", rep.Series.AUC)
	}
	if err := s.Backfill(t.Context(), c, nil, "elsewhere", "x", 0, 8, nil); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown frozen copy: %v", err)
	}
}

// Of a write whose answer was lost, what is in the log is found there, and only that.
func TestSettle(t *testing.T) {
	b := broker(t, t.TempDir(), "")
	defer b.Close()
	w := writer(t, b.Addr())
	record := func(stream string, index int) kafka.Record {
		return kafka.Record{Topic: topic, Partition: int32(index % 4), Offset: -1, Value: []byte("x"),
			Headers: map[string]string{rating.HeaderStream: stream, rating.HeaderIndex: strconv.Itoa(index)}}
	}
	var recs, ours []kafka.Record
	for i := range 12 {
		recs = append(recs, record("test", i))
	}
	if _, err := w.Write(t.Context(), record("other", 3), record("other", 9)); err != nil { // same indices, not ours
		t.Fatal(err)
	}
	stored, err := w.Write(t.Context(), recs[:8]...)
	if err != nil {
		t.Fatal(err)
	}
	ours = append(slices.Clone(recs[:8]), recs[8:]...)
	ours[5].Offset = stored[5].Offset // known before
	s := &stream{cfg: StreamConfig{Name: "test", Topic: topic, Brokers: []string{b.Addr()}}, work: t.Context(), next: map[int32]int64{2: stored[2].Offset}}
	if err := s.settle(ours); err != nil {
		t.Fatal(err)
	}
	for i, r := range ours {
		want := int64(-1)
		if i < 8 {
			want = stored[i].Offset
		}
		if r.Offset != want {
			t.Errorf("rating %d settled at %d, want %d", i, r.Offset, want)
		}
	}
}
