package rows

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
)

func newPS(t testing.TB) *Shard {
	m := &Shard{Model: "m", Shards: 1}
	for _, name := range []string{"user", "movie"} {
		if err := m.Declare(nil, name, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Whole(); err != nil {
		t.Fatal(err)
	}
	return m
}

// count is how many rows a table of m has.
func count(m *Shard, name string) int {
	all, _, err := m.tables[name].Rows(table.NoID, 1<<20)
	if err != nil {
		return -1
	}
	return len(all)
}

// Halves in deltas against the definition, over every bit pattern.
func TestHalves(t *testing.T) {
	var all []byte
	for h := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(h))
	}
	decoded := make([]float32, 1<<16)
	decode(decoded, all, delta.Encoding_FP16, 0)
	for h := range 1 << 16 {
		sign, exp, frac := float64(1), h>>10&0x1f, float64(h&0x3ff)
		if h>>15 == 1 {
			sign = -1
		}
		want := sign * math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = sign * math.Ldexp(frac/1024, -14)
		case exp == 31 && frac == 0:
			want = math.Inf(int(sign))
		case exp == 31:
			want = math.NaN()
		}
		got := float64(decoded[h])
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != math.Signbit(want) && !math.IsNaN(want) {
			t.Fatalf("%#04x is %v, want %v", h, got, want)
		}
	}
}

// Rows that contradict themselves change nothing of their table, and keep no other's.
func TestRowsThatContradictThemselves(t *testing.T) {
	good := &delta.Rows{Table: "movie", Dim: 2, Ids: []uint64{9}, Values: floatBytes(1, 2)}
	nan := float32(math.NaN())
	for name, tc := range map[string]struct {
		bad  *delta.Rows
		want string // of the error; none: it is applied
	}{
		"an unknown table": {&delta.Rows{Table: "shop", Dim: 2, Ids: []uint64{1}, Values: floatBytes(1, 2)}, "is not in the export"},
		"another dim":      {&delta.Rows{Table: "user", Dim: 1, Ids: []uint64{1}, Values: floatBytes(1)}, "rows have dim 1"},
		"another encoding": {&delta.Rows{Table: "user", Dim: 2, Encoding: 9, Ids: []uint64{1}, Values: floatBytes(1, 2)}, "unknown encoding 9"},
		"too few bytes":    {&delta.Rows{Table: "user", Dim: 2, Ids: []uint64{1, 2}, Values: floatBytes(1, 2)}, "2 rows of dim 2 came with 8 bytes"},
		"too many bytes":   {&delta.Rows{Table: "user", Dim: 2, Ids: []uint64{1}, Values: floatBytes(1, 2, 3)}, "came with 12 bytes"},
		"not finite":       {&delta.Rows{Table: "user", Dim: 2, Ids: []uint64{4, 5, 6}, Values: floatBytes(1, nan, nan, 1, 3, 4)}, ""},
	} {
		m := newPS(t)
		told := ""
		if name == "not finite" {
			m.Unfit = func(table string, rows int, id int64) { told = fmt.Sprintf("%s %d %d", table, rows, id) }
		} else {
			m.Unfit = func(string, int, int64) { t.Errorf("%s: told of rows that are not finite", name) }
		}
		err := m.Apply(&delta.Delta{Step: 4, Rows: []*delta.Rows{tc.bad, good}}, 7, 1)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		users, movies := count(m, "user"), count(m, "movie")
		if movies != 1 || m.step.Load() != 4 || name == "not finite" && (users != 1 || told != "user 2 4") || name != "not finite" && users != 0 {
			t.Errorf("%s: %d users, %d movies, step %d, told %q", name, users, movies, m.step.Load(), told)
		}
		m.Unfit = nil // nobody to tell
		if err := m.Apply(&delta.Delta{Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{4}, Values: floatBytes(nan, 1)}}}, 8, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of several that do not fit, the first is named.
func TestTheFirstOfManyRowsThatDoNotFitIsNamed(t *testing.T) {
	d := &delta.Delta{Rows: []*delta.Rows{
		{Table: "movie", Dim: 2, Ids: []uint64{9}, Values: floatBytes(1, 2)},
		{Table: "first", Dim: 2}, {Table: "second", Dim: 2},
		{Table: "user", Dim: 2, Ids: []uint64{9}, Values: floatBytes(1, 2)},
	}}
	if err := newPS(t).Apply(d, 7, 1); err == nil || !strings.Contains(err.Error(), `"first"`) {
		t.Errorf("%v", err)
	}
}

func floatBytes(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		u := math.Float32bits(x)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

func TestLookupsOfAShardAreBounded(t *testing.T) {
	m := newPS(t)
	if err := m.Apply(&delta.Delta{Step: 8, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1, 2, 3}, Values: make([]byte, 24)}}}, 77, 5); err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{maxFloats / 2: true, maxFloats/2 + 1: false} {
		err := m.lookup(&rowwire.LookupRequest{Tables: []rowwire.TableIDs{{Table: "user", IDs: make([]int64, n)}}}, new(rowwire.LookupResponse))
		if (err == nil) != ok {
			t.Errorf("%d rows at once: %v", n, err)
		}
	}
	for limit, want := range map[uint32]int{0: 3, 1: 1, 2: 2, 3: 3, 4: 3} {
		res, err := m.scan(&rowwire.ScanRequest{Table: "user", After: math.MinInt64, Limit: limit})
		if err != nil || len(res.IDs) != want || res.More != (want < 3) || len(res.Values) != 2*want || res.Seqs[0] != 77 || res.UnixSec[0] != 5 {
			t.Errorf("a scan of %d rows: %+v, %v", limit, res, err)
		}
	}
	var ids []uint64
	for id := range uint64(maxScan + 1) {
		ids = append(ids, id)
	}
	if err := m.Apply(&delta.Delta{Rows: []*delta.Rows{{Table: "movie", Dim: 2, Ids: ids, Values: make([]byte, 8*len(ids))}}}, 78, 5); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint32{0, maxScan, maxScan + 1} {
		if res, err := m.scan(&rowwire.ScanRequest{Table: "movie", After: math.MinInt64, Limit: limit}); err != nil || len(res.IDs) != maxScan || !res.More {
			t.Errorf("a scan of %d rows: %d, %v", limit, len(res.IDs), err)
		}
	}
}
