package ps

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/internal/cutproto"
	"github.com/monolith-go/monolith/services/internal/owner"
)

// standing is a shard's state, fresh and answering, without a process around it.
func standing(t *testing.T, cfg Config, change ...func(*model.ModelSpec)) *state {
	t.Helper()
	cfg.Job = job
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	spec := counting()
	for _, f := range change {
		f(spec)
	}
	f, err := newSchema(cfg, spec)
	if err != nil {
		t.Fatal(err)
	}
	s := newState(f)
	s.tables, s.dense, s.parts, s.expiry = map[string]*table.Table{}, map[string]*variable{}, map[int32]*partition{}, map[string]*expiry{}
	s.touched = map[string]map[int64]reach{}
	for name := range f.dims {
		if s.tables[name], err = modelspec.NewTable(spec, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range f.variables {
		s.dense[name] = &variable{values: make([]float32, v.Size), slots: make([]float32, f.optimizer.SlotSize(v.Size))}
	}
	s.resume(1, 0)
	return s
}

func (s *state) rangeOf(from, to int64, change ...func(*rowwire.ApplyRequest)) *rowwire.ApplyRequest {
	r := &rowwire.ApplyRequest{Job: s.job, Epoch: 1, From: from, To: to, RecordUnix: 1000, Tables: []rowwire.TableGrads{{Table: "user", IDs: []int64{1}, Grads: []float32{1, 2}}}}
	for _, f := range change {
		f(r)
	}
	return r
}

// What an apply may not say, each at its edge; what is refused changes nothing.
func TestAppliesAtTheirBounds(t *testing.T) {
	s := standing(t, Config{})
	name := s.names[0]
	size := s.variables[name].Size
	grads := func(x ...float32) func(*rowwire.ApplyRequest) {
		return func(r *rowwire.ApplyRequest) { r.Tables[0].Grads = x }
	}
	dense := func(values []float32, names ...string) func(*rowwire.ApplyRequest) {
		return func(r *rowwire.ApplyRequest) {
			for _, n := range names {
				r.Dense = append(r.Dense, rowwire.NamedTensor{Name: n, Values: values})
			}
		}
	}
	const most = table.MaxGradient
	above := math.Nextafter32(most, math.MaxFloat32)
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	fill := func(x float32) []float32 { return slices.Repeat([]float32{x}, size) }
	for what, tc := range map[string]struct {
		change func(*rowwire.ApplyRequest)
		code   rowwire.Code
	}{
		"an ordinary one":       {func(*rowwire.ApplyRequest) {}, 0},
		"another job":           {func(r *rowwire.ApplyRequest) { r.Job = "x" }, rowwire.NotFound},
		"another shard":         {func(r *rowwire.ApplyRequest) { r.Shard = 1 }, rowwire.NotFound},
		"a partition below 0":   {func(r *rowwire.ApplyRequest) { r.Partition = -1 }, rowwire.Invalid},
		"an offset below 0":     {func(r *rowwire.ApplyRequest) { r.From = -1 }, rowwire.Invalid},
		"no offsets":            {func(r *rowwire.ApplyRequest) { r.To = r.From }, rowwire.Invalid},
		"offsets reversed":      {func(r *rowwire.ApplyRequest) { r.From = 5; r.To = 4 }, rowwire.Invalid},
		"the first second":      {func(r *rowwire.ApplyRequest) { r.RecordUnix = 0 }, 0},
		"the last second":       {func(r *rowwire.ApplyRequest) { r.RecordUnix = math.MaxUint32 }, 0},
		"beyond 32 bits":        {func(r *rowwire.ApplyRequest) { r.RecordUnix = math.MaxUint32 + 1 }, rowwire.Invalid},
		"before the first":      {func(r *rowwire.ApplyRequest) { r.RecordUnix = -1 }, rowwire.Invalid},
		"a table twice":         {func(r *rowwire.ApplyRequest) { r.Tables = append(r.Tables, r.Tables[0]) }, rowwire.Invalid},
		"an unknown table":      {func(r *rowwire.ApplyRequest) { r.Tables[0].Table = "x" }, rowwire.NotFound},
		"a number less":         {grads(1), rowwire.Invalid},
		"a number more":         {grads(1, 2, 3), rowwire.Invalid},
		"the reserved id":       {func(r *rowwire.ApplyRequest) { r.Tables[0].IDs = []int64{table.NoID} }, rowwire.Invalid},
		"the greatest":          {grads(most, -most), 0},
		"beyond the greatest":   {grads(1, above), rowwire.Invalid},
		"beyond the least":      {grads(-above, 1), rowwire.Invalid},
		"no number":             {grads(1, nan), rowwire.Invalid},
		"infinite":              {grads(inf, 1), rowwire.Invalid},
		"half twice":            {func(r *rowwire.ApplyRequest) { r.Tables[0].IDs = []int64{1, 1}; grads(most/2, 0, most/2, 0)(r) }, 0},
		"a sum beyond":          {func(r *rowwire.ApplyRequest) { r.Tables[0].IDs = []int64{1, 1}; grads(most, 0, most/2, 0)(r) }, rowwire.Invalid},
		"large of two ids":      {func(r *rowwire.ApplyRequest) { r.Tables[0].IDs = []int64{1, 2}; grads(most, 0, most, 0)(r) }, 0},
		"a variable":            {dense(fill(1), name), 0},
		"a variable twice":      {dense(fill(1), name, name), rowwire.Invalid},
		"an unknown variable":   {dense(fill(1), "x"), rowwire.NotFound},
		"another size":          {dense(append(fill(1), 1), name), rowwire.Invalid},
		"variable, greatest":    {dense(fill(-most), name), 0},
		"variable, beyond":      {dense(fill(-above), name), rowwire.Invalid},
		"variable, no number":   {dense(fill(nan), name), rowwire.Invalid},
		"a table of no rows":    {func(r *rowwire.ApplyRequest) { r.Tables[0].IDs = nil; grads()(r) }, 0},
		"another's generation":  {func(r *rowwire.ApplyRequest) { r.Generation = 9 }, 0}, // only deterministic jobs have some
		"turns of no sequences": {func(r *rowwire.ApplyRequest) { r.Turn = 1 << 40 }, 0}, // nor these
	} {
		s := standing(t, Config{})
		_, err := s.apply(t.Context(), s.rangeOf(0, 1, tc.change), "")
		if rowwire.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %v", what, err, tc.code)
		}
		if changed := s.step != 0 || len(s.ranges) != 0 || s.tables["user"].Len() != 0 && tc.code != 0; changed != (tc.code == 0) {
			t.Errorf("%s: step %d, ranges %v", what, s.step, s.ranges)
		}
	}
}

func TestLargest(t *testing.T) {
	nan := float32(math.NaN())
	for _, tc := range []struct {
		v    []float32
		want float32
	}{{nil, 0}, {[]float32{0}, 0}, {[]float32{1, -3, 2}, 3}, {[]float32{-1, 3, 2}, 3}, {[]float32{1, float32(math.Inf(-1))}, float32(math.Inf(1))}} {
		if got := largest(tc.v); got != tc.want {
			t.Errorf("the largest of %v is %v", tc.v, got)
		}
	}
	for _, v := range [][]float32{{nan}, {1, nan}, {nan, 1}, {1, nan, 5}} {
		if got := largest(v); got == got {
			t.Errorf("the largest of %v is %v", v, got)
		}
	}
}

// Ranges of one partition are one as long as nothing stands between them.
func TestRangesThatAreJoined(t *testing.T) {
	r := func(p int32, from, to int64, epoch uint64) *delta.Range {
		return &delta.Range{Partition: p, From: from, To: to, Epoch: epoch}
	}
	for name, tc := range map[string]struct{ give, want []*delta.Range }{
		"next to each other":    {[]*delta.Range{r(0, 0, 2, 1), r(0, 2, 5, 1)}, []*delta.Range{r(0, 0, 5, 1)}},
		"another's between":     {[]*delta.Range{r(0, 0, 2, 1), r(1, 7, 8, 1), r(0, 2, 5, 1)}, []*delta.Range{r(0, 0, 5, 1), r(1, 7, 8, 1)}},
		"a gap":                 {[]*delta.Range{r(0, 0, 2, 1), r(0, 3, 5, 1)}, []*delta.Range{r(0, 0, 2, 1), r(0, 3, 5, 1)}},
		"another holder":        {[]*delta.Range{r(0, 0, 2, 1), r(0, 2, 5, 2)}, []*delta.Range{r(0, 0, 2, 1), r(0, 2, 5, 2)}},
		"behind the newer only": {[]*delta.Range{r(0, 0, 2, 1), r(0, 4, 5, 2), r(0, 2, 3, 1)}, []*delta.Range{r(0, 0, 2, 1), r(0, 4, 5, 2), r(0, 2, 3, 1)}},
	} {
		s := standing(t, Config{})
		for _, x := range tc.give {
			s.pend(proto.Clone(x).(*delta.Range))
		}
		if !slices.EqualFunc(s.ranges, tc.want, func(a, b *delta.Range) bool { return proto.Equal(a, b) }) {
			t.Errorf("%s: %v, want %v", name, s.ranges, tc.want)
		}
	}
}

func TestPartitionsAreBounded(t *testing.T) {
	s := standing(t, Config{})
	for p := range int32(rowwire.MaxOffsets) {
		s.parts[p+10] = &partition{}
	}
	partition := func(p int32) func(*rowwire.ApplyRequest) {
		return func(r *rowwire.ApplyRequest) { r.Partition = p }
	}
	if _, err := s.apply(t.Context(), s.rangeOf(0, 1, partition(5)), ""); rowwire.CodeOf(err) != rowwire.Invalid {
		t.Errorf("a partition too many: %v", err)
	}
	if _, err := s.apply(t.Context(), s.rangeOf(0, 1, partition(11)), ""); err != nil {
		t.Errorf("a partition that is known: %v", err)
	}
	delete(s.parts, 10)
	if _, err := s.apply(t.Context(), s.rangeOf(0, 1, partition(5)), ""); err != nil {
		t.Errorf("the last partition: %v", err)
	}
}

// Turns are learnt one by one in their generation alone.
func TestTurnsAtTheirBounds(t *testing.T) {
	s := standing(t, Config{Deterministic: true})
	s.turn, s.generation = 5, 2
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		turn, generation uint64
		code             rowwire.Code
		next             int64
	}{{5, 1, rowwire.WrongGeneration, 2}, {5, 3, rowwire.WrongGeneration, 2}, {4, 2, rowwire.Overlap, 5}, {6, 2, rowwire.Unavailable, 0}, {5, 2, 0, 0}, {5, 2, rowwire.Overlap, 6}} {
		from := int64(s.step)
		_, err := s.apply(ctx, s.rangeOf(from, from+1, func(r *rowwire.ApplyRequest) { r.Turn, r.Generation = tc.turn, tc.generation }), "")
		if rowwire.CodeOf(err) != tc.code {
			t.Errorf("turn %d of generation %d: %v, want %v", tc.turn, tc.generation, err, tc.code)
		}
		if e, ok := err.(*rowwire.Error); ok && e.Next != tc.next {
			t.Errorf("turn %d of generation %d: next is %d, want %d", tc.turn, tc.generation, e.Next, tc.next)
		}
	}
	if s.turn != 6 || s.step != 1 {
		t.Errorf("turn %d, step %d", s.turn, s.step)
	}
	// A range that is known is known in whatever turn it comes.
	if res, err := s.apply(ctx, s.rangeOf(0, 1, func(r *rowwire.ApplyRequest) { r.Generation = 2 }), ""); err != nil || res.Applied || res.Next != 1 {
		t.Errorf("once more: %+v, %v", res, err)
	}
}

