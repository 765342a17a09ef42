package rowwire

import (
	"bufio"
	"bytes"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

type codec interface {
	encode(*encoder)
	decode(*decoder) error
}

// kinds are all messages: how to make an empty one, and one that says something.
var kinds = []struct {
	name  string
	empty func() codec
	full  codec
}{
	{"lookup request", func() codec { return new(LookupRequest) }, &LookupRequest{Model: "movie", Shard: 3, WithSeqs: true, Turn: 9, Generation: 2,
		Tables: []TableIDs{{"user", []int64{1, -2, math.MaxInt64}}, {"movie", []int64{7}}}}},
	{"lookup response", func() codec { return new(LookupResponse) }, &LookupResponse{Values: [][]float32{{1, 2, 3, 4, 5}, {-0.5}},
		Seqs: [][]uint64{{1, 2}, {math.MaxUint64}}, Version: 4, Step: 77}},
	{"apply request", func() codec { return new(ApplyRequest) }, &ApplyRequest{Job: "j", Shard: 1, Partition: 2, Epoch: 5, From: 10, To: 20,
		RecordUnix: 964982703, Turn: 1, Generation: 1, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Tables: []TableGrads{{"user", []int64{1, 2}, []float32{1, 2, 3, float32(math.Inf(1))}}},
		Dense:  []NamedTensor{{Name: "l/kernel", Values: []float32{1, 2, 3}}, {Name: "l/bias", Values: []float32{0.25}}}}},
	{"lookup request in bytes", func() codec { return new(LookupRequest) }, &LookupRequest{Model: "movie", Encoding: Int8, Tables: []TableIDs{{"user", []int64{1}}}}},
	{"lookup response in halves", func() codec { return new(LookupResponse) }, &LookupResponse{encoding: FP16, Values: [][]float32{{1, -2.5, 65504}, halves(600)}}},
	{"lookup response in bytes", func() codec { return new(LookupResponse) }, &LookupResponse{encoding: Int8, counts: []int{2, 1},
		Values: [][]float32{{127, -1, 63.5, 0.5}, {0, 0}}}},
	{"apply request in halves", func() codec { return new(ApplyRequest) }, &ApplyRequest{Job: "j", To: 1, Encoding: FP16,
		Tables: []TableGrads{{"user", []int64{1, 2}, []float32{1, 2, 3, 4}}}, Dense: []NamedTensor{{Name: "l/bias", Values: []float32{0.1}}}}},
	{"apply request of a part", func() codec { return new(ApplyRequest) }, &ApplyRequest{Job: "j", To: 1, Part: 1, Parts: 3,
		Dense: []NamedTensor{{Name: "l/kernel", Values: []float32{1}}, {Name: "l/kernel", At: 212992, Values: []float32{2, 3}}}}},
	{"dense request of bands", func() codec { return new(DenseRequest) }, &DenseRequest{Job: "j", Names: []string{"a", "a"}, At: []uint32{0, 9}, BF16: []bool{true, false}}},
	{"dense response of bands", func() codec { return new(DenseResponse) }, &DenseResponse{Step: 1, Tensors: []NamedTensor{{Name: "a", At: 9, Values: []float32{1}}, {Name: "b", BF16: true, Values: []float32{1, -2.5, float32(math.Inf(1))}}}}},
	{"apply response", func() codec { return new(ApplyResponse) }, &ApplyResponse{Applied: true, Next: 20}},
	{"dense request", func() codec { return new(DenseRequest) }, &DenseRequest{Job: "j", Names: []string{"a", "b"}, Turn: 1}},
	{"dense response", func() codec { return new(DenseResponse) }, &DenseResponse{Tensors: []NamedTensor{{Name: "a", Values: []float32{1}}}, Step: 2}},
	{"offsets request", func() codec { return new(OffsetsRequest) }, &OffsetsRequest{Job: "j", Shard: 1}},
	{"offsets response", func() codec { return new(OffsetsResponse) }, &OffsetsResponse{Epoch: 1, Step: 2, Turn: 3, Generation: 4, Next: map[int32]int64{0: 5, 3: 6}}},
	{"scan request", func() codec { return new(ScanRequest) }, &ScanRequest{Model: "m", Table: "t", After: math.MinInt64, Limit: 10, Slots: true}},
	{"scan response", func() codec { return new(ScanResponse) }, &ScanResponse{Dim: 2, IDs: []int64{1, 2}, Values: []float32{1, 2, 3, 4},
		Slots: []float32{5, 6}, UnixSec: []uint32{1, 2}, Seqs: []uint64{3, 4}, More: true}},
	{"error", func() codec { return new(Error) }, &Error{Code: Gap, Message: "rewind", Next: 12}},
	{"hello", func() codec { return new(hello) }, &hello{Magic: magic, Version: Version, InFlight: 64}},
}

// halves are n numbers that a half keeps exactly.
func halves(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i) / 4
	}
	return v
}

