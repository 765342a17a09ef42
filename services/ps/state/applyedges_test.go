package state

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

const (
	job = pstest.Job
	day = 86400
)

// standing is a shard's state, fresh and answering, without a process around it.
func standing(t *testing.T, cfg Config, change ...func(*model.ModelSpec)) *Shard {
	t.Helper()
	cfg.Job = job
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	cfg.ClockStep = cmp.Or(cfg.ClockStep, 24*time.Hour)
	spec := pstest.Counting()
	for _, f := range change {
		f(spec)
	}
	f, err := newSchema(cfg, spec)
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(f)
	s.tables, s.dense, s.parts, s.expiry = map[string]*table.Table{}, map[bandID]*variable{}, map[int32]*partition{}, map[string]*expiry{}
	s.gone = map[string]map[int64]struct{}{}
	for name := range f.dims {
		c, err := modelspec.TableConfig(spec, name, false)
		if err != nil {
			t.Fatal(err)
		}
		c.Track = true
		if s.tables[name], err = table.New(c); err != nil {
			t.Fatal(err)
		}
	}
	for id, v := range f.bands {
		s.dense[id] = &variable{values: make([]float32, v.Size), slots: make([]float32, f.optimizers[id.name].SlotSize(v.Size))}
	}
	s.Resume(1, 0)
	return s
}

func (s *Shard) rangeOf(from, to int64, change ...func(*rowwire.ApplyRequest)) *rowwire.ApplyRequest {
	r := &rowwire.ApplyRequest{Job: s.job, Epoch: 1, From: from, To: to, RecordUnix: 1000, Tables: []rowwire.TableGrads{{Table: "user", IDs: []int64{1}, Grads: []float32{1, 2}}}}
	for _, f := range change {
		f(r)
	}
	return r
}