func TestAssignmentsAtTheirBounds(t *testing.T) {
	s := standing(t, Config{})
	ids := func(n int) []int64 {
		v := make([]int64, n)
		for i := range v {
			v[i] = int64(i)
		}
		return v
	}
	const most = table.MaxGradient
	wide := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Dim = 4096 })
	for name, tc := range map[string]struct {
		s  *state
		r  cutproto.AssignRequest
		ok bool
	}{
		"the longest id":   {s, set(strings.Repeat("x", 256), []int64{1}, 1, 2), true},
		"a longer one":     {s, set(strings.Repeat("x", 257), []int64{1}, 1, 2), false},
		"the most rows":    {s, set("r", ids(maxAssigned), make([]float32, 2*maxAssigned)...), true},
		"a row too many":   {s, set("r", ids(maxAssigned+1), make([]float32, 2*maxAssigned+2)...), false},
		"the most values":  {wide, set("r", ids(chunkBytes/8/4096), make([]float32, chunkBytes/8)...), true},
		"values too many":  {wide, set("r", ids(chunkBytes/8/4096+1), make([]float32, chunkBytes/8+4096)...), false},
		"a value less":     {s, set("r", []int64{1}, 1), false},
		"a value more":     {s, set("r", []int64{1}, 1, 2, 3), false},
		"the greatest":     {s, set("r", []int64{1}, most, -most), true},
		"beyond it":        {s, set("r", []int64{1}, 0, math.Nextafter32(most, math.MaxFloat32)), false},
		"no number":        {s, set("r", []int64{1}, 0, float32(math.NaN())), false},
		"the reserved row": {s, set("r", []int64{table.NoID}, 1, 2), false},
	} {
		if err := tc.s.checkAssign(tc.r); (err == nil) != tc.ok || err != nil && refusalCode(err) != "INVALID" {
			t.Errorf("%s: %v", name, err)
		}
	}
	two := standing(t, Config{Shards: 2})
	for id := range int64(10) {
		if err := two.checkIDs("user", []int64{id}); (err == nil) != (modelspec.ShardOf(id, 2) == 0) {
			t.Errorf("id %d on shard 0 of 2: %v", id, err)
		}
	}
}

