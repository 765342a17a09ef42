package rowwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// road is a way from a pool to a server.
type road struct {
	name  string
	serve func(t *testing.T, h Handler, o Options) (get func(context.Context) (Conn, error), stop func())
}

// roads are all there are: what a caller sees must not depend on which one it is.
func roads() []road {
	pooled := func(t *testing.T, p *Pool, addr string, near ...string) func(context.Context) (Conn, error) {
		t.Cleanup(p.Close)
		return func(ctx context.Context) (Conn, error) { return p.Get(ctx, addr, near...) }
	}
	return []road{
		{"TCP", func(t *testing.T, h Handler, o Options) (func(context.Context) (Conn, error), func()) {
			addr, stop := serve(t, "127.0.0.1:0", h, o)
			return pooled(t, NewPool(nil), addr), stop
		}},
		{"unix", func(t *testing.T, h Handler, o Options) (func(context.Context) (Conn, error), func()) {
			near := "unix://" + filepath.Join(t.TempDir(), "rows.sock")
			_, stop := serve(t, near, h, o)
			return pooled(t, NewPool(nil), "127.0.0.1:1", near), stop // nobody listens at the other one
		}},
		{"in process", func(t *testing.T, h Handler, o Options) (func(context.Context) (Conn, error), func()) {
			o.Local = NewLocal()
			addr, stop := serve(t, "127.0.0.1:0", h, o)
			awaitLocal(t, o.Local, addr)
			get := pooled(t, o.Local.NewPool(nil), addr)
			return func(ctx context.Context) (Conn, error) {
				c, err := get(ctx)
				if _, ok := c.(*localConn); err == nil && !ok {
					t.Errorf("a server of this process is reached by %T", c)
				}
				return c, err
			}, stop
		}},
	}
}

// awaitLocal returns once Serve has begun.
func awaitLocal(t *testing.T, l *Local, addr string) {
	t.Helper()
	for ctx := soon(t); l.conn(addr) == nil; {
		if ctx.Err() != nil {
			t.Fatal("the server does not begin")
		}
		runtime.Gosched()
	}
}

// onEachRoad runs a test with a connection over each road.
func onEachRoad(t *testing.T, h func() Handler, o Options, do func(t *testing.T, c Conn, stop func())) {
	for _, r := range roads() {
		t.Run(r.name, func(t *testing.T) {
			get, stop := r.serve(t, h(), o)
			c, err := get(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			do(t, c, stop)
		})
	}
}

func TestRoadsAnswer(t *testing.T) {
	onEachRoad(t, func() Handler { return echo{dim: 2} }, Options{}, func(t *testing.T, c Conn, _ func()) {
		ctx := soon(t)
		if l, err := c.Lookup(ctx, lookupOf(3, 4)); err != nil || !reflect.DeepEqual(l.Values, [][]float32{{3, 0, 4, 0}}) {
			t.Errorf("Lookup = %v, %v", l, err)
		}
		if a, err := c.Apply(ctx, &ApplyRequest{From: 1, To: 9}); err != nil || *a != (ApplyResponse{true, 9}) {
			t.Errorf("Apply = %v, %v", a, err)
		}
		if d, err := c.Dense(ctx, &DenseRequest{Names: []string{"k"}}); err != nil || !reflect.DeepEqual(d.Tensors, []NamedTensor{{Name: "k", Values: []float32{1, 2}}}) {
			t.Errorf("Dense = %v, %v", d, err)
		}
		if o, err := c.Offsets(ctx, &OffsetsRequest{}); err != nil || !reflect.DeepEqual(o.Next, map[int32]int64{0: 10, 1: 20}) {
			t.Errorf("Offsets = %v, %v", o, err)
		}
		if s, err := c.Scan(ctx, &ScanRequest{Table: "gone"}); s != nil || CodeOf(err) != NotFound || !strings.Contains(err.Error(), `"gone"`) {
			t.Errorf("Scan = %v, %v, want NOT_FOUND naming the table", s, err)
		}
	})
}

func TestRoadsKeepRefusals(t *testing.T) {
	for _, code := range []Code{Invalid, NotFound, Fenced, Gap, Overlap, WrongGeneration, Unavailable} {
		refuse := func() Handler {
			return echo{apply: func(context.Context, *ApplyRequest) (*ApplyResponse, error) {
				return &ApplyResponse{}, fmt.Errorf("wrapped: %w", &Error{Code: code, Message: strings.Repeat("m", MaxString+9), Next: 41, cause: io.ErrNoProgress})
			}}
		}
		onEachRoad(t, refuse, Options{}, func(t *testing.T, c Conn, _ func()) {
			res, err := c.Apply(soon(t), &ApplyRequest{})
			var e *Error
			if res != nil || !errors.As(err, &e) || e.Code != code || e.Next != 41 || e.Message != strings.Repeat("m", MaxString) || errors.Is(err, io.ErrNoProgress) {
				t.Errorf("%v: %v, %#v", code, res, err)
			}
		})
	}
	strange := func() Handler {
		return echo{apply: func(context.Context, *ApplyRequest) (*ApplyResponse, error) { return nil, io.ErrClosedPipe }}
	}
	onEachRoad(t, strange, Options{}, func(t *testing.T, c Conn, _ func()) {
		if _, err := c.Apply(soon(t), &ApplyRequest{}); CodeOf(err) != Unavailable || errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a foreign error arrives as %v", err)
		}
	})
}

