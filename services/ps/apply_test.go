package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func TestApplyOutcomesOverTheWire(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	epoch := func(e uint64, r *rowwire.ApplyRequest) *rowwire.ApplyRequest { r.Epoch = e; return r }
	for _, step := range []struct {
		name    string
		r       *rowwire.ApplyRequest
		applied bool
		code    rowwire.Code
		next    int64
		row     float32 // of user 7 afterwards
	}{
		{"first", pstest.Teach(0, 0, 0, 10, 1, 7), true, 0, 10, -1},
		{"again", pstest.Teach(0, 0, 0, 10, 1, 7), false, 0, 10, -1},
		{"another partition", pstest.Teach(0, 1, 0, 5, 2, 7), true, 0, 5, -3},
		{"next, empty", pstest.Teach(0, 0, 10, 20, 0), true, 0, 20, -3},
		{"gap", pstest.Teach(0, 0, 25, 30, 1, 7), false, rowwire.Gap, 20, -3},
		{"overlap", pstest.Teach(0, 0, 15, 30, 1, 7), false, rowwire.Overlap, 20, -3},
		{"new lease repeats", epoch(2, pstest.Teach(0, 0, 10, 20, 1, 7)), false, 0, 20, -3},
		{"old lease", epoch(1, pstest.Teach(0, 0, 20, 30, 1, 7)), false, rowwire.Fenced, 20, -3},
		{"new lease goes on, ids twice", epoch(2, pstest.Teach(0, 0, 20, 30, 1, 7, 7)), true, 0, 30, -5},
	} {
		res, err := p.Apply(soon(t), step.r)
		var e *rowwire.Error
		switch {
		case step.code != 0:
			if !errors.As(err, &e) || e.Code != step.code || e.Next != step.next {
				t.Errorf("%s: %v, want %v with next %d", step.name, err, step.code, step.next)
			}
		case err != nil || res.Applied != step.applied || res.Next != step.next:
			t.Errorf("%s: %+v, %v; want applied %v, next %d", step.name, res, err, step.applied, step.next)
		}
		if got := p.table("user")[7]; !reflect.DeepEqual(got, []float32{step.row, step.row}) {
			t.Errorf("%s: the row is %v, want %v", step.name, got, step.row)
		}
	}
	o, err := p.Offsets(soon(t), &rowwire.OffsetsRequest{Job: job})
	if err != nil || o.Epoch != 1 || o.Step != 4 || !reflect.DeepEqual(o.Next, map[int32]int64{0: 30, 1: 5}) {
		t.Errorf("offsets %+v, %v", o, err)
	}
}

func TestRefusedAppliesChangeNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2, 3))
	before := p.hash()
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	good := rowwire.TableGrads{Table: "user", IDs: []int64{1}, Grads: []float32{1, 1}}
	with := func(f func(r *rowwire.ApplyRequest)) *rowwire.ApplyRequest {
		r := pstest.Teach(0, 0, 10, 20, 0)
		r.Tables = []rowwire.TableGrads{good}
		f(r)
		return r
	}
	for _, tc := range []struct {
		name string
		code rowwire.Code
		r    *rowwire.ApplyRequest
	}{
		{"NaN behind a good table", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) {
			r.Tables = append(r.Tables, rowwire.TableGrads{Table: "movie", IDs: []int64{1}, Grads: []float32{0, nan, 0}})
		})},
		{"infinite", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.Tables[0].Grads = []float32{0, inf} })},
		{"a sum beyond what a table takes", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) {
			r.Tables[0] = rowwire.TableGrads{Table: "user", IDs: []int64{1, 1}, Grads: []float32{9e14, 0, 9e14, 0}}
		})},
		{"dense NaN behind good rows", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) {
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{nan}}}
		})},
		{"dense of wrong size", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) {
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1, 2}}}
		})},
		{"dense twice", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) {
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1}}, {Name: "out/bias", Values: []float32{1}}}
		})},
		{"unknown variable", rowwire.NotFound, with(func(r *rowwire.ApplyRequest) { r.Dense = []rowwire.NamedTensor{{Name: "x"}} })},
		{"unknown table", rowwire.NotFound, with(func(r *rowwire.ApplyRequest) {
			r.Tables = append(r.Tables, rowwire.TableGrads{Table: "x", IDs: []int64{1}, Grads: []float32{1}})
		})},
		{"table twice", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.Tables = append(r.Tables, good) })},
		{"wrong dimension", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.Tables[0].Grads = []float32{1, 2, 3} })},
		{"the reserved id", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.Tables[0].IDs = []int64{table.NoID} })},
		{"no range", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.To = r.From })},
		{"negative offset", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.From = -1 })},
		{"negative partition", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.Partition = -1 })},
		{"record time", rowwire.Invalid, with(func(r *rowwire.ApplyRequest) { r.RecordUnix = 1 << 40 })},
		{"another job", rowwire.NotFound, with(func(r *rowwire.ApplyRequest) { r.Job = "x" })},
		{"another shard", rowwire.NotFound, with(func(r *rowwire.ApplyRequest) { r.Shard = 1 })},
	} {
		if _, err := p.Apply(soon(t), tc.r); rowwire.CodeOf(err) != tc.code || err == nil {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.code)
		}
		if p.hash() != before {
			t.Fatalf("%s: refused, and yet something changed", tc.name)
		}
	}
	if res := p.teach(pstest.Teach(0, 0, 10, 20, 1, 1)); !res.Applied {
		t.Error("the offset had moved, though nothing was applied")
	}
}

