package rowwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// echo answers a lookup with dim values per id, the id itself; funcs override it.
type echo struct {
	dim    int
	lookup func(context.Context, *LookupRequest) (*LookupResponse, error)
	apply  func(context.Context, *ApplyRequest) (*ApplyResponse, error)
}

func (h echo) Lookup(ctx context.Context, r *LookupRequest) (*LookupResponse, error) {
	if h.lookup != nil {
		return h.lookup(ctx, r)
	}
	res := &LookupResponse{Step: r.Turn}
	for _, t := range r.Tables {
		v := make([]float32, len(t.IDs)*h.dim)
		for i, id := range t.IDs {
			v[i*h.dim] = float32(id)
		}
		res.Values = append(res.Values, v)
	}
	return res, nil
}

func (h echo) Apply(ctx context.Context, r *ApplyRequest) (*ApplyResponse, error) {
	if h.apply != nil {
		return h.apply(ctx, r)
	}
	return &ApplyResponse{Applied: true, Next: r.To}, nil
}

func (echo) Dense(_ context.Context, r *DenseRequest) (*DenseResponse, error) {
	res := &DenseResponse{Step: 5}
	for _, n := range r.Names {
		res.Tensors = append(res.Tensors, NamedTensor{Name: n, Values: []float32{1, 2}})
	}
	return res, nil
}

func (echo) Offsets(context.Context, *OffsetsRequest) (*OffsetsResponse, error) {
	return &OffsetsResponse{Epoch: 2, Next: map[int32]int64{0: 10, 1: 20}}, nil
}

func (echo) Scan(_ context.Context, r *ScanRequest) (*ScanResponse, error) {
	return nil, Errorf(NotFound, "no table %q", r.Table)
}

// serve runs a server for the test and returns its address and a way to stop it.
func serve(t testing.TB, addr string, h Handler, o Options) (string, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := Listen(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, h, o) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return Addr(ln.Addr()), stop
}

func dial(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := Dial(context.Background(), addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	t.Cleanup(cancel)
	return ctx
}

// sent has do ask under a deadline that passes, of a second and on a busy machine of more: a
// request that ran out of time before it was sent says nothing.
func sent(t testing.TB, do func(context.Context) error) error {
	t.Helper()
	for long := time.Second; ; long *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		err := do(ctx)
		cancel()
		if err == nil || long > wait.Patience || !strings.Contains(err.Error(), "not sent") && !strings.Contains(err.Error(), "waited for its turn") {
			return err
		}
	}
}

func lookupOf(ids ...int64) *LookupRequest {
	return &LookupRequest{Model: "m", Tables: []TableIDs{{"t", ids}}}
}

func TestAllMethodsOverTCPAndUnix(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "rows.sock")} {
		addr, _ := serve(t, addr, echo{dim: 2}, Options{})
		c, ctx := dial(t, addr), soon(t)
		l, err := c.Lookup(ctx, lookupOf(3, 4))
		if err != nil || !reflect.DeepEqual(l.Values, [][]float32{{3, 0, 4, 0}}) {
			t.Errorf("%s: Lookup = %v, %v", addr, l, err)
		}
		a, err := c.Apply(ctx, &ApplyRequest{From: 1, To: 9})
		if err != nil || *a != (ApplyResponse{true, 9}) {
			t.Errorf("%s: Apply = %v, %v", addr, a, err)
		}
		d, err := c.Dense(ctx, &DenseRequest{Names: []string{"k"}})
		if err != nil || !reflect.DeepEqual(d.Tensors, []NamedTensor{{Name: "k", Values: []float32{1, 2}}}) {
			t.Errorf("%s: Dense = %v, %v", addr, d, err)
		}
		o, err := c.Offsets(ctx, &OffsetsRequest{})
		if err != nil || !reflect.DeepEqual(o.Next, map[int32]int64{0: 10, 1: 20}) {
			t.Errorf("%s: Offsets = %v, %v", addr, o, err)
		}
		_, err = c.Scan(ctx, &ScanRequest{Table: "gone"})
		if CodeOf(err) != NotFound || !strings.Contains(err.Error(), `"gone"`) {
			t.Errorf("%s: Scan error = %v, want NOT_FOUND naming the table", addr, err)
		}
	}
}