// held blocks applies until their ctx ends and says what that had.
type held struct {
	echo
	began, ended chan context.Context
}

func holding() *held {
	h := &held{began: make(chan context.Context, 9), ended: make(chan context.Context, 9)}
	h.apply = func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
		h.began <- ctx
		<-ctx.Done()
		h.ended <- ctx
		return nil, ctx.Err()
	}
	return h
}

type private struct{}

func TestRoadsEndWithTheCallersTime(t *testing.T) {
	var h *held
	start := func() Handler { h = holding(); h.dim = 1; return h }
	onEachRoad(t, start, Options{InFlight: 1}, func(t *testing.T, c Conn, _ func()) {
		var ctx context.Context
		err := sent(t, func(until context.Context) error {
			ctx = context.WithValue(until, private{}, 1)
			_, err := c.Apply(ctx, &ApplyRequest{})
			<-ctx.Done()
			return err
		})
		if CodeOf(err) != Unavailable { // either side may say it first
			t.Errorf("at the deadline: %v", err)
		}
		seen := <-h.ended
		if _, ok := seen.Deadline(); !ok || seen.Value(private{}) != nil {
			t.Error("the handler's ctx has no deadline, or what the caller's carries")
		}
		if _, err := c.Apply(ctx, &ApplyRequest{}); CodeOf(err) != Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind the deadline: %v", err)
		}
		<-h.began
		// The one place is free again; a caller who leaves frees it, too.
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := c.Apply(ctx, &ApplyRequest{}); left <- err }()
		<-h.began
		short, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer end()
		if _, err := c.Lookup(short, lookupOf(1)); CodeOf(err) != Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beyond the bound of requests in flight: %v", err)
		}
		cancel()
		if err := <-left; CodeOf(err) != Unavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who left: %v", err)
		}
		<-h.ended
		if _, err := c.Lookup(soon(t), lookupOf(1)); err != nil || c.Err() != nil {
			t.Errorf("afterwards: %v, %v", err, c.Err())
		}
	})
}

func TestRoadsBoundTheTimeOfARequest(t *testing.T) {
	var h *held
	onEachRoad(t, func() Handler { h = holding(); return h }, Options{Timeout: 30 * time.Millisecond}, func(t *testing.T, c Conn, _ func()) {
		_, err := c.Apply(context.Background(), &ApplyRequest{}) // a caller without a deadline
		if CodeOf(err) != Unavailable || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the server's refusal", err)
		}
		if at, ok := (<-h.began).Deadline(); !ok || time.Until(at) > 0 {
			t.Errorf("the handler's deadline is %v", at)
		}
	})
}