func TestLookupAndDense(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	r := pstest.Teach(0, 0, 0, 10, 1, 7)
	r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{0.5}}}
	p.teach(r)
	res, err := p.Lookup(soon(t), &rowwire.LookupRequest{Model: job, WithSeqs: true, Tables: []rowwire.TableIDs{{Table: "movie", IDs: []int64{1}}, {Table: "user", IDs: []int64{8, 7}}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]float32{{0, 0, 0}, {0, 0, -1, -1}}; !reflect.DeepEqual(res.Values, want) || res.Step != 1 {
		t.Errorf("lookup %+v, want %v at step 1", res, want)
	}
	if got := p.table("movie"); len(got) != 0 {
		t.Errorf("a lookup created rows: %v", got)
	}
	d, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job, Names: []string{"out/bias"}})
	if err != nil || !reflect.DeepEqual(d.Tensors, []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{-0.5}}}) {
		t.Errorf("dense %+v, %v", d, err)
	}
	if d, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job}); err != nil || len(d.Tensors) != len(modelspec.Variables(pstest.Counting())) {
		t.Errorf("all variables: %+v, %v", d, err)
	}
	for name, err := range map[string]error{
		"table": second(p.Lookup(soon(t), &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "x"}}})),
		"job":   second(p.Lookup(soon(t), &rowwire.LookupRequest{Model: "x"})),
		"dense": second(p.Dense(soon(t), &rowwire.DenseRequest{Job: job, Names: []string{"x"}})),
		"scan":  second(p.Scan(soon(t), &rowwire.ScanRequest{Model: job, Table: "x"})),
	} {
		if rowwire.CodeOf(err) != rowwire.NotFound {
			t.Errorf("unknown %s: %v, want NOT_FOUND", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestShardsKeepTheirOwnIDsAndVariables(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Shards = 2
	var names []string
	for i := range 2 {
		cfg.Shard = i
		p := w.start(cfg)
		id := int64(i)
		p.teach(pstest.Teach(i, 0, 0, 10, 1, id, id+2))
		_, err := p.Apply(soon(t), pstest.Teach(i, 0, 10, 20, 1, id+1))
		if rowwire.CodeOf(err) != rowwire.Invalid {
			t.Errorf("an id of the other shard: %v, want INVALID", err)
		}
		_, err = p.Lookup(soon(t), &rowwire.LookupRequest{Model: job, Shard: uint32(i), Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{id + 1}}}})
		if rowwire.CodeOf(err) != rowwire.Invalid {
			t.Errorf("lookup of an id of the other shard: %v, want INVALID", err)
		}
		d, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job, Shard: uint32(i)})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Tensors {
			names = append(names, v.Name)
		}
	}
	if len(names) != 2 || names[0] == names[1] {
		t.Errorf("variables %v: each belongs to one shard", names)
	}
}