// What an apply may not say, each at its edge; what is refused changes nothing.
func TestAppliesAtTheirBounds(t *testing.T) {
	s := standing(t, Config{})
	name, size := s.bandIDs[0].name, s.bands[s.bandIDs[0]].Size
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
		_, err := s.Apply(t.Context(), s.rangeOf(0, 1, tc.change), "")
		if rowwire.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %v", what, err, tc.code)
		}
		if changed := s.step != 0 || len(s.ranges) != 0 || s.tables["user"].Len() != 0 && tc.code != 0; changed != (tc.code == 0) {
			t.Errorf("%s: step %d, ranges %v", what, s.step, s.ranges)
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
			s.ranges = join(s.ranges, proto.Clone(x).(*delta.Range))
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
	if _, err := s.Apply(t.Context(), s.rangeOf(0, 1, partition(5)), ""); rowwire.CodeOf(err) != rowwire.Invalid {
		t.Errorf("a partition too many: %v", err)
	}
	if _, err := s.Apply(t.Context(), s.rangeOf(0, 1, partition(11)), ""); err != nil {
		t.Errorf("a partition that is known: %v", err)
	}
	delete(s.parts, 10)
	if _, err := s.Apply(t.Context(), s.rangeOf(0, 1, partition(5)), ""); err != nil {
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
		_, err := s.Apply(ctx, s.rangeOf(from, from+1, func(r *rowwire.ApplyRequest) { r.Turn, r.Generation = tc.turn, tc.generation }), "")
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
	if res, err := s.Apply(ctx, s.rangeOf(0, 1, func(r *rowwire.ApplyRequest) { r.Generation = 2 }), ""); err != nil || res.Applied || res.Next != 1 {
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
		s  *Shard
		r  shardcmd.AssignRequest
		ok bool
	}{
		"the longest id":   {s, pstest.Set(strings.Repeat("x", 256), []int64{1}, 1, 2), true},
		"a longer one":     {s, pstest.Set(strings.Repeat("x", 257), []int64{1}, 1, 2), false},
		"the most rows":    {s, pstest.Set("r", ids(maxAssigned), make([]float32, 2*maxAssigned)...), true},
		"a row too many":   {s, pstest.Set("r", ids(maxAssigned+1), make([]float32, 2*maxAssigned+2)...), false},
		"the most values":  {wide, pstest.Set("r", ids(publish.MaxAssigned/4/4096), make([]float32, publish.MaxAssigned/4)...), true},
		"values too many":  {wide, pstest.Set("r", ids(publish.MaxAssigned/4/4096+1), make([]float32, publish.MaxAssigned/4+4096)...), false},
		"a value less":     {s, pstest.Set("r", []int64{1}, 1), false},
		"a value more":     {s, pstest.Set("r", []int64{1}, 1, 2, 3), false},
		"the greatest":     {s, pstest.Set("r", []int64{1}, most, -most), true},
		"beyond it":        {s, pstest.Set("r", []int64{1}, 0, math.Nextafter32(most, math.MaxFloat32)), false},
		"no number":        {s, pstest.Set("r", []int64{1}, 0, float32(math.NaN())), false},
		"the reserved row": {s, pstest.Set("r", []int64{table.NoID}, 1, 2), false},
	} {
		if err := tc.s.CheckAssign(tc.r); (err == nil) != tc.ok || err != nil && pstest.Code(err) != "INVALID" {
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
		r := &delta.Rows{Table: "user", Dim: 2, Ids: []uint64{7}, Values: publish.Floats([]float32{3, 4})}
		change(r)
		first := &delta.Rows{Table: "movie", Dim: 3, Ids: []uint64{8}, Values: publish.Floats([]float32{1, 1, 1})}
		return &delta.Delta{Rows: []*delta.Rows{first, r}, Assigned: &delta.Assigned{RequestId: "a", UnixSec: math.MaxUint32 + 5}}
	}
	for name, change := range map[string]func(*delta.Rows){
		"an unknown table": func(r *delta.Rows) { r.Table = "x" }, "another dim": func(r *delta.Rows) { r.Dim = 3 },
		"halves": func(r *delta.Rows) { r.Encoding = delta.Encoding_FP16 }, "a byte less": func(r *delta.Rows) { r.Values = r.Values[1:] },
		"a row less": func(r *delta.Rows) { r.Ids = nil }, "infinite": func(r *delta.Rows) { r.Values = publish.Floats([]float32{1, float32(math.Inf(1))}) },
		"no number": func(r *delta.Rows) { r.Values = publish.Floats([]float32{float32(math.NaN()), 1}) }, "the reserved id": func(r *delta.Rows) { no := int64(table.NoID); r.Ids = []uint64{uint64(no)} },
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

// What a table refuses is refused, whoever should have seen it before.
func TestRowsThatATableRefuses(t *testing.T) {
	s := standing(t, Config{})
	for _, tc := range []struct {
		values []float32
		add    bool
		ok     bool
	}{{[]float32{1, 2}, false, true}, {[]float32{1, 2}, true, true}, {[]float32{1, float32(math.NaN())}, false, false}, {[]float32{0, 2 * table.MaxGradient}, true, false}, {[]float32{1}, false, false}} {
		if err := s.set("user", []int64{4}, tc.values, 1, tc.add); (err == nil) != tc.ok {
			t.Errorf("%v, added %v: %v", tc.values, tc.add, err)
		}
	}
	if row, ok := s.tables["user"].LookupEntries([]int64{4}); !ok[0] || !slices.Equal(row[0].Values, []float32{2, 4}) {
		t.Errorf("the row is %v", row)
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

// The requests that are remembered are bounded, and so is a manifest that names them.
func TestRememberedRequestsAreBounded(t *testing.T) {
	var r requests
	for i := range 3 * keptRequests {
		r.add(fmt.Sprint(i))
	}
	if len(r.order) != keptRequests || len(r.known) != keptRequests || r.has("0") || !r.has(fmt.Sprint(3*keptRequests-1)) {
		t.Errorf("%d of %d requests are kept", len(r.order), keptRequests)
	}
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: job, Shards: 1}}
	for i := range keptRequests { // the ugliest: six bytes of JSON each
		s.Manifest.Assigned = append(s.Manifest.Assigned, fmt.Sprint(i)+strings.Repeat("\x01", 250))
	}
	dir := filepath.Join(t.TempDir(), "ps_0")
	if _, err := checkpoint.WriteShard(dir, s); err != nil {
		t.Fatal(err)
	}
	if got, err := checkpoint.ReadShard(dir); err != nil || len(got.Manifest.Assigned) != keptRequests {
		t.Errorf("a manifest of the longest ids: %v", err)
	}
}