// An assignment from the stream is set again whole, or not at all.
func TestAssignmentsFromTheStream(t *testing.T) {
	row := func(change func(*delta.Rows)) *delta.Delta {
		r := &delta.Rows{Table: "user", Dim: 2, Ids: []uint64{7}, Values: floats([]float32{3, 4})}
		change(r)
		first := &delta.Rows{Table: "movie", Dim: 3, Ids: []uint64{8}, Values: floats([]float32{1, 1, 1})}
		return &delta.Delta{Rows: []*delta.Rows{first, r}, Assigned: &delta.Assigned{RequestId: "a", UnixSec: math.MaxUint32 + 5}}
	}
	for name, change := range map[string]func(*delta.Rows){
		"an unknown table": func(r *delta.Rows) { r.Table = "x" }, "another dim": func(r *delta.Rows) { r.Dim = 3 },
		"halves": func(r *delta.Rows) { r.Encoding = delta.Encoding_FP16 }, "a byte less": func(r *delta.Rows) { r.Values = r.Values[1:] },
		"a row less": func(r *delta.Rows) { r.Ids = nil }, "infinite": func(r *delta.Rows) { r.Values = floats([]float32{1, float32(math.Inf(1))}) },
		"no number": func(r *delta.Rows) { r.Values = floats([]float32{float32(math.NaN()), 1}) }, "the reserved id": func(r *delta.Rows) { no := int64(table.NoID); r.Ids = []uint64{uint64(no)} },
	} {
		s := standing(t, Config{})
		if err := s.assignAgain(row(change)); err == nil || s.tables["movie"].Len() != 0 || s.tables["user"].Len() != 0 || s.assigned.has("a") {
			t.Errorf("%s: %v, %d and %d rows", name, err, s.tables["movie"].Len(), s.tables["user"].Len())
		}
	}
	for unix, want := range map[int64]uint32{math.MaxUint32 + 5: math.MaxUint32, math.MaxUint32: math.MaxUint32, -5: 0, 9: 9} {
		s := standing(t, Config{})
		d := row(func(*delta.Rows) {})
		d.Assigned.UnixSec = unix
		if err := s.assignAgain(d); err != nil || !s.assigned.has("a") {
			t.Fatal(err)
		}
		rows, ok := s.tables["user"].LookupEntries([]int64{7})
		if !ok[0] || !slices.Equal(rows[0].Values, []float32{3, 4}) || rows[0].UnixSec != want {
			t.Errorf("set at %d: %+v, want %d", unix, rows, want)
		}
	}
	s := standing(t, Config{})
	if err := s.assignAgain(&delta.Delta{Rows: []*delta.Rows{{Table: "x"}}}); err != nil {
		t.Errorf("rows that were learnt: %v", err)
	}
}