func TestTurnsAreTakenInOrder(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Deterministic = true
	p := w.start(cfg)
	turn := func(n uint64, r *rowwire.ApplyRequest) *rowwire.ApplyRequest { r.Turn, r.Generation = n, 1; return r }
	look := func(n uint64) (float32, error) {
		res, err := p.Lookup(soon(t), &rowwire.LookupRequest{Model: job, Turn: n, Generation: 1, Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{7}}}})
		if err != nil {
			return 0, err
		}
		return res.Values[0][0], nil
	}
	type answer struct {
		v   float32
		err error
	}
	looked, applied := make(chan answer, 1), make(chan error, 1)
	go func() { v, err := look(2); looked <- answer{v, err} }()
	go func() {
		_, err := p.Apply(context.Background(), turn(1, pstest.Teach(0, 1, 0, 5, 1, 7)))
		applied <- err
	}()
	if v, err := look(0); err != nil || v != 0 {
		t.Fatalf("turn 0: %v, %v", v, err)
	}
	select {
	case a := <-looked:
		t.Fatalf("a lookup of turn 2 was answered at turn 0: %+v", a)
	case err := <-applied:
		t.Fatalf("turn 1 was learnt before turn 0: %v", err)
	default:
	}
	p.teach(turn(0, pstest.Teach(0, 0, 0, 5, 1, 7)))
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	if a := <-looked; a.err != nil || a.v != -2 {
		t.Errorf("turn 2 sees %v, %v; want -2", a.v, a.err)
	}
	if res := p.teach(turn(0, pstest.Teach(0, 0, 0, 5, 1, 7))); res.Applied {
		t.Error("turn 0 was learnt twice")
	}
	if _, err := look(1); rowwire.CodeOf(err) != rowwire.Overlap {
		t.Errorf("a lookup of a turn that has passed: %v, want OVERLAP", err)
	}
	if _, err := p.Apply(soon(t), turn(1, pstest.Teach(0, 0, 5, 10, 1, 7))); rowwire.CodeOf(err) != rowwire.Overlap {
		t.Errorf("a new range at a turn that has passed: %v, want OVERLAP", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := p.Apply(ctx, turn(9, pstest.Teach(0, 0, 5, 10, 1, 7))); rowwire.CodeOf(err) != rowwire.Unavailable {
		t.Errorf("a turn that does not come: %v, want UNAVAILABLE", err)
	}
	wrong := turn(2, pstest.Teach(0, 0, 5, 10, 1, 7))
	wrong.Generation = 3
	var e *rowwire.Error
	if _, err := p.Apply(soon(t), wrong); !errors.As(err, &e) || e.Code != rowwire.WrongGeneration || e.Next != 1 {
		t.Errorf("another generation: %v, want WRONG_GENERATION with next 1", err)
	}
}

func TestValidateNamesEveryComplaint(t *testing.T) {
	c := Config{Shard: 4, Shards: 2, Listen: "0.0.0.0:0", DenseEvery: -1, DenseRate: -1, SyncInterval: -1, Advertise: "nowhere"}
	err := c.Validate()
	for _, want := range []string{"--job", "--model", "--dir", "shard 4 of 2", "dense variables every -1", "-1 bytes of dense variables", "sync interval", `"nowhere"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, lacks %q", err, want)
		}
	}
	for name, c := range map[string]Config{
		"least":    {Job: "j", Model: "m", Dir: "d"},
		"smallest": {Job: "j", Model: "m", Dir: "d", Shards: 1 << 16, Shard: 1<<16 - 1, SyncInterval: time.Millisecond, DenseEvery: 1, DenseRate: 1, ClockStep: time.Second, HoldTimeout: 1, HeartbeatInterval: 1, Drain: 1},
		"unix":     {Job: "j", Model: "m", Dir: "d", Listen: "unix:///tmp/x"},
		"anywhere": {Job: "j", Model: "m", Dir: "d", Listen: "0.0.0.0:1", Insecure: true, Advertise: "host:1"},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRowsBeyondThisMachineAreEncryptedOrAllowedByName(t *testing.T) {
	cfg := Config{Job: "j", Model: "m", Dir: t.TempDir(), Listen: "0.0.0.0:0", Advertise: "host:1"}
	env := services.Env{BZID: "b", Bus: mem.New()}
	if _, err := New(cfg, env); err == nil || !strings.Contains(err.Error(), "--insecure-rows") || !strings.Contains(err.Error(), "--rows-tls-cert") {
		t.Errorf("unencrypted: %v", err)
	}
	env.Rows = new(tls.Config)
	if _, err := New(cfg, env); err != nil {
		t.Errorf("encrypted: %v", err)
	}
	env.Rows, cfg.Insecure = nil, true
	if _, err := New(cfg, env); err != nil {
		t.Errorf("allowed by name: %v", err)
	}
	cfg.GRPC = "0.0.0.0:0"
	if _, err := New(cfg, env); err == nil || !strings.Contains(err.Error(), "--insecure-grpc") {
		t.Errorf("gRPC, which was not allowed: %v", err)
	}
	cfg.InsecureGRPC = true
	if _, err := New(cfg, env); err != nil {
		t.Errorf("gRPC by name: %v", err)
	}
}
