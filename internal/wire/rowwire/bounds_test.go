package rowwire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// What stands exactly at a bound passes at both ends; one more is refused at both.
func TestWhatIsAtABoundPasses(t *testing.T) {
	manyOffsets := map[int32]int64{}
	for p := range int32(MaxOffsets) {
		manyOffsets[p] = 1
	}
	tables := make([]TableIDs, MaxTables)
	for i := range tables {
		tables[i].IDs = []int64{}
	}
	for name, m := range map[string]codec{
		"name":      &OffsetsRequest{Job: strings.Repeat("x", MaxString)},
		"ids":       &LookupRequest{Tables: []TableIDs{{"a", make([]int64, MaxIDs-1)}, {"b", make([]int64, 1)}}},
		"gradients": &ApplyRequest{Tables: []TableGrads{{"a", make([]int64, MaxIDs-1), make([]float32, MaxIDs-1)}, {"b", make([]int64, 1), make([]float32, 1)}}, Dense: []NamedTensor{}},
		"tables":    &LookupRequest{Tables: tables},
		"offsets":   &OffsetsResponse{Next: manyOffsets},
		"scan":      &ScanResponse{IDs: make([]int64, MaxIDs), UnixSec: make([]uint32, MaxIDs), Seqs: make([]uint64, MaxIDs)},
		"names":     &DenseRequest{Names: make([]string, MaxTensors)},
		"reason":    &Error{Code: Gap, Message: strings.Repeat("x", MaxString)},
	} {
		b := encoded(t, m)
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(codec)
		if err := got.decode(&decoder{b: b}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if again := encoded(t, got); !bytes.Equal(again, b) {
			t.Errorf("%s: came back as another message", name)
		}
	}
}

func TestWhatIsBeyondABoundIsRefused(t *testing.T) {
	for name, m := range map[string]codec{
		"ids of two tables":       &LookupRequest{Tables: []TableIDs{{"a", make([]int64, MaxIDs)}, {"b", make([]int64, 1)}}},
		"gradients of two tables": &ApplyRequest{Tables: []TableGrads{{"a", make([]int64, MaxIDs), make([]float32, MaxIDs)}, {"b", make([]int64, 1), make([]float32, 1)}}},
	} {
		var e encoder
		m.encode(&e)
		if CodeOf(asErr(e.err)) != Invalid {
			t.Errorf("%s: encoded: %v", name, e.err)
		}
		if len(e.b) > MaxFrame {
			t.Errorf("%s: %d bytes were written", name, len(e.b))
		}
	}
	// As a peer without these bounds would write them.
	two := encoded(t, &LookupRequest{Tables: []TableIDs{{"a", make([]int64, MaxIDs/2+1)}, {"b", make([]int64, MaxIDs/2-1)}}})
	at := len(two) - 8*(MaxIDs/2-1) - 4
	le.PutUint32(two[at:], MaxIDs/2+1)
	two = append(two, make([]byte, 16)...)
	if err := new(LookupRequest).decode(&decoder{b: two}); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "split it") {
		t.Errorf("too many ids in two tables: %v", err)
	}
	long := append(le.AppendUint16(nil, MaxString+1), make([]byte, MaxString+1+4)...)
	if err := new(OffsetsRequest).decode(&decoder{b: long}); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "a name has") {
		t.Errorf("a name too long: %v", err)
	}
	apply := encoded(t, &ApplyRequest{Tables: []TableGrads{{"a", make([]int64, MaxIDs/2+1), nil}, {"b", make([]int64, MaxIDs/2-1), nil}}})
	at = len(apply) - 4 - 4 - 8*(MaxIDs/2-1) - 4
	le.PutUint32(apply[at:], MaxIDs/2+1)
	apply = append(apply[:len(apply)-8], make([]byte, 16+8)...)
	if err := new(ApplyRequest).decode(&decoder{b: apply}); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "split it") {
		t.Errorf("gradients of too many ids in two tables: %v", err)
	}
}

