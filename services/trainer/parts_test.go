package trainer

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services"
)

// The gradients of a step must be those of the summed loss: compare with differences.
func TestGradients(t *testing.T) {
	e, err := newEngine(smallSpec(), 3, 16)
	if err != nil {
		t.Fatal(err)
	}
	var recs []kafka.Record
	for i, v := range []string{
		`{"userId":1,"movieId":5,"rating":5}`, `{"userId":1,"movieId":6,"rating":1}`, `broken`,
		`{"userId":2,"movieId":5,"rating":4}`, `{"userId":1,"movieId":5,"rating":2}`,
	} {
		recs = append(recs, kafka.Record{Offset: int64(i), Value: []byte(v), Time: time.Unix(int64(100-i), 0)})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	params := make([][]float32, len(e.Variables()))
	for i, v := range e.Variables() {
		params[i] = make([]float32, v.Size)
		for j := range params[i] {
			params[i][j] = rng.Float32() - 0.5
		}
	}
	rows := map[int64][]float32{}
	run := func() (*step, float64) {
		s := e.newStep()
		if err := s.load(span{recs: recs}); err != nil {
			t.Fatal(err)
		}
		for shard := range 3 {
			for _, b := range s.batch.Blocks(shard) {
				for i, id := range b.IDs {
					if rows[id] == nil {
						rows[id] = []float32{rng.Float32(), rng.Float32() - 1, rng.Float32(), rng.Float32() - 1}
					}
					copy(b.Rows[i*4:], rows[id])
				}
			}
		}
		w, err := e.Weights(0, params)
		if err != nil {
			t.Fatal(err)
		}
		res, err := e.Train(&runtime.Lane{}, s.batch, w)
		if err != nil {
			t.Fatal(err)
		}
		return s, res.Loss
	}
	s, _ := run()
	if len(s.bad) != 1 || s.bad[0].record.Offset != 2 || s.samples() != 4 || s.newest != 100 {
		t.Fatalf("%d bad, %d samples, newest %d", len(s.bad), s.samples(), s.newest)
	}
	got := map[int64][]float32{}
	dense := map[string][]float32{}
	for shard := range 3 {
		r := s.tells(shard, rowwire.ApplyRequest{})[0]
		for _, tb := range r.Tables {
			for i, id := range tb.IDs {
				if got[id] != nil || modelspec.ShardOf(id, 3) != shard {
					t.Errorf("id %d goes to shard %d", id, shard)
				}
				got[id] = slices.Clone(tb.Grads[i*4 : i*4+4])
			}
		}
		for _, d := range r.Dense {
			dense[d.Name] = slices.Clone(d.Values)
		}
	}
	if len(got) != 4 || len(dense) != len(e.Variables()) {
		t.Fatalf("%d rows and %d variables got gradients", len(got), len(dense))
	}
	const h = 1e-2
	slope := func(x *float32) float64 {
		was := *x
		*x = was + h
		_, up := run()
		*x = was - h
		_, down := run()
		*x = was
		return (up - down) / (2 * h)
	}
	check := func(what string, got float32, x *float32) {
		if want := slope(x); math.Abs(float64(got)-want) > 2e-3+0.03*math.Abs(want) {
			t.Errorf("%s: gradient %g, slope %g", what, got, want)
		}
	}
	for id, row := range rows {
		for i := range row {
			check("row", got[id][i], &row[i])
		}
	}
	for i, v := range e.Variables() {
		for j := 0; j < v.Size; j += 5 {
			check(v.Name, dense[v.Name][j], &params[i][j])
		}
	}
}

func TestFeed(t *testing.T) {
	rec := func(offsets ...int64) (f fetched) {
		for _, o := range offsets {
			f.recs, f.next = append(f.recs, kafka.Record{Offset: o}), o+1
		}
		return f
	}
	hole := func(next int64, recs ...kafka.Record) fetched { return fetched{recs, next} }
	feedOf := func(fetches ...fetched) *feed {
		f := &feed{ch: make(chan fetched, len(fetches)), cancel: func() {}}
		for _, r := range fetches {
			f.ch <- r
		}
		return f
	}
	ctx := t.Context()
	for _, tc := range []struct {
		name    string
		fetches []fetched
		limit   int64
		n       int
		want    int
		to      int64
	}{
		{"as many as asked", []fetched{rec(0, 1, 2), rec(3, 4)}, math.MaxInt64, 4, 4, 4},
		{"what is there", []fetched{rec(0, 1, 2), rec(3, 4)}, math.MaxInt64, 9, 5, 5},
		{"up to a cut", []fetched{rec(0, 1, 2), rec(3, 4)}, 2, 9, 2, 2},
		{"a cut inside a hole", []fetched{rec(0, 1, 7)}, 5, 9, 2, 5},
		{"nothing before the cut", []fetched{rec(8)}, 5, 9, 0, 5},
		{"the end of a bounded partition", []fetched{rec(3, 4)}, 5, 9, 2, 5},
		{"a hole within", []fetched{rec(0, 4)}, math.MaxInt64, 2, 2, 5},
		{"a hole behind", []fetched{hole(9, rec(0, 1).recs...)}, math.MaxInt64, 9, 2, 9},
		{"a hole behind what is taken", []fetched{hole(9, rec(0, 1, 2).recs...)}, math.MaxInt64, 2, 2, 2},
		{"nothing but a hole", []fetched{hole(6)}, math.MaxInt64, 9, 0, 6},
		{"a hole up to the end of a bounded partition", []fetched{hole(6)}, 6, 9, 0, 6},
		{"a hole before records", []fetched{hole(6), rec(6, 7)}, math.MaxInt64, 9, 2, 8},
	} {
		recs, to, err := feedOf(tc.fetches...).batch(ctx, 0, tc.limit, tc.n, time.Millisecond)
		if err != nil || len(recs) != tc.want || to != tc.to {
			t.Errorf("%s: %d records up to %d, %v; want %d up to %d", tc.name, len(recs), to, err, tc.want, tc.to)
		}
	}
	f := feedOf(rec(0, 1), rec(2, 3, 4))
	if recs, err := f.whole(ctx, 4); err != nil || len(recs) != 4 {
		t.Error("whole:", len(recs), err)
	}
	if recs, err := feedOf(rec(0, 1), hole(4)).whole(ctx, 4); err != nil || len(recs) != 2 {
		t.Error("whole with a hole at its end:", len(recs), err)
	}
	gone, cancel := context.WithCancelCause(ctx)
	cancel(errMoved)
	if _, err := f.whole(gone, 8); !errors.Is(err, errMoved) {
		t.Error("whole after the end of its context:", err)
	}
	close(f.ch)
	f.err = kafka.ErrOutOfRange
	if _, err := f.whole(ctx, 8); !errors.Is(err, kafka.ErrOutOfRange) {
		t.Error("whole of a broken log:", err)
	}
}

func TestPosition(t *testing.T) {
	at := func(next ...int64) (all []*rowwire.OffsetsResponse) {
		for _, n := range next {
			all = append(all, &rowwire.OffsetsResponse{Next: map[int32]int64{1: n}})
		}
		return all
	}
	for _, tc := range []struct {
		all   []*rowwire.OffsetsResponse
		from  int64
		cuts  []int64
		level bool
	}{
		{at(7, 7), 7, nil, true},
		{at(9, 7, 12, 9), 7, []int64{9, 12}, false},
		{at(0, 3), 0, []int64{3}, false},
	} {
		p := positionOf(tc.all, 1)
		if p.from != tc.from || !slices.Equal(p.cuts, tc.cuts) || p.level != tc.level {
			t.Errorf("%v: %+v", tc, p)
		}
	}
	mixed := at(7, 7)
	mixed[1].Generation = 3
	mixed[0].Generation = 4
	if p := positionOf(mixed, 1); p.level || p.generation != 3 {
		t.Errorf("two generations: %+v", p)
	}
}

func TestValidate(t *testing.T) {
	good := Config{Job: "j", Model: "m", Brokers: []string{"h:1"}, Dir: "/tmp/x"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*Config){
		"job": func(c *Config) { c.Job = "a/b" }, "model": func(c *Config) { c.Model = "" },
		"kafka": func(c *Config) { c.Brokers = nil }, "dir": func(c *Config) { c.Dir = "x" },
		"batch": func(c *Config) { c.Batch = maxBatch + 1 }, "shards": func(c *Config) { c.Shards = -1 },
		"lease-ttl": func(c *Config) { c.LeaseTTL = 1500 * time.Millisecond }, "linger": func(c *Config) { c.Linger = -1 },
		"index": func(c *Config) { c.Index = -1 }, "keep": func(c *Config) { c.Keep = -1 },
		"export-every": func(c *Config) { c.ExportEvery = -2 }, "checkpoint-every": func(c *Config) { c.CheckpointEvery = -1 },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSampled(t *testing.T) {
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	for s, want := range map[string]bool{tp + "1": true, tp + "0": false, "": false, tp: false, tp + "3": true} {
		if sampled(s) != want {
			t.Errorf("sampled(%q) = %v", s, !want)
		}
	}
}

// Two namespaces, or two jobs, on one NATS must never wait for each other.
func TestNamespacesShareNoLease(t *testing.T) {
	seen := map[string][3]string{}
	for _, bzid := range []string{"a", "b", "a.b"} {
		for _, job := range []string{"b", "c", "b.c"} {
			s := &Server{cfg: Config{Job: job}, env: services.Env{BZID: bzid}}
			for _, what := range []string{"chief", "partition.1"} {
				name, who := s.lease(what), [3]string{bzid, job, what}
				if other, taken := seen[name]; taken {
					t.Errorf("%v and %v share the lease %q", who, other, name)
				}
				seen[name] = who
			}
		}
	}
}