// The latest requests are remembered, each once.
func TestRequestsAreRememberedOnce(t *testing.T) {
	var r requests
	name := func(i int) string { return strings.Repeat("x", i+1) }
	for i := range keptRequests {
		r.add(name(i))
		r.add(name(i))
	}
	if len(r.order) != keptRequests || !r.has(name(0)) {
		t.Errorf("%d are remembered", len(r.order))
	}
	r.add("another")
	if len(r.order) != keptRequests || len(r.known) != keptRequests || r.has(name(0)) || !r.has(name(1)) || !r.has("another") {
		t.Errorf("%d are remembered, and %d known", len(r.order), len(r.known))
	}
}

// A table's clock goes on by a bounded step, and is what rows set by hand get.
func TestClocksOfTables(t *testing.T) {
	s := standing(t, Config{ClockStep: 100 * time.Second}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
	s.expiry["user"] = &expiry{}
	now := time.Unix(777, 0)
	if got := s.assignTime("user", now); got != 777 {
		t.Errorf("before any record rows are set at %d", got)
	}
	for _, tc := range []struct{ clock, record, want uint32 }{{0, 5000, 5000}, {1000, 1000, 1000}, {1000, 999, 999}, {1000, 1001, 1001}, {1000, 1100, 1100}, {1000, 1101, 1100}, {1000, math.MaxUint32, 1100}} {
		s.expiry["user"].clock = tc.clock
		if got := s.recordTime("user", tc.record); got != tc.want {
			t.Errorf("a record of %d at %d counts as of %d, want %d", tc.record, tc.clock, got, tc.want)
		}
	}
	if got := s.recordTime("movie", 9999); got != 9999 {
		t.Errorf("a table whose rows stay: %d", got)
	}
	s.expiry["user"].clock = 1
	if got := s.assignTime("user", now); got != 1 {
		t.Errorf("after a record of second 1 rows are set at %d", got)
	}
	if got := s.assignTime("movie", now); got != 777 {
		t.Errorf("in a table whose rows stay: %d", got)
	}
	for _, tc := range []struct{ before, at, want uint32 }{{10, 9, 10}, {10, 10, 10}, {10, 11, 11}} {
		s.expiry["user"].clock = tc.before
		if s.aged("user", tc.at); s.expiry["user"].clock != tc.want {
			t.Errorf("the clock went from %d to %d, want %d", tc.before, s.expiry["user"].clock, tc.want)
		}
	}
}

// A sweep begins once a table's clock has moved on far enough, and never within a cut.
func TestWhenASweepBegins(t *testing.T) {
	const day = 86400
	for name, tc := range map[string]struct {
		change func(*state)
		want   int
	}{
		"in time":              {func(s *state) { s.expiry["user"].swept = s.expiry["user"].clock - sweepEvery }, 3},
		"too early":            {func(s *state) { s.expiry["user"].swept = s.expiry["user"].clock - sweepEvery + 1 }, 0},
		"the clock went back":  {func(s *state) { s.expiry["user"].swept = s.expiry["user"].clock + sweepEvery }, 0},
		"a round is under way": {func(s *state) { e := s.expiry["user"]; e.swept, e.running = e.clock, true }, 3},
		"the shard refuses":    {func(s *state) { s.refuse = rowwire.Errorf(rowwire.Unavailable, "x") }, 0},
		"a cut holds it":       {func(s *state) { s.cuts.now = &cut{} }, 0},
		"a deterministic job":  {func(s *state) { s.schema.deterministic = true }, 0},
	} {
		s := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
		s.expiry["user"] = &expiry{clock: 10 * day}
		if err := s.tables["user"].Assign([]int64{1, 2, 3}, make([]float32, 6), day, 0); err != nil {
			t.Fatal(err)
		}
		tc.change(s)
		if got := s.sweep(); got != tc.want || s.tables["user"].Len() != 3-tc.want {
			t.Errorf("%s: %d rows were removed, want %d", name, got, tc.want)
		}
	}
}

func TestLimitsInWords(t *testing.T) {
	for _, tc := range []struct {
		rows, bytes uint64
		want        string
	}{{5, 0, "max_rows, 5"}, {0, 7, "max_bytes, 7"}, {5, 7, "max_rows, 5, or max_bytes, 7"}} {
		if got := limits(&model.Table{MaxRows: tc.rows, MaxBytes: tc.bytes}); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestFormatsOfSegments(t *testing.T) {
	bits := compress.OneBit{Amplitude: 1}
	for name, tc := range map[string]struct {
		segments []compress.Compressor
		skip     bool
		want     compress.Compressor
		veiled   bool
	}{
		"halves":         {[]compress.Compressor{compress.FP16{}}, false, compress.FP16{}, false},
		"all halves":     {[]compress.Compressor{compress.FP16{}, compress.FP16{}}, false, compress.FP16{}, false},
		"of two kinds":   {[]compress.Compressor{compress.FP16{}, compress.FP32{}}, false, compress.FP32{}, false},
		"bits":           {[]compress.Compressor{bits}, false, bits, true},
		"bits or none":   {[]compress.Compressor{bits}, true, compress.FP32{}, true},
		"halves or none": {[]compress.Compressor{compress.FP16{}}, true, compress.FP16{}, false},
	} {
		var segments []table.Segment
		for _, c := range tc.segments {
			segments = append(segments, table.Segment{Dim: 1, Compressor: c})
		}
		if f, veiled := formatOf(segments, tc.skip); f.Compressor != tc.want || veiled != tc.veiled {
			t.Errorf("%s: %T, veiled %v", name, f.Compressor, veiled)
		}
	}
	halves := format{compress.FP16{}}
	for x, want := range map[float32]compress.Compressor{maxHalf: compress.FP16{}, -maxHalf: compress.FP16{}, maxHalf + 8: compress.FP32{}, -maxHalf - 8: compress.FP32{}} {
		if got := halves.fit([]float32{1, x}); got.Compressor != want {
			t.Errorf("%v travels as %T", x, got.Compressor)
		}
	}
}

// Variables fill chunks up to their bound; one that is larger has its own.
func TestChunksOfVariablesAreFull(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, counting())
	if err != nil {
		t.Fatal(err)
	}
	v := func(n int) *delta.Variable { return &delta.Variable{Name: "abcd", Values: make([]byte, n-4-64)} }
	for name, tc := range map[string]struct {
		dense []*delta.Variable
		want  []int
	}{
		"none":           {nil, nil},
		"exactly full":   {[]*delta.Variable{v(chunkBytes / 2), v(chunkBytes / 2), v(100)}, []int{2, 1}},
		"a byte over":    {[]*delta.Variable{v(chunkBytes / 2), v(chunkBytes/2 + 1), v(100)}, []int{1, 2}},
		"one very large": {[]*delta.Variable{v(100), v(3 * chunkBytes), v(100), v(100)}, []int{1, 1, 2}},
	} {
		h := &dirtyRows{dense: tc.dense}
		var got []int
		ds := h.denseDeltas(f)
		for i, d := range ds {
			got = append(got, len(d.Dense))
			if int(d.Chunk) != i || int(d.Chunks) != len(ds) {
				t.Errorf("%s: chunk %d says %d of %d", name, i, d.Chunk, d.Chunks)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: chunks of %v variables, want %v", name, got, tc.want)
		}
	}
	if ds := (&dirtyRows{}).rowDeltas(f); ds != nil {
		t.Errorf("nothing makes %d deltas", len(ds))
	}
	if ds := (&dirtyRows{ranges: []*delta.Range{{To: 1}}}).rowDeltas(f); len(ds) != 1 || len(ds[0].Ranges) != 1 {
		t.Errorf("a range alone makes %v", ds)
	}
	big := make([]*delta.Delta, 0, 40)
	for range 40 {
		big = append(big, &delta.Delta{Dense: []*delta.Variable{{Values: make([]byte, 512<<10)}}})
	}
	groups, err := drafts("s", "id", "", big)
	if err != nil || len(groups) != 3 {
		t.Fatalf("20 MiB are %d groups, %v", len(groups), err)
	}
	n := 0
	for _, g := range groups {
		for _, d := range g {
			if d.ID != fmt.Sprintf("id.%d", n) {
				t.Errorf("delta %d is called %s", n, d.ID)
			}
			n++
		}
	}
}

func TestConfigAtItsBounds(t *testing.T) {
	good := Config{Job: "j", Model: "m", Dir: "d"}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"most shards":      {func(c *Config) { c.Shards = 1 << 16 }, true},
		"a shard too many": {func(c *Config) { c.Shards = 1<<16 + 1 }, false},
		"shards below 0":   {func(c *Config) { c.Shards = -1 }, false},
		"the last shard":   {func(c *Config) { c.Shards, c.Shard = 3, 2 }, true},
		"beyond it":        {func(c *Config) { c.Shards, c.Shard = 3, 3 }, false},
		"below 0":          {func(c *Config) { c.Shard = -1 }, false},
		"often":            {func(c *Config) { c.SyncInterval = time.Millisecond }, true},
		"too often":        {func(c *Config) { c.SyncInterval = time.Millisecond - 1 }, false},
		"every one":        {func(c *Config) { c.DenseEvery = 1 }, true},
		"a second":         {func(c *Config) { c.ClockStep = time.Second }, true},
		"less":             {func(c *Config) { c.ClockStep = time.Second - 1 }, false},
		"68 years":         {func(c *Config) { c.ClockStep = math.MaxInt32 * time.Second }, true},
		"more":             {func(c *Config) { c.ClockStep = math.MaxInt32*time.Second + 1 }, false},
		"hold below 0":     {func(c *Config) { c.HoldTimeout = -1 }, false},
		"heart below 0":    {func(c *Config) { c.HeartbeatInterval = -1 }, false},
		"drain below 0":    {func(c *Config) { c.Drain = -1 }, false},
		"shortest":         {func(c *Config) { c.HoldTimeout, c.HeartbeatInterval, c.Drain = 1, 1, 1 }, true},
		"everywhere":       {func(c *Config) { c.Listen, c.Insecure = "0.0.0.0:1", true }, false},
		"any host":         {func(c *Config) { c.Listen, c.Insecure = ":1", true }, false},
		"a name":           {func(c *Config) { c.Listen, c.Insecure = "host:1", true }, true},
		"an address":       {func(c *Config) { c.Listen, c.Insecure = "10.0.0.1:1", true }, true},
		"no address":       {func(c *Config) { c.Listen = "nowhere" }, false},
		"gRPC nowhere":     {func(c *Config) { c.GRPC = "nowhere" }, false},
		"gRPC":             {func(c *Config) { c.GRPC = "127.0.0.1:1" }, true},
	} {
		c := good
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A folder is the shard's own however it is spelled.
func TestTheShardsOwnFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(filepath.Dir(dir))
	s := &Server{cfg: Config{Dir: dir}}
	for path, want := range map[string]bool{"": true, dir: true, dir + "/": true, dir + "/../" + filepath.Base(dir): true, filepath.Base(dir): true, filepath.Dir(dir): false, "elsewhere": false, dir + "/x": false} {
		if got := s.sameDir(path); got != want {
			t.Errorf("%q is the shard's folder: %v", path, got)
		}
	}
	s.cfg.Dir = "elsewhere"
	if !s.sameDir(filepath.Join(filepath.Dir(dir), "elsewhere")) {
		t.Error("a relative folder that is not there yet, by its whole path")
	}
}

func TestBarriersAtTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 256)
		for name, tc := range map[string]struct {
			r    cutproto.BarrierRequest
			want string // "": it is over at once
		}{
			"the longest names":   {cutproto.BarrierRequest{ID: long, Worker: long, NumWorkers: 1}, ""},
			"a longer barrier":    {cutproto.BarrierRequest{ID: long + "x", Worker: "a", NumWorkers: 1}, "INVALID"},
			"a longer worker":     {cutproto.BarrierRequest{ID: "b", Worker: long + "x", NumWorkers: 1}, "INVALID"},
			"most workers":        {cutproto.BarrierRequest{ID: "b", Worker: "a", NumWorkers: maxWorkers}, "UNAVAILABLE"},
			"a worker too many":   {cutproto.BarrierRequest{ID: "b", Worker: "a", NumWorkers: maxWorkers + 1}, "INVALID"},
			"workers below 0":     {cutproto.BarrierRequest{ID: "b", Worker: "a", NumWorkers: -1}, "INVALID"},
			"a millisecond":       {cutproto.BarrierRequest{ID: "b", Worker: "a", NumWorkers: 2, TimeoutMS: 1}, "UNAVAILABLE"},
			"longer than it gets": {cutproto.BarrierRequest{ID: "b", Worker: "a", NumWorkers: 2, TimeoutMS: 1 << 40}, "UNAVAILABLE"},
		} {
			var b barriers
			began := time.Now()
			r := <-meet(&b, tc.r)
			if tc.want == "" && r.err != nil || tc.want != "" && refusalCode(r.err) != tc.want {
				t.Errorf("%s: %v", name, r.err)
			}
			want := map[string]time.Duration{"most workers": maxBarrierWait, "a millisecond": time.Millisecond, "longer than it gets": maxBarrierWait}[name]
			if took := time.Since(began); took != want {
				t.Errorf("%s: after %v, want %v", name, took, want)
			}
		}
		var b barriers // a process that has not seen the first rounds
		seventh := at("a", 1)
		seventh.Round = 7
		if r := <-meet(&b, seventh); r.err != nil || r.Round != 7 || len(r.Workers) != 1 {
			t.Errorf("round 7: %+v", r)
		}
		for round, workers := range map[uint64]int{7: 1, 6: 0} { // over: who came is known of the last one
			past := at("a", 1)
			past.Round = round
			if r := <-meet(&b, past); r.err != nil || r.Round != round || len(r.Workers) != workers {
				t.Errorf("round %d: %+v", round, r)
			}
		}
		eighth := at("a", 1)
		eighth.Round = 8
		if r := <-meet(&b, eighth); r.err != nil || r.Round != 8 {
			t.Errorf("round 8: %+v", r)
		}
		tenth := at("a", 1)
		tenth.Round = 10
		if r := <-meet(&b, tenth); r.err != nil || r.Round != 10 {
			t.Errorf("round 10, where nobody waits for the ninth: %+v", r)
		}
	})
}