func asErr(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// A message that outgrows its frame costs no more than a frame.
func TestAFrameHoldsExactlyItsBound(t *testing.T) {
	filled := func(size int) *DenseResponse { // size bytes behind the length
		m := &DenseResponse{Tensors: []NamedTensor{{Values: make([]float32, MaxFrame/4-64)}, {}}}
		m.Tensors[1].Name = strings.Repeat("x", size-(headLen-4+len(encoded(t, m))))
		return m
	}
	b, err := frame(opDense|opResponse, 1, -1, filled(MaxFrame))
	if err != nil {
		t.Fatalf("a frame at its bound: %v", err)
	}
	if _, _, _, p, err := readFrame(bufio.NewReader(bytes.NewReader(*b))); err != nil || len(p) != MaxFrame-headLen+4 {
		t.Errorf("read a frame at its bound: %d bytes, %v", len(p), err)
	}
	if _, err := frame(opDense|opResponse, 1, -1, filled(MaxFrame+1)); CodeOf(err) != Invalid {
		t.Errorf("a frame above its bound: %v", err)
	}
	smallest := make([]byte, headLen)
	le.PutUint32(smallest, headLen-4)
	if _, _, _, p, err := readFrame(bufio.NewReader(bytes.NewReader(smallest))); err != nil || len(p) != 0 {
		t.Errorf("an empty frame: %d bytes, %v", len(p), err)
	}

	var e encoder
	if b := e.grow(MaxFrame); len(b) != MaxFrame || e.err != nil {
		t.Errorf("as much as a frame holds: %d bytes, %v", len(b), e.err)
	}
	if e.grow(1) != nil || e.err == nil || len(e.b) > MaxFrame {
		t.Errorf("one byte more: %d bytes, %v", len(e.b), e.err)
	}
	e = encoder{}
	for range 3 {
		e.f32s(make([]float32, MaxFrame/8))
	}
	if len(e.b) > MaxFrame || e.err == nil {
		t.Errorf("%d bytes were written, %v", len(e.b), e.err)
	}
}

// Buffers go round, but for huge ones, which would be held for ever.
func TestBuffersGoRound(t *testing.T) {
	big := make([]byte, 0, keepBuf+1)
	giveBack(&big)
	for range 100 {
		if b := buffers.Get().(*[]byte); cap(*b) > keepBuf {
			t.Fatalf("a buffer of %d bytes was kept", cap(*b))
		}
	}
	giveBack(nil)
	kept := false
	for range 1000 { // a pool may forget, and the race detector makes it
		largest := make([]byte, 0, keepBuf)
		giveBack(&largest)
		b := buffers.Get().(*[]byte)
		if kept = b == &largest; kept {
			break
		}
	}
	if !kept {
		t.Errorf("no buffer of %d bytes was kept", keepBuf)
	}
}

// Only between frames a connection ends well.
func TestACutFrameIsNoEnd(t *testing.T) {
	b, err := frame(opLookup, 1, 0, lookupOf(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, headLen - 1, headLen, headLen + 1, len(*b) - 1} {
		if _, _, _, _, err := readFrame(bufio.NewReader(bytes.NewReader((*b)[:cut]))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut to %d of %d bytes: %v", cut, len(*b), err)
		}
	}
	if _, _, _, _, err := readFrame(bufio.NewReader(bytes.NewReader(nil))); err != io.EOF {
		t.Errorf("no frame at all: %v", err)
	}
}

func TestScansThatAreNoRowsAreRefused(t *testing.T) {
	for name, r := range map[string]*ScanResponse{
		"values without ids": {Values: []float32{1}},
		"too few values":     {Dim: 2, IDs: []int64{1, 2}, Values: []float32{1, 2, 3}},
		"another dimension":  {Dim: 2, IDs: []int64{1, 2}, Values: []float32{1, 2}},
		"slots without ids":  {Slots: []float32{1}},
		"slots of no rows":   {Dim: 1, IDs: []int64{1, 2}, Values: []float32{1, 2}, Slots: []float32{1, 2, 3}},
	} {
		if err := new(ScanResponse).decode(&decoder{b: encoded(t, r)}); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "no rows") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ok := &ScanResponse{IDs: []int64{1, 2}} // of a table that has only slots elsewhere
	if err := new(ScanResponse).decode(&decoder{b: encoded(t, ok)}); err != nil {
		t.Errorf("rows of dimension 0: %v", err)
	}
}

func TestEncodingsThatAreNoneAreRefused(t *testing.T) {
	for _, c := range []Encoding{encodings, 255} {
		var e encoder
		e.encoding(c)
		d := decoder{b: []byte{byte(c)}}
		d.encoding()
		_, packed := Pack(c, []float32{1}, 1)
		for what, err := range map[string]error{"encode": asErr(e.err), "decode": asErr(d.err), "Pack": packed} {
			if CodeOf(err) != Invalid {
				t.Errorf("%s with encoding %d: %v", what, c, err)
			}
		}
	}
	if _, err := Unpack(encodings, make([]byte, 4), 1, 1); CodeOf(err) != Invalid {
		t.Errorf("Unpack: %v", err)
	}
}

func TestPackAndUnpack(t *testing.T) {
	rows := []float32{127, -127, 64, 0, 1, -1}
	for c := range encodings {
		for _, n := range []int{1, 2, 3} {
			b, err := Pack(c, rows, n)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Unpack(c, b, n, len(rows)/n)
			if err != nil || len(got) != len(rows) {
				t.Fatalf("encoding %d, %d rows: %v, %v", c, n, got, err)
			}
			for i, x := range got {
				if math.Abs(float64(x-rows[i])) > 0.5 {
					t.Errorf("encoding %d, %d rows: %v, want %v", c, n, got, rows)
					break
				}
			}
			for name, bad := range map[string]func() ([]float32, error){
				"a byte more":    func() ([]float32, error) { return Unpack(c, append(bytes.Clone(b), 0), n, len(rows)/n) },
				"a byte less":    func() ([]float32, error) { return Unpack(c, b[1:], n, len(rows)/n) },
				"a row more":     func() ([]float32, error) { return Unpack(c, b, n+1, len(rows)/n) },
				"no dimension":   func() ([]float32, error) { return Unpack(c, nil, 1, 0) },
				"rows below 0":   func() ([]float32, error) { return Unpack(c, b, -n, -len(rows)/n) },
				"below 0 of one": func() ([]float32, error) { return Unpack(c, nil, -1, 1) },
				"beyond a frame": func() ([]float32, error) { return Unpack(c, b, math.MaxInt, 1) },
			} {
				if v, err := bad(); CodeOf(err) != Invalid {
					t.Errorf("encoding %d, %s: %v, %v", c, name, v, err)
				}
			}
		}
		b, err := Pack(c, nil, 0)
		if err != nil || len(b) != 0 {
			t.Errorf("encoding %d: nothing is packed as %v, %v", c, b, err)
		}
		if b, err = Pack(c, nil, 3); err != nil || len(b) != 0 {
			t.Errorf("encoding %d: three rows of nothing are packed as %v, %v", c, b, err)
		}
		if v, err := Unpack(c, nil, 0, 4); err != nil || len(v) != 0 {
			t.Errorf("encoding %d: no rows are unpacked as %v, %v", c, v, err)
		}
		for _, n := range []int{0, 4} {
			if _, err := Pack(c, rows, n); CodeOf(err) != Invalid {
				t.Errorf("encoding %d: 6 numbers pass as %d rows: %v", c, n, err)
			}
		}
	}
}

// As many rows as a frame has bytes may be unpacked, for what is stored is no frame.
func TestUnpackAsManyRowsAsItSays(t *testing.T) {
	b := make([]byte, 2*(MaxFrame+1))
	if v, err := Unpack(FP16, b[:2*MaxFrame], MaxFrame, 1); err != nil || len(v) != MaxFrame {
		t.Errorf("%d rows, %v", len(v), err)
	}
	if _, err := Unpack(FP16, b, MaxFrame+1, 1); CodeOf(err) != Invalid {
		t.Errorf("a row too many: %v", err)
	}
	if _, err := Pack(FP16, make([]float32, MaxFrame/2+1), 1); CodeOf(err) != Invalid {
		t.Errorf("more than a frame is packed: %v", err)
	}
}

func TestResponsesOnUsedMemory(t *testing.T) {
	r := NewLookupResponse(2, true)
	copy(r.ValuesOf(0, 3), []float32{1, 2, 3})
	copy(r.SeqsOf(0, 3), []uint64{1, 2, 3})
	if len(r.Values[0]) != 3 || len(r.Seqs[0]) != 3 || r.Seqs[0][2] != 3 {
		t.Errorf("%+v", r)
	}
	r.Version, r.Step = 4, 5
	r.Done()
	r = NewLookupResponse(1, false)
	if s := r.SeqsOf(0, 3); s != nil || r.Seqs != nil || r.Version != 0 || r.Step != 0 || len(r.Values) != 1 {
		t.Errorf("sequences that nobody asked for: %v in %+v", s, r)
	}
}

func TestDefaults(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	o := Options{Log: log}.withDefaults()
	want := Options{MaxConns: 1024, InFlight: 64, InFlightSize: 64 << 20, HelloTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, Timeout: time.Minute, Drain: 5 * time.Second, Log: log}
	if o != want {
		t.Errorf("defaults %+v, want %+v", o, want)
	}
	own := Options{MaxConns: 1, InFlight: 2, InFlightSize: MaxFrame + 1, HelloTimeout: 1, ReadTimeout: 2, WriteTimeout: 3, Timeout: 4, Drain: 5, Log: log}
	if got := own.withDefaults(); got != own {
		t.Errorf("one's own became %+v, want %+v", got, own)
	}
	if got := (Options{InFlightSize: 1}).withDefaults(); got.InFlightSize != MaxFrame || got.Log == nil {
		t.Errorf("bytes at once: %d, less than a frame", got.InFlightSize)
	}
}

// broken gives an error before its first connection, then another's.
type broken struct {
	net.Listener
	mu   sync.Mutex
	errs []error
}

func (b *broken) Accept() (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errs) > 0 {
		err := b.errs[0]
		b.errs = b.errs[1:]
		return nil, err
	}
	return b.Listener.Accept()
}

func TestAcceptingGoesOnAfterAFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ln, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, &broken{Listener: ln, errs: []error{errors.New("too many open files"), errors.New("too many open files")}}, echo{dim: 1}, Options{MaxConns: 1})
	}()
	c := dial(t, Addr(ln.Addr()))
	if _, err := c.Lookup(soon(t), lookupOf(1)); err != nil {
		t.Error(err)
	}
	_ = c.Close()
	_ = ln.Close()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "closed by somebody else") {
		t.Errorf("Serve on a listener that is closed: %v", err)
	}
}