func TestRefusalsKeepCodeAndNext(t *testing.T) {
	for _, code := range []Code{Invalid, NotFound, Fenced, Gap, Overlap, WrongGeneration, Unavailable} {
		addr, stop := serve(t, "127.0.0.1:0", echo{apply: func(context.Context, *ApplyRequest) (*ApplyResponse, error) {
			return nil, fmt.Errorf("wrapped: %w", &Error{Code: code, Message: "because", Next: 41})
		}}, Options{})
		_, err := dial(t, addr).Apply(soon(t), &ApplyRequest{})
		var e *Error
		if !errors.As(err, &e) || e.Code != code || e.Next != 41 || e.Message != "because" {
			t.Errorf("%v: got %#v", code, err)
		}
		stop()
	}
	addr, _ := serve(t, "127.0.0.1:0", echo{apply: func(context.Context, *ApplyRequest) (*ApplyResponse, error) {
		return nil, io.ErrClosedPipe
	}}, Options{})
	if _, err := dial(t, addr).Apply(soon(t), &ApplyRequest{}); CodeOf(err) != Unavailable {
		t.Errorf("a foreign error arrives as %v, want UNAVAILABLE", err)
	}
}

func TestRequestsArePipelined(t *testing.T) {
	second := make(chan struct{})
	addr, _ := serve(t, "127.0.0.1:0", echo{lookup: func(ctx context.Context, r *LookupRequest) (*LookupResponse, error) {
		if r.Turn == 2 {
			close(second)
			return &LookupResponse{Step: 2}, nil
		}
		select { // the first is answered after the second arrived
		case <-second:
			return &LookupResponse{Step: 1}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, Options{})
	c, ctx := dial(t, addr), soon(t)
	var wg sync.WaitGroup
	for turn := uint64(1); turn <= 2; turn++ {
		wg.Go(func() {
			res, err := c.Lookup(ctx, &LookupRequest{Turn: turn})
			if err != nil || res.Step != turn {
				t.Errorf("turn %d: %v, %v", turn, res, err)
			}
		})
	}
	wg.Wait()
}

func TestManyCallersGetTheirOwnAnswers(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 3}, Options{InFlight: 8})
	c, ctx := dial(t, addr), soon(t)
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 40 {
				ids := make([]int64, 1+(g*i)%200)
				for j := range ids {
					ids[j] = int64(g*1000 + i + j)
				}
				res, err := c.Lookup(ctx, lookupOf(ids...))
				if err != nil {
					t.Errorf("caller %d: %v", g, err)
					return
				}
				for j, id := range ids {
					if res.Values[0][3*j] != float32(id) {
						t.Errorf("caller %d, request %d: row %d is %v, want %d", g, i, j, res.Values[0][3*j], id)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestDeadlineTravelsAndFreesTheSlot(t *testing.T) {
	ended := make(chan error, 1)
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1, apply: func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}, Options{InFlight: 1})
	c := dial(t, addr)
	err := sent(t, func(ctx context.Context) error { _, err := c.Apply(ctx, &ApplyRequest{}); return err })
	if CodeOf(err) != Unavailable {
		t.Fatalf("Apply = %v, want UNAVAILABLE", err)
	}
	if err := <-ended; err == nil {
		t.Fatal("the handler's ctx has not ended")
	}
	if _, err := c.Lookup(soon(t), lookupOf(1)); err != nil {
		t.Fatalf("the connection is of no more use after a time-out: %v", err)
	}
}

func TestCancellationReachesTheHandler(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	addr, _ := serve(t, "127.0.0.1:0", echo{apply: func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}}, Options{})
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	_, err := c.Apply(ctx, &ApplyRequest{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Apply = %v, want Canceled inside", err)
	}
	select {
	case <-ended:
	case <-time.After(wait.Patience):
		t.Fatal("the handler was not cancelled, though its caller had left")
	}
}

func TestServerWorksOnNoMoreThanItsBound(t *testing.T) {
	started := make(chan struct{}, 16)
	release := make(chan struct{})
	var mu sync.Mutex
	now, most := 0, 0
	addr, _ := serve(t, "127.0.0.1:0", echo{apply: func(context.Context, *ApplyRequest) (*ApplyResponse, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		started <- struct{}{}
		<-release
		mu.Lock()
		now--
		mu.Unlock()
		return &ApplyResponse{}, nil
	}}, Options{InFlight: 3})

	// A client that ignores the server's bound: raw frames, twelve at once.
	nc, r := rawHello(t, addr)
	for id := uint64(1); id <= 12; id++ {
		b, err := frame(opApply, id, 0, &ApplyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(*b); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		<-started
	}
	close(release)
	seen := map[uint64]bool{}
	for range 12 {
		op, id, _, _, err := readFrame(r)
		if err != nil || op != opApply|opResponse {
			t.Fatalf("op %d, %v", op, err)
		}
		seen[id] = true
	}
	if len(seen) != 12 || most > 3 {
		t.Errorf("%d answers, %d at once; want 12, at most 3", len(seen), most)
	}
}

func rawHello(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(wait.Patience))
	r := bufio.NewReader(nc)
	if _, err := greet(nc, r, Version); err != nil {
		t.Fatal(err)
	}
	return nc, r
}

func TestProtocolViolationsEndTheConnectionWithAReason(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{}, Options{})
	hugeHead := make([]byte, headLen)
	le.PutUint32(hugeHead, MaxFrame+1)
	mustFrame := func(op uint8, m message) []byte {
		b, err := frame(op, 1, 0, m)
		if err != nil {
			t.Fatal(err)
		}
		return *b
	}
	noTimeout, err := frame(opHello, 0, -1, &hello{Magic: magic, Version: Version + 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		hello bool
		bytes []byte
		want  string
	}{
		{"newer version", false, *noTimeout, "upgrade the older one"},
		{"no hello", false, mustFrame(opLookup, lookupOf(1)), "did not open with the hello"},
		{"HTTP", false, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "not the row protocol"},
		{"oversized", true, hugeHead, "over its bound"},
		{"unknown op", true, mustFrame(99, nil), "no request of protocol version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var nc net.Conn
			var r *bufio.Reader
			if tc.hello {
				nc, r = rawHello(t, addr)
			} else {
				var err error
				if nc, err = net.Dial("tcp", addr); err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(wait.Patience))
				r = bufio.NewReader(nc)
			}
			if _, err := nc.Write(tc.bytes); err != nil {
				t.Fatal(err)
			}
			op, _, _, payload, err := readFrame(r)
			if err != nil || op != opError {
				t.Fatalf("op %d, %v; want an error frame", op, err)
			}
			if e := refusal(payload); e.Code != Invalid || !strings.Contains(e.Message, tc.want) {
				t.Errorf("refused with %v, want INVALID about %q", e, tc.want)
			}
			if _, err := r.ReadByte(); err == nil {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestBadPayloadIsRefusedAndTheConnectionLives(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{})
	nc, r := rawHello(t, addr)
	for i, m := range []message{&ApplyResponse{}, lookupOf(1)} { // the first is no lookup
		b, err := frame(opLookup, uint64(7+i), 0, m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(*b); err != nil {
			t.Fatal(err)
		}
	}
	var ops []uint8
	for range 2 {
		op, _, _, _, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	if !reflect.DeepEqual(ops, []uint8{opError, opLookup | opResponse}) &&
		!reflect.DeepEqual(ops, []uint8{opLookup | opResponse, opError}) {
		t.Errorf("answers %v, want one refusal and one response", ops)
	}
}

func TestDrainFinishesWhatIsAtHand(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	addr, stop := serve(t, "127.0.0.1:0", echo{apply: func(context.Context, *ApplyRequest) (*ApplyResponse, error) {
		close(started)
		<-release
		return &ApplyResponse{Applied: true, Next: 3}, nil
	}}, Options{Drain: wait.Patience})
	c := dial(t, addr)
	type result struct {
		res *ApplyResponse
		err error
	}
	got := make(chan result, 1)
	go func() {
		res, err := c.Apply(context.Background(), &ApplyRequest{})
		got <- result{res, err}
	}()
	<-started
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	for { // until the listener is closed
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = nc.Close()
	}
	close(release)
	if r := <-got; r.err != nil || !r.res.Applied {
		t.Errorf("the request at hand was lost: %v, %v", r.res, r.err)
	}
	<-stopped
	if _, err := c.Apply(soon(t), &ApplyRequest{}); CodeOf(err) != Unavailable {
		t.Errorf("after the drain: %v, want UNAVAILABLE", err)
	}
}

func TestDrainGivesUpOnWhatNeverEnds(t *testing.T) {
	started := make(chan struct{})
	addr, stop := serve(t, "127.0.0.1:0", echo{apply: func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}}, Options{Drain: 20 * time.Millisecond})
	c := dial(t, addr)
	got := make(chan error, 1)
	go func() { _, err := c.Apply(context.Background(), &ApplyRequest{}); got <- err }()
	<-started
	stop()
	if err := <-got; CodeOf(err) != Unavailable {
		t.Errorf("error %v, want UNAVAILABLE", err)
	}
}

func TestPoolReplacesDeadConnections(t *testing.T) {
	sock := "unix://" + filepath.Join(t.TempDir(), "rows.sock")
	p := NewPool(nil)
	defer p.Close()
	if _, err := p.Get(soon(t), sock); CodeOf(err) != Unavailable {
		t.Fatalf("nobody there: %v, want UNAVAILABLE", err)
	}
	_, stop := serve(t, sock, echo{dim: 1}, Options{})
	first, err := p.Get(soon(t), sock)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Get(soon(t), sock); err != nil || again != first {
		t.Fatalf("Get = %p, %v; want the same connection %p", again, err, first)
	}
	stop()
	<-first.(*Client).done
	serve(t, sock, echo{dim: 1}, Options{})
	second, err := p.Get(soon(t), sock)
	if err != nil || second == first {
		t.Fatalf("Get after a restart = %p, %v; want a new connection", second, err)
	}
	if _, err := second.Lookup(soon(t), lookupOf(1)); err != nil {
		t.Fatal(err)
	}
	p.Drop(sock)
	if second.Err() == nil {
		t.Error("a dropped connection still works")
	}
	p.Close()
	if _, err := p.Get(soon(t), sock); err == nil {
		t.Error("a closed pool hands out connections")
	}
}

func TestListenReplacesOnlyDeadSockets(t *testing.T) {
	sock := "unix://" + filepath.Join(t.TempDir(), "rows.sock")
	_, path, _ := SplitAddr(sock)
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(soon(t), sock); err == nil {
		t.Fatal("a socket in use was taken over")
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	_ = ln.Close()
	again, err := Listen(soon(t), sock)
	if err != nil {
		t.Fatalf("a dead socket stands in the way: %v", err)
	}
	_ = again.Close()
}

func TestSplitAddr(t *testing.T) {
	for addr, want := range map[string][2]string{
		"127.0.0.1:80":    {"tcp", "127.0.0.1:80"},
		"[::1]:80":        {"tcp", "[::1]:80"},
		"unix:///tmp/x.s": {"unix", "/tmp/x.s"},
		"unix://x":        {},
		"nowhere":         {},
	} {
		n, a, err := SplitAddr(addr)
		if (err != nil) != (want == [2]string{}) || n != want[0] || a != want[1] {
			t.Errorf("SplitAddr(%q) = %q, %q, %v; want %v", addr, n, a, err, want)
		}
	}
}

// BenchmarkEcho is a lookup of 2,000 rows of 16 floats: 16 kB there, 128 kB back.
func BenchmarkEcho(b *testing.B) {
	ids := make([]int64, 2000)
	res := &LookupResponse{Values: [][]float32{make([]float32, 16*len(ids))}}
	h := echo{lookup: func(context.Context, *LookupRequest) (*LookupResponse, error) { return res, nil }}
	for _, addr := range []string{"127.0.0.1:0", "unix://" + filepath.Join(b.TempDir(), "rows.sock")} {
		network, _, _ := SplitAddr(addr)
		addr, stop := serve(b, addr, h, Options{})
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", network, callers), func(b *testing.B) {
				c := dial(b, addr)
				req := lookupOf(ids...)
				b.SetBytes(int64(len(ids) * (8 + 64)))
				b.ReportAllocs()
				work := make(chan struct{})
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for range work {
							if _, err := c.Lookup(context.Background(), req); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				for b.Loop() {
					work <- struct{}{}
				}
				close(work)
				wg.Wait()
			})
		}
		stop()
	}
}