func encoded(t *testing.T, m message) []byte {
	t.Helper()
	var e encoder
	m.encode(&e)
	if e.err != nil {
		t.Fatalf("encode %T: %v", m, e.err)
	}
	return e.b
}

func TestMessagesSurviveTheWire(t *testing.T) {
	for _, k := range kinds {
		b := encoded(t, k.full)
		got := k.empty()
		if err := got.decode(&decoder{b: b}); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if !reflect.DeepEqual(got, k.full) {
			t.Errorf("%s: got %+v, want %+v", k.name, got, k.full)
		}
		for n := range b {
			short := k.empty()
			err := short.decode(&decoder{b: b[:n]})
			if err == nil && bytes.Equal(encoded(t, short), b[:n]) {
				continue // what newer protocols write behind the rest is left out where it says nothing
			}
			if CodeOf(err) != Invalid {
				t.Errorf("%s: cut to %d of %d bytes: error %v, want INVALID", k.name, n, len(b), err)
			}
		}
		if err := k.empty().decode(&decoder{b: append(bytes.Clone(b), 0)}); CodeOf(err) != Invalid {
			t.Errorf("%s: one byte too many: error %v, want INVALID", k.name, err)
		}
	}
}

func TestHugeCountsAreRefusedBeforeAllocation(t *testing.T) {
	hostile := map[string][]byte{}
	var e encoder
	(&DenseRequest{Job: "j"}).encode(&e)
	hostile["dense request"] = append(e.b[:len(e.b)-4], 0xff, 0xff, 0xff, 0xff) // names
	e = encoder{}
	(&LookupRequest{Model: "m", Tables: []TableIDs{{Table: "t"}}}).encode(&e)
	hostile["lookup request"] = append(e.b[:len(e.b)-4], 0, 0, 4, 0) // 1<<18 ids, none there
	e = encoder{}
	(&LookupResponse{Values: [][]float32{nil}}).encode(&e)
	le.PutUint32(e.b[21:], MaxFrame/4) // floats, none there
	hostile["lookup response"] = e.b
	e = encoder{}
	(&OffsetsResponse{}).encode(&e)
	hostile["offsets response"] = append(e.b[:len(e.b)-4], 0, 0, 1, 0)
	for _, k := range kinds {
		data, ok := hostile[k.name]
		if !ok {
			continue
		}
		var err error
		grew := uint64(math.MaxUint64)
		for range 5 { // the least: what others of this process allocate meanwhile only adds
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = k.empty().decode(&decoder{b: data})
			runtime.ReadMemStats(&after)
			grew = min(grew, after.TotalAlloc-before.TotalAlloc)
		}
		if CodeOf(err) != Invalid || !strings.Contains(err.Error(), "announced") && !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: error %v, want INVALID about the count", k.name, err)
		}
		if grew > 64<<10 {
			t.Errorf("%s: %d bytes were allocated for %d bytes of input", k.name, grew, len(data))
		}
	}
}

func TestEncoderKeepsBounds(t *testing.T) {
	long := strings.Repeat("x", MaxString+1)
	for name, m := range map[string]message{
		"name too long":    &OffsetsRequest{Job: long},
		"too many ids":     &LookupRequest{Tables: []TableIDs{{"a", make([]int64, MaxIDs)}, {"b", make([]int64, 1)}}},
		"too many tables":  &LookupRequest{Tables: make([]TableIDs, MaxTables+1)},
		"frame too long":   &LookupResponse{Values: [][]float32{make([]float32, MaxFrame/8), make([]float32, MaxFrame/8)}},
		"gradient no rows": &ApplyRequest{Tables: []TableGrads{{"a", []int64{1, 2}, make([]float32, 3)}}},
	} {
		if b, err := frame(opLookup, 1, 0, m); CodeOf(err) != Invalid {
			t.Errorf("%s: frame = %v, %v; want INVALID", name, b != nil, err)
		}
	}
}

func TestDecoderRefusesDisorder(t *testing.T) {
	for _, k := range kinds {
		switch m := k.full.(type) {
		case *OffsetsResponse:
			b := encoded(t, m)
			le.PutUint32(b[len(b)-12:], 0) // the first partition once more
			if err := new(OffsetsResponse).decode(&decoder{b: b}); CodeOf(err) != Invalid {
				t.Errorf("a partition twice: error %v, want INVALID", err)
			}
		case *ApplyResponse:
			b := encoded(t, m)
			b[0] = 2
			if err := new(ApplyResponse).decode(&decoder{b: b}); CodeOf(err) != Invalid {
				t.Errorf("a flag of 2: error %v, want INVALID", err)
			}
		}
	}
}