// A request that is too short to be one is refused alone, as long as it holds its time.
func TestTheShortestRequestIsRefusedAlone(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{})
	nc, r := rawHello(t, addr)
	for id, m := range []message{nil, lookupOf(1)} {
		b, err := frame(opLookup, uint64(1+id), 0, m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(*b); err != nil {
			t.Fatal(err)
		}
		op, got, _, _, err := readFrame(r)
		if want := []uint8{opError, opLookup | opResponse}[id]; err != nil || op != want || got != uint64(1+id) {
			t.Fatalf("request %d: op %d of request %d, %v", 1+id, op, got, err)
		}
	}
	short, err := frame(opLookup, 3, -1, nil) // without even its time
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write(*short); err != nil {
		t.Fatal(err)
	}
	if op, id, _, _, err := readFrame(r); err != nil || op != opError || id != 0 {
		t.Errorf("a request without its time: op %d of request %d, %v", op, id, err)
	}
}

func TestARequestIDInUseEndsTheConnection(t *testing.T) {
	started := make(chan struct{})
	addr, _ := serve(t, "127.0.0.1:0", echo{apply: func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}}, Options{})
	nc, r := rawHello(t, addr)
	b, err := frame(opApply, 5, 0, &ApplyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := nc.Write(*b); err != nil {
			t.Fatal(err)
		}
		<-started
	}
	for {
		op, id, _, payload, err := readFrame(r)
		if err != nil {
			t.Fatal("the connection ended without a reason: ", err)
		}
		if op == opError && id == 0 {
			if e := refusal(payload); e.Code != Invalid || !strings.Contains(e.Message, "in use already") {
				t.Errorf("refused with %v", e)
			}
			return
		}
	}
}