// What is refused is refused in the same words; what is at a bound passes.
func TestRoadsHaveTheSameBounds(t *testing.T) {
	large := func() Handler {
		return echo{dim: 1, lookup: func(_ context.Context, r *LookupRequest) (*LookupResponse, error) {
			res := NewLookupResponse(1, false)
			res.ValuesOf(0, int(r.Turn)) // clear or not: only their number counts
			return res, nil
		}}
	}
	room := MaxFrame/4 - 50
	said := map[string]map[string]bool{}
	onEachRoad(t, large, Options{}, func(t *testing.T, c Conn, _ func()) {
		ctx := soon(t)
		for what, do := range map[string]func() error{
			"ids":          func() error { _, err := c.Lookup(ctx, lookupOf(make([]int64, MaxIDs)...)); return err },
			"too many ids": func() error { _, err := c.Lookup(ctx, lookupOf(make([]int64, MaxIDs+1)...)); return err },
			"tables":       func() error { _, err := c.Lookup(ctx, &LookupRequest{Tables: make([]TableIDs, MaxTables)}); return err },
			"many tables": func() error {
				_, err := c.Lookup(ctx, &LookupRequest{Tables: make([]TableIDs, MaxTables+1)})
				return err
			},
			"a name": func() error {
				_, err := c.Lookup(ctx, &LookupRequest{Model: strings.Repeat("n", MaxString)})
				return err
			},
			"a long name": func() error {
				_, err := c.Lookup(ctx, &LookupRequest{Model: strings.Repeat("n", MaxString+1)})
				return err
			},
			"no encoding":   func() error { _, err := c.Lookup(ctx, &LookupRequest{Encoding: encodings}); return err },
			"an answer":     func() error { _, err := c.Lookup(ctx, &LookupRequest{Turn: uint64(room)}); return err },
			"a long answer": func() error { _, err := c.Lookup(ctx, &LookupRequest{Turn: MaxFrame / 4}); return err },
			"a gradient": func() error {
				_, err := c.Apply(ctx, &ApplyRequest{Dense: []NamedTensor{{Name: "k", Values: make([]float32, room)}}})
				return err
			},
			"a long gradient": func() error {
				_, err := c.Apply(ctx, &ApplyRequest{Dense: []NamedTensor{{Name: "k", Values: make([]float32, MaxFrame/4)}}})
				return err
			},
			"no rows": func() error {
				_, err := c.Apply(ctx, &ApplyRequest{Tables: []TableGrads{{"t", []int64{1, 2}, []float32{1}}}})
				return err
			},
		} {
			if said[what] == nil {
				said[what] = map[string]bool{}
			}
			said[what][fmt.Sprint(do())] = true
		}
		if c.Err() != nil {
			t.Errorf("the connection has ended: %v", c.Err())
		}
	})
	for what, errs := range said {
		if refused := !errs["<nil>"]; len(errs) != 1 || refused != slices.Contains([]string{"too many ids", "many tables", "a long name", "no encoding", "a long answer", "a long gradient", "no rows"}, what) {
			t.Errorf("%s: %v", what, errs)
		}
	}
}

// TestAFrameIsWeighedExactly: in process, too, the last byte that fits fits.
func TestAFrameIsWeighedExactly(t *testing.T) {
	name := ""
	for ; len(name) < 4; name += "n" {
		for n := MaxFrame/4 - 12; n <= MaxFrame/4-3; n++ {
			m := &DenseResponse{Tensors: []NamedTensor{{Name: name, Values: make([]float32, n)}}}
			b, err := frame(opDense, 1, -1, m)
			giveBack(b)
			weighed := withinBounds(m, headLen)
			if fmt.Sprint(err) != fmt.Sprint(weighed) {
				t.Fatalf("%d numbers: %v sent, %v weighed", n, err, weighed)
			}
		}
	}
}

// filler answers from memory that is used again as soon as it may be, and by LookupInto.
type filler struct{ echo }