// A checkpoint's variables must be those of the model, each with its size and slots.
func TestVariablesOfACheckpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(map[string]checkpoint.Variable, string, int)
		ok     bool
	}{
		"the same":       {func(map[string]checkpoint.Variable, string, int) {}, true},
		"one is missing": {func(d map[string]checkpoint.Variable, v string, _ int) { delete(d, v) }, false},
		"another size": {func(d map[string]checkpoint.Variable, v string, n int) {
			d[v] = checkpoint.Variable{Values: make([]float32, n+1)}
		}, false},
		"slots of another": {func(d map[string]checkpoint.Variable, v string, n int) {
			d[v] = checkpoint.Variable{Values: make([]float32, n), Slots: make([]float32, n)}
		}, false},
	} {
		s := standing(t, Config{})
		c := &checkpoint.Shard{Tables: map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{}}
		for name, v := range s.variables {
			c.Dense[name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size)}
		}
		for name, kind := range s.kinds {
			c.Manifest.Tables = append(c.Manifest.Tables, checkpoint.TableInfo{Name: name, Dim: s.dims[name], Opt: kind.dumps})
			c.Tables[name] = nil
		}
		slices.SortFunc(c.Manifest.Tables, func(a, b checkpoint.TableInfo) int { return strings.Compare(a.Name, b.Name) })
		c.Manifest.Format, c.Manifest.Shards = 2, 1
		tc.change(c.Dense, s.names[0], s.variables[s.names[0]].Size)
		if err := s.load(c); (err == nil) != tc.ok || !tc.ok && !errors.Is(err, errOtherModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A chief may hold the same cut again; one that has been followed may hold none.
func TestACutIsHeldAgain(t *testing.T) {
	s := standing(t, Config{})
	defer s.suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
	hold := func(name string, chief uint64) error {
		_, err := s.hold(cutproto.HoldRequest{Cut: name, Chief: chief}, time.Hour)
		return err
	}
	long := strings.Repeat("x", 256)
	for _, tc := range []struct {
		name  string
		chief uint64
		code  string
	}{{"", 3, "INVALID"}, {long + "x", 3, "INVALID"}, {long, 3, ""}, {long, 3, ""}, {"b", 2, "CONFLICT"}, {"b", 3, "CONFLICT"}, {"b", 4, ""}, {"b", 4, ""}, {long, 4, "CONFLICT"}} {
		err := hold(tc.name, tc.chief)
		if tc.code == "" && err != nil || tc.code != "" && refusalCode(err) != tc.code {
			t.Errorf("chief %d holds %.3q…: %v, want %q", tc.chief, tc.name, err, tc.code)
		}
	}
}

func TestWhichTablesExpire(t *testing.T) {
	for name, tc := range map[string]struct {
		expire *model.Expire
		want   bool
	}{
		"none": {nil, false}, "never": {&model.Expire{}, false}, "all": {&model.Expire{Days: 1}, true},
		"one slot":           {&model.Expire{Slots: []*model.SlotDays{{Slot: 1, Days: 1}}}, true},
		"a slot that is not": {&model.Expire{Slots: []*model.SlotDays{{Slot: 1}}}, false},
		"all but one":        {&model.Expire{Days: 1, Slots: []*model.SlotDays{{Slot: 1}}}, true},
	} {
		s := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Expire = tc.expire })
		if got := s.kinds["user"].expires; got != tc.want {
			t.Errorf("%s: rows expire: %v", name, got)
		}
	}
}