func TestListenKeepsWhatIsNoSocket(t *testing.T) {
	dir := t.TempDir()
	if _, err := Listen(soon(t), "unix://"+dir); err == nil {
		t.Error("a folder was taken for a socket")
	}
	if _, err := Listen(soon(t), "unix://"+filepath.Join(dir, "absent", "rows.sock")); err == nil {
		t.Error("a socket in a folder that is not there")
	}
	if _, err := Listen(soon(t), "nowhere"); err == nil {
		t.Error("an address that is none")
	}
}

// Only a server that answers the hello with the same protocol and version is spoken to.
func TestAnswersThatAreNoHello(t *testing.T) {
	good := hello{Magic: magic, Version: Version, InFlight: 1}
	for name, answer := range map[string]struct {
		op uint8
		m  message
	}{
		"another op":      {opLookup | opResponse, &good},
		"another magic":   {opHello | opResponse, &hello{Magic: magic + 1, Version: Version, InFlight: 1}},
		"another version": {opHello | opResponse, &hello{Magic: magic, Version: Version - 1, InFlight: 1}},
		"no hello":        {opHello | opResponse, &ApplyResponse{}},
	} {
		here, there := net.Pipe()
		go func() {
			if _, _, _, _, err := readFrame(bufio.NewReader(there)); err == nil {
				b, _ := frame(answer.op, 0, -1, answer.m)
				_, _ = there.Write(*b)
			}
		}()
		if h, err := greet(here, bufio.NewReader(here), Version); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "is no server of row protocol") {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		_, _ = here.Close(), there.Close()
	}
}