func (h filler) Lookup(ctx context.Context, r *LookupRequest) (*LookupResponse, error) {
	res := NewLookupResponse(len(r.Tables), r.WithSeqs)
	return res, h.LookupInto(ctx, r, res)
}

func (h filler) LookupInto(_ context.Context, r *LookupRequest, res *LookupResponse) error {
	res.Fill(r)
	for i, t := range r.Tables {
		v, seqs := res.ValuesOf(i, 2*len(t.IDs)), res.SeqsOf(i, len(t.IDs))
		for j, id := range t.IDs {
			v[2*j], v[2*j+1] = float32(id), float32(math.NaN())
			if seqs != nil {
				seqs[j] = uint64(id) + 1
			}
		}
	}
	res.Step, res.Version = 7, 8
	return nil
}

func TestRoadsFillTheCallersMemory(t *testing.T) {
	for _, h := range []Handler{filler{}, echo{lookup: filler{}.Lookup}} {
		onEachRoad(t, func() Handler { return h }, Options{}, func(t *testing.T, c Conn, _ func()) {
			ask := func(seqs bool, ids ...int64) *LookupRequest {
				r := lookupOf(ids...)
				r.Tables = append(r.Tables, TableIDs{"u", ids[:1]})
				r.WithSeqs = seqs
				return r
			}
			floats, tags := make([]float32, 6), make([]uint64, 3)
			values, seqs := [][]float32{floats[:4], floats[4:]}, [][]uint64{tags[:2], tags[2:]}
			var res LookupResponse
			for _, first := range []int64{3, 5} { // the second time on used memory
				res.Into(values, seqs)
				if err := c.LookupInto(soon(t), ask(true, first, 4), &res); err != nil {
					t.Fatal(err)
				}
				if &res.Values[0][0] != &floats[0] || &res.Seqs[1][0] != &tags[2] || res.Landed(values, seqs) != nil {
					t.Error("the answer lies elsewhere")
				}
				if floats[0] != float32(first) || floats[2] != 4 || floats[4] != float32(first) || floats[5] == floats[5] || !slices.Equal(tags, []uint64{uint64(first) + 1, 5, uint64(first) + 1}) || res.Step != 7 || res.Version != 8 {
					t.Errorf("%v %v, step %d, version %d", floats, tags, res.Step, res.Version)
				}
			}
			if err := c.LookupInto(soon(t), ask(false, 9, 10, 11), &res); err != nil || len(res.Seqs) != 0 || len(res.Values[0]) != 6 || floats[0] != 5 && &res.Values[0][0] != &floats[0] {
				t.Errorf("a longer answer on used memory: %v, %v", res, err)
			}
			mine, err := c.Lookup(soon(t), ask(false, 1, 2))
			if err != nil || mine.Done != nil {
				t.Fatalf("%v, %v", mine, err)
			}
			for range 8 { // whose memory others might be
				if _, err := c.Lookup(soon(t), ask(false, 8, 9)); err != nil {
					t.Fatal(err)
				}
			}
			if mine.Values[0][0] != 1 || mine.Values[0][2] != 2 {
				t.Errorf("an answer changed behind its caller's back: %v", mine.Values)
			}
		})
	}
}