// Rows, variables or ranges alone are enough for a publication; what is gone without
// having been published is none.
func TestWhatMakesAPublication(t *testing.T) {
	never, always0 := func(int) bool { return false }, func(int) bool { return true }
	for name, tc := range map[string]struct {
		change func(*state)
		dense  func(int) bool
		want   string // rows, ranges, variables; "": none
	}{
		"nothing":          {func(*state) {}, always0, ""},
		"variables":        {func(s *state) { s.denseTouched = true }, always0, "0 rows, 0 ranges, variables"},
		"variables, later": {func(s *state) { s.denseTouched = true }, never, ""},
		"ranges":           {func(s *state) { s.pend(&delta.Range{To: 1}) }, never, "0 rows, 1 ranges"},
		"a row": {func(s *state) {
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
			s.touch("user", []int64{1}, ifThere)
		}, never, "1 rows, 0 ranges"},
		"a row that is not": {func(s *state) { s.touch("user", []int64{1}, ifThere) }, never, ""},
		"a row that went":   {func(s *state) { s.touch("user", []int64{1}, always) }, never, "1 rows, 0 ranges"},
	} {
		s := standing(t, Config{})
		tc.change(s)
		later := s.denseTouched && !tc.dense(0)
		h := s.collectDirty(tc.dense)
		got := ""
		if h != nil {
			if got = fmt.Sprintf("%d rows, %d ranges", len(h.rows), len(h.ranges)); len(h.dense) > 0 {
				got += ", variables"
			}
		}
		if got != tc.want || s.denseTouched != later || h != nil && h.bad != nil {
			t.Errorf("%s: %q, want %q; variables are left: %v", name, got, tc.want, s.denseTouched)
		}
		if again := s.collectDirty(never); again != nil {
			t.Errorf("%s: published twice", name)
		}
	}
}