// Why a server ends a connection is what every request on it learns.
func TestTheReasonOfTheEndIsKept(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		r := bufio.NewReader(nc)
		for _, answer := range []struct {
			op uint8
			m  message
		}{{opHello | opResponse, &hello{Magic: magic, Version: Version, InFlight: 1}}, {opError, Errorf(Invalid, "moved to another machine")}} {
			if _, _, _, _, err := readFrame(r); err != nil {
				return
			}
			b, _ := frame(answer.op, 0, -1, answer.m)
			_, _ = nc.Write(*b)
		}
	}()
	c := dial(t, ln.Addr().String())
	for range 2 {
		if _, err := c.Lookup(soon(t), lookupOf(1)); CodeOf(err) != Unavailable || !strings.Contains(err.Error(), "moved to another machine") {
			t.Errorf("a request on a connection that was ended: %v", err)
		}
	}
	<-ended
}

// A connection opens with a hello alone, and with a whole one.
func TestOpeningsThatAreNoHello(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{})
	good := encoded(t, &hello{Magic: magic, Version: Version})
	for name, opening := range map[string]struct {
		op   uint8
		body raw
	}{
		"another op": {opLookup, good}, "a byte more": {opHello, append(bytes.Clone(good), 0)}, "a byte less": {opHello, good[:len(good)-1]},
		"another magic": {opHello, encoded(t, &hello{Magic: magic ^ 1, Version: Version})}, "a response": {opHello | opResponse, good},
	} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(wait.Patience))
		b, err := frame(opening.op, 1, -1, opening.body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(*b); err != nil {
			t.Fatal(err)
		}
		op, _, _, payload, err := readFrame(bufio.NewReader(nc))
		if err != nil || op != opError || !strings.Contains(refusal(payload).Message, "did not open with the hello") {
			t.Errorf("%s: op %d, %q, %v", name, op, payload, err)
		}
		_ = nc.Close()
	}
}

// raw is a message that is encoded already.
type raw []byte

func (r raw) encode(e *encoder) { e.b = append(e.b, r...) }