// Numbers are rounded on every road as they are on the wire.
func TestRoadsRoundAlike(t *testing.T) {
	values := []float32{1, .3333333, -2e-7, 70000, 1e-30, -.7}
	bits := func(v []float32) (b []uint32) {
		for _, x := range v {
			b = append(b, math.Float32bits(x))
		}
		return b
	}
	for c := range encodings {
		seen := map[string]bool{}
		var grads []float32
		h := func() Handler {
			return echo{
				lookup: func(context.Context, *LookupRequest) (*LookupResponse, error) {
					return &LookupResponse{Values: [][]float32{values}}, nil
				},
				apply: func(_ context.Context, r *ApplyRequest) (*ApplyResponse, error) {
					grads = slices.Clone(r.Tables[0].Grads)
					return &ApplyResponse{}, nil
				},
			}
		}
		onEachRoad(t, h, Options{}, func(t *testing.T, conn Conn, _ func()) {
			r := lookupOf(1, 2)
			r.Encoding = c
			res, err := conn.Lookup(soon(t), r)
			if err != nil {
				t.Fatal(err)
			}
			mine := slices.Clone(values)
			if _, err := conn.Apply(soon(t), &ApplyRequest{Encoding: c, Tables: []TableGrads{{"t", []int64{1, 2}, mine}}}); err != nil || !slices.Equal(mine, values) {
				t.Fatalf("%v, gradients %v", err, mine)
			}
			seen[fmt.Sprintf("%x %x", bits(res.Values[0]), bits(grads))] = true
		})
		if len(seen) != 1 {
			t.Errorf("encoding %d: %v", c, seen)
		}
	}
}

func TestRoadsEndWithTheServer(t *testing.T) {
	var finish, began chan struct{}
	slow := func() Handler {
		finish, began = make(chan struct{}), make(chan struct{}, 1)
		return echo{dim: 1, apply: func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
			began <- struct{}{}
			select {
			case <-finish:
				return &ApplyResponse{Applied: true}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
	}
	for _, drains := range []bool{true, false} {
		o := Options{Drain: wait.Patience}
		if !drains {
			o.Drain = 20 * time.Millisecond
		}
		onEachRoad(t, slow, o, func(t *testing.T, c Conn, stop func()) {
			var calls sync.WaitGroup
			calls.Go(func() {
				_, err := c.Apply(soon(t), &ApplyRequest{})
				if want := map[bool]Code{true: 0, false: Unavailable}[drains]; CodeOf(err) != want {
					t.Errorf("at hand when the server stopped: %v", err)
				}
			})
			<-began
			var stopped sync.WaitGroup
			stopped.Go(stop)
			if drains {
				refused := false
				for ctx := soon(t); !refused && ctx.Err() == nil; { // once the server has noticed
					short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					_, err := c.Lookup(short, lookupOf(1))
					cancel()
					refused = CodeOf(err) == Unavailable
				}
				if !refused {
					t.Error("a server that stops takes requests")
				}
				close(finish)
			}
			stopped.Wait()
			calls.Wait()
			wait.For(t, "the end of the socket", func() bool { return c.Err() != nil })
			if _, err := c.Lookup(soon(t), lookupOf(1)); CodeOf(err) != Unavailable || CodeOf(c.Err()) != Unavailable {
				t.Errorf("afterwards: %v, %v", err, c.Err())
			}
		})
	}
}

func TestRoadsEndWithThePool(t *testing.T) {
	var h *held
	onEachRoad(t, func() Handler { h = holding(); return h }, Options{}, func(t *testing.T, c Conn, _ func()) {
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := c.Apply(soon(t), &ApplyRequest{}); CodeOf(err) != Unavailable || !errors.Is(err, net.ErrClosed) {
				t.Errorf("at hand when the connection was closed: %v", err)
			}
		})
		<-h.began
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		calls.Wait()
		<-h.ended
		if _, err := c.Lookup(soon(t), lookupOf(1)); CodeOf(err) != Unavailable || c.Err() == nil {
			t.Errorf("afterwards: %v, %v", err, c.Err())
		}
	})
}