// FuzzDecode checks every decoder: whatever is accepted encodes to the same bytes, also
// when it was decoded into memory that had held another message.
func FuzzDecode(f *testing.F) {
	for i, k := range kinds {
		var e encoder
		k.full.encode(&e)
		f.Add(uint8(i), e.b)
		e = encoder{}
		k.empty().encode(&e)
		f.Add(uint8(i), e.b)
	}
	f.Add(uint8(0), []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		k := kinds[int(kind)%len(kinds)]
		fresh := k.empty()
		err := fresh.decode(&decoder{b: data})
		dirty := k.empty()
		if e := dirty.decode(&decoder{b: encoded(t, k.full)}); e != nil {
			t.Fatal(e)
		}
		if again := dirty.decode(&decoder{b: data}); (again == nil) != (err == nil) {
			t.Fatalf("%s: fresh %v, into used memory %v", k.name, err, again)
		}
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("%s: error %v is not INVALID", k.name, err)
			}
			return
		}
		for _, m := range []codec{fresh, dirty} {
			out := encoded(t, m)
			if lossy(m) { // NaNs become quiet ones, a scale is rounded: as long, and read again
				if err := k.empty().decode(&decoder{b: out}); err != nil || len(out) != len(data) {
					t.Fatalf("%s: decoded %x, encodes to %x: %v", k.name, data, out, err)
				}
			} else if !bytes.Equal(out, data) {
				t.Fatalf("%s: decoded %x, encodes to %x", k.name, data, out)
			}
		}
	})
}

func lossy(m codec) bool {
	switch m := m.(type) {
	case *LookupResponse:
		return m.encoding != FP32
	case *ApplyRequest:
		return m.Encoding != FP32
	}
	return false
}

// What arrives differs from what was sent by no more than the encoding promises.
func TestEncodingsKeepTheirBounds(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	rows := []float32{0.1, -0.7, 3.25, 0, 1e-3, -1e-3, 0, 2e-3, 0, 0, 0, 0, 1, nan, 2, 3, inf, 0, 0, 0, 1e-45, 0, 0, 0, 65000, -3e4, 1, 0}
	const dim = 4
	for c, within := range map[Encoding]func(sent, got float32, row []float32) bool{
		FP32: func(sent, got float32, _ []float32) bool { return math.Float32bits(sent) == math.Float32bits(got) },
		FP16: func(sent, got float32, _ []float32) bool {
			if sent-sent != 0 {
				return (sent != sent) == (got != got) && (sent != sent || sent == got)
			}
			return math.Abs(float64(sent-got)) <= math.Abs(float64(sent))*0x1p-11+0x1p-25
		},
		Int8: func(sent, got float32, row []float32) bool {
			var most float64
			for _, x := range row {
				if x-x != 0 {
					return got != got
				}
				most = max(most, math.Abs(float64(x)))
			}
			return math.Abs(float64(sent-got)) <= most/127/2*1.000001+1e-43
		},
	} {
		n := len(rows) / dim
		var e encoder
		(&LookupResponse{Values: [][]float32{rows}, encoding: c, counts: []int{n}}).encode(&e)
		if e.err != nil {
			t.Fatal(e.err)
		}
		var r LookupResponse
		if err := r.decode(&decoder{b: e.b}); err != nil || len(r.Values) != 1 || len(r.Values[0]) != len(rows) {
			t.Fatalf("encoding %d: %v, %v", c, r.Values, err)
		}
		for i, got := range r.Values[0] {
			if row := rows[i/dim*dim : i/dim*dim+dim]; !within(rows[i], got, row) {
				t.Errorf("encoding %d: %g arrived as %g in row %v", c, rows[i], got, row)
			}
		}
	}
}

// FuzzReadFrame feeds any bytes as a stream of frames: what is read must be what was
// there, and a length alone must not cost memory.
func FuzzReadFrame(f *testing.F) {
	b, err := frame(opLookup, 7, 100, &LookupRequest{Model: "m"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(*b)
	f.Add(append(bytes.Clone(*b), *b...))
	f.Add([]byte{0xff, 0xff, 0xff, 0x00, 1})
	f.Add([]byte{8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		at := 0
		for {
			op, id, buf, payload, err := readFrame(r)
			if err != nil {
				break
			}
			head := data[at:]
			if op != head[4] || id != le.Uint64(head[5:]) || !bytes.Equal(payload, head[headLen:headLen+len(payload)]) || int(le.Uint32(head))+4 != headLen+len(payload) {
				t.Fatalf("frame at %d was read as op %d, id %d, %d bytes", at, op, id, len(payload))
			}
			at += headLen + len(payload)
			giveBack(buf)
		}
		if at+headLen <= len(data) {
			n := int(le.Uint32(data[at:]))
			if n >= headLen-4 && n <= MaxFrame && at+4+n <= len(data) {
				t.Fatalf("a whole frame at %d was not read", at)
			}
		}
	})
}