// Variables go along with every n-th publication that holds applies, and after a pause.
func TestWhenVariablesAreDue(t *testing.T) {
	p := &publisher{}
	due := p.due(3)
	var got []bool
	for _, applies := range []int{1, 5, 1, 1, 0, 1, 1, 1, 0} {
		got = append(got, due(applies))
	}
	if want := []bool{false, false, true, false, true, false, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("due %v, want %v", got, want)
	}
}

// What a caller can do about an error is its code.
func TestCodesOfRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"a refusal": {fmt.Errorf("x: %w", owner.Refuse(owner.NotFound, "y")), "NOT_FOUND"}, "a newer process": {errFenced, "CONFLICT"}, "another's append": {bus.ErrConflict, "CONFLICT"},
		"no bus": {bus.ErrUnavailable, "UNAVAILABLE"}, "too late": {context.DeadlineExceeded, "UNAVAILABLE"}, "left": {context.Canceled, "UNAVAILABLE"},
		"a shard that starts": {rowwire.Errorf(rowwire.Unavailable, "x"), "UNAVAILABLE"}, "a shard's other refusal": {rowwire.Errorf(rowwire.Invalid, "x"), "INTERNAL"},
		"anything else": {errors.New("x"), "INTERNAL"},
	} {
		if got := refusalCode(refusal(tc.err)); got != tc.code {
			t.Errorf("%s: %s, want %s", name, got, tc.code)
		}
	}
}