// A pool goes the shortest road that there is, and another one once that has ended.
func TestThePoolTakesTheShortestRoad(t *testing.T) {
	local, ctx := NewLocal(), soon(t)
	ln, err := ListenNear(ctx)
	if err != nil {
		t.Fatal(err)
	}
	near := Addr(ln.Addr())
	addr, stop := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{Local: local})
	awaitLocal(t, local, addr)
	nctx, endNear := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(nctx, ln, echo{dim: 1}, Options{}) }()
	road := func(p *Pool) string {
		t.Helper()
		c, err := p.Get(ctx, addr, near)
		if err != nil {
			return "none"
		}
		if _, err := c.Lookup(ctx, lookupOf(1)); err != nil {
			t.Error(err)
		}
		return c.Road()
	}
	here, elsewhere := local.NewPool(nil), NewPool(nil)
	defer here.Close()
	defer elsewhere.Close()
	if a, b := road(here), road(elsewhere); a != "process" || b != "unix" {
		t.Errorf("roads %s and %s", a, b)
	}
	endNear()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	elsewhere.Drop(addr)
	if a, b := road(here), road(elsewhere); a != "process" || b != "tcp" {
		t.Errorf("roads %s and %s without the unix socket", a, b)
	}
	stop()
	for _, p := range []*Pool{here, elsewhere} {
		p.Drop(addr)
		if got := road(p); got != "none" {
			t.Errorf("a server that has stopped is reached by %s", got)
		}
	}
}

func TestSocketsForThisMachine(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if len(filepath.Join(t.TempDir(), "monolith-rows-65534", strings.Repeat("x", 31))) > maxSocketPath {
		t.Skip("the test's folder is too deep for a socket")
	}
	a, err := ListenNear(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ListenNear(t.Context())
	if err != nil || a.Addr().String() == b.Addr().String() {
		t.Fatalf("%v, both at %v", err, a.Addr())
	}
	old := time.Now().Add(-time.Hour)
	left, err := ListenNear(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed process leaves it
	_ = left.Close()
	for _, ln := range []net.Listener{a, left} {
		if err := os.Chtimes(ln.Addr().String(), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if !isNear(Addr(left.Addr())) || isNear("127.0.0.1:1") {
		t.Error("isNear")
	}
	c, err := ListenNear(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if isNear(Addr(left.Addr())) || !isNear(Addr(a.Addr())) || !isNear(Addr(b.Addr())) {
		t.Error("of three sockets, the dead one is to go")
	}
	for _, ln := range []net.Listener{a, b, c} {
		_ = ln.Close()
		if isNear(Addr(ln.Addr())) {
			t.Error("a closed socket's file stays")
		}
	}
}

// denseFiller answers the next number, from memory that is used again.
type denseFiller struct {
	echo
	n *float32
}

func (h denseFiller) DenseInto(_ context.Context, r *DenseRequest, res *DenseResponse) error {
	res.Fill(len(r.Names))
	*h.n++
	for i, name := range r.Names {
		t := &res.Tensors[i]
		t.Name, t.At, t.BF16 = name, r.BandAt(i), r.MayRound(i)
		t.Values = append(t.Values[:0], *h.n, -2)
	}
	return nil
}

func TestRoadsFillMemoryWithVariables(t *testing.T) {
	for _, bf16 := range [][]bool{{false, false}, {true, false}} {
		onEachRoad(t, func() Handler { return denseFiller{n: new(float32)} }, Options{}, func(t *testing.T, c Conn, _ func()) {
			memory := make([]float32, 5)
			places := [][]float32{memory[:2], memory[2:4]}
			q := &DenseRequest{Names: []string{"a", "b"}, At: []uint32{0, 9}, BF16: bf16}
			var res DenseResponse
			for n := float32(1); n < 4; n++ {
				res.Into(places)
				if err := c.DenseInto(soon(t), q, &res); err != nil {
					t.Fatal(err)
				}
				if len(res.Tensors) != 2 || &res.Tensors[0].Values[0] != &memory[0] || &res.Tensors[1].Values[0] != &memory[2] || res.Tensors[1].At != 9 {
					t.Errorf("the answer lies elsewhere: %+v", res)
				}
				if !slices.Equal(memory, []float32{n, -2, n, -2, 0}) {
					t.Errorf("%v", memory)
				}
			}
			res.Into([][]float32{memory[:1], memory[1:2]})
			if err := c.DenseInto(soon(t), q, &res); err != nil || len(res.Tensors[0].Values) != 2 || memory[2] != 3 || memory[3] != -2 {
				t.Errorf("a longer answer: %+v, %v, it was written to %v", res, err, memory)
			}
		})
	}
}
