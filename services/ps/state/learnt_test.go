package state

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// loaded is an untrained shard of a model that answers.
func loaded(t *testing.T, cfg Config, spec *model.ModelSpec) *Shard {
	t.Helper()
	cfg.Job, cfg.Shards = job, max(cfg.Shards, 1)
	s, err := New(cfg, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(nil); err != nil {
		t.Fatal(err)
	}
	s.Resume(1, 0)
	return s
}

// A shard remembers the newest holder of a partition that asked, whether it learnt from it or not: whoever
// holds an older lease is fenced from then on. What a fenced one asks changes nothing of that.
func TestTheNewestHolderIsRemembered(t *testing.T) {
	s := standing(t, Config{})
	for i, tc := range []struct {
		epoch    uint64
		from, to int64
		code     rowwire.Code
	}{{5, 0, 1, 0}, {4, 1, 2, rowwire.Fenced}, {4, 1, 2, rowwire.Fenced}, {6, 9, 10, rowwire.Gap}, {5, 1, 2, rowwire.Fenced}, {6, 1, 2, 0}, {7, 0, 1, 0}, {6, 2, 3, rowwire.Fenced}} {
		_, err := s.Apply(t.Context(), s.rangeOf(tc.from, tc.to, func(r *rowwire.ApplyRequest) { r.Epoch = tc.epoch }), "")
		if rowwire.CodeOf(err) != tc.code {
			t.Errorf("%d: epoch %d, %d to %d: %v, want %v", i, tc.epoch, tc.from, tc.to, err, tc.code)
		}
	}
}

// One apply has gradients of several variables, and of several bands of one.
func TestVariablesOfOneApply(t *testing.T) {
	s := loaded(t, Config{}, pstest.Deep())
	r := pstest.Teach(0, 0, 0, 1, 0)
	names := map[string]int{}
	for _, id := range s.bandIDs {
		names[id.name]++
		r.Dense = append(r.Dense, rowwire.NamedTensor{Name: id.name, At: uint32(id.at), Values: slices.Repeat([]float32{1}, s.bands[id].Size)})
	}
	if len(names) < 2 || len(names) == len(r.Dense) {
		t.Fatalf("%d bands of %d variables", len(r.Dense), len(names))
	}
	before := s.copyAll()
	if _, err := s.Apply(t.Context(), r, ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range s.bandIDs {
		was, ok := before.Band(id.name, id.at)
		if !ok || slices.Equal(was.Values, s.dense[id].values) {
			t.Errorf("nothing of %q at %d was learnt", id.name, id.at)
		}
	}
	// A checkpoint has a variable in one piece where the shard holds all of it, and its bands otherwise.
	for _, b := range before.Bands {
		if _, whole := before.Dense[b.Name]; whole || names[b.Name] < 2 {
			t.Errorf("%q stands in bands: %v, and there are %d", b.Name, whole, names[b.Name])
		}
	}
	if len(before.Dense)+len(before.Bands) != len(s.bandIDs) || len(before.Dense) == 0 || len(before.Bands) == 0 {
		t.Errorf("%d variables and %d bands of %d are saved", len(before.Dense), len(before.Bands), len(s.bandIDs))
	}
	for at, band := range map[int]bool{0: false, 8: true} {
		if got := s.noVariable(bandID{"x", at}).Error(); strings.Contains(got, "with a band at") != band {
			t.Errorf("at %d: %s", at, got)
		}
	}
}

// What an apply has in its parts is learnt as if it had come in one.
func TestPartsAreLearntTogether(t *testing.T) {
	s, parts := parted(t)
	for _, r := range parts(1, 0, 3) {
		if _, err := s.Apply(t.Context(), r, ""); err != nil {
			t.Fatal(err)
		}
	}
	row, there := s.tables["user"].LookupEntries([]int64{1})
	if !there[0] || !slices.Equal(row[0].Values, []float32{-1, -2}) {
		t.Errorf("the row of the first part is %v, it is there: %v", row, there)
	}
	for _, id := range s.bandIDs[:2] {
		if v := s.dense[id].values; v[0] != -1 {
			t.Errorf("%q of a later part is %v", id.name, v[0])
		}
	}
}

// A publication has the trace of the newest apply in it that has one.
func TestTheTraceOfAPublication(t *testing.T) {
	s := standing(t, Config{})
	for i, trace := range []string{"", "first", "second", ""} {
		if _, err := s.Apply(t.Context(), s.rangeOf(int64(i), int64(i)+1), trace); err != nil {
			t.Fatal(err)
		}
	}
	always := func(int) bool { return true }
	if h := s.CollectDirty(always); h == nil || h.Trace != "second" {
		t.Errorf("%+v", h)
	}
	if _, err := s.Apply(t.Context(), s.rangeOf(4, 5), ""); err != nil {
		t.Fatal(err)
	}
	if h := s.CollectDirty(always); h == nil || h.Trace != "" {
		t.Errorf("the next one: %+v", h)
	}
}

// A cut lets through what ends at its targets, and nothing beyond.
func TestWhatACutLetsThrough(t *testing.T) {
	c := cuts{}
	if why := c.bars(0, 99); why != "" {
		t.Errorf("without a cut: %s", why)
	}
	c.now = &cut{id: "c", targets: map[int32]int64{0: 10}}
	for _, tc := range []struct {
		partition int32
		to        int64
		waits     bool
	}{{0, 9, false}, {0, 10, false}, {0, 11, true}, {1, 0, false}, {1, 1, true}} {
		if why := c.bars(tc.partition, tc.to); (why != "") != tc.waits {
			t.Errorf("partition %d up to %d: %q", tc.partition, tc.to, why)
		}
	}
}

// Releasing twice is releasing; whoever goes on with a cut that is over, or never was, hears which.
func TestWhatBecameOfACut(t *testing.T) {
	s := standing(t, Config{})
	hold := func(name string, chief uint64) error {
		_, err := s.Hold(shardcmd.HoldRequest{Cut: name, Chief: chief}, time.Hour)
		return err
	}
	if err := hold("a", 5); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Release(shardcmd.ReleaseRequest{Cut: "a"}); err != nil {
			t.Errorf("released: %v", err)
		}
	}
	if err := hold("a", 5); pstest.Code(err) != "CONFLICT" || !strings.Contains(err.Error(), "it was released") {
		t.Errorf("held again: %v", err)
	}
	if _, err := s.Advance(t.Context(), shardcmd.AdvanceRequest{Cut: "b"}); pstest.Code(err) != "NOT_FOUND" {
		t.Errorf("advance of a cut that nobody began: %v", err)
	}
	if _, err := s.Release(shardcmd.ReleaseRequest{Cut: "b"}); pstest.Code(err) != "NOT_FOUND" {
		t.Errorf("release of a cut that nobody began: %v", err)
	}
	if err := hold("c", 4); pstest.Code(err) != "CONFLICT" || !strings.Contains(err.Error(), "chief 5 has followed it") {
		t.Errorf("by a chief that was followed: %v", err)
	}
	if err := hold("c", 0); err != nil { // by hand, which no chief follows
		t.Errorf("by nobody's chief: %v", err)
	}
	s.Suspend(rowwire.Errorf(rowwire.Unavailable, "restored"))
	s.Resume(1, 0)
	if err := hold("c", 0); pstest.Code(err) != "CONFLICT" || !strings.Contains(err.Error(), "the shard stopped answering: restored") {
		t.Errorf("of a shard that stopped: %v", err)
	}
}

// The rows of a deterministic job expire where the records pass an hour, and at no record besides.
func TestRowsExpireAtTheHour(t *testing.T) {
	s := standing(t, Config{Deterministic: true}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
	s.expiry["user"] = &expiry{clock: 3 * day}
	if err := s.tables["user"].Assign([]int64{1}, []float32{1, 2}, day, 0); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		at   uint32
		left int
	}{{3*day + 1, 1}, {3*day + sweepEvery - 1, 1}, {3*day + sweepEvery, 0}} {
		if s.aged("user", tc.at); s.tables["user"].Len() != tc.left {
			t.Errorf("at second %d of the day %d rows are left, want %d", tc.at-3*day, s.tables["user"].Len(), tc.left)
		}
	}
}

// What training sees of bits is that of the newest apply, before a restart and after it.
func TestTheScaleOfBitsIsOfTheNewestApply(t *testing.T) {
	spec := pstest.Counting()
	spec.Tables[0].Compressor = pstest.Bits()
	spec.Tables[0].Compressor.GetOneBit().StepSize = proto.Uint64(10)
	live := loaded(t, Config{}, spec)
	seen := func(s *Shard) []float32 {
		t.Helper()
		res := rowwire.NewLookupResponse(1, false)
		if err := s.Lookup(t.Context(), &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{1}}}}, res); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(res.Values[0])
	}
	var scales [][]float32
	for at := int64(0); at < 21; at++ {
		if _, err := live.Apply(t.Context(), pstest.Teach(0, 0, at, at+1, 0.001, 1), ""); err != nil {
			t.Fatal(err)
		}
		restarted := loaded(t, Config{}, spec)
		if err := restarted.Load(live.copyAll()); err != nil {
			t.Fatal(err)
		}
		restarted.Resume(2, 0)
		if got, want := seen(restarted), seen(live); !slices.Equal(got, want) {
			t.Errorf("after %d applies training sees %v, and %v after a restart", at+1, want, got)
		}
		scales = append(scales, seen(live))
	}
	if slices.Equal(scales[0], scales[20]) {
		t.Errorf("the scale stays at %v", scales[0])
	}
}

// The greatest number is one, in a checkpoint as in an assignment; of rows that are none the first is named.
func TestTheGreatestNumberIsOne(t *testing.T) {
	s := loaded(t, Config{}, pstest.Counting())
	saved := s.copyAll()
	id := s.bandIDs[0]
	for x, ok := range map[float32]bool{math.MaxFloat32: true, -math.MaxFloat32: true, float32(math.Inf(1)): false} {
		saved.Dense[id.name].Values[0] = x
		if err := s.Load(saved); (err == nil) != ok {
			t.Errorf("a variable of %g: %v", x, err)
		}
		d := &delta.Delta{Assigned: &delta.Assigned{RequestId: "a"}, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{7}, Values: publish.Floats([]float32{x, 0})}}}
		if err := standing(t, Config{}).assignAgain(d); (err == nil) != ok {
			t.Errorf("an assignment of %g: %v", x, err)
		}
	}
	saved.Dense[id.name].Values[0] = 0
	saved.Tables["user"] = []table.Row{{ID: 1, Values: []float32{1, 2}}}
	if err := s.Load(saved); err != nil || s.Rows()["user"] != 1 {
		t.Errorf("a row: %v", err)
	}
	other := *saved
	other.Tables = map[string][]table.Row{"x": nil}
	if err := s.Load(&other); err == nil || s.Rows()["user"] != 1 {
		t.Errorf("a table that is not declared: %v, %d rows are left", err, s.Rows()["user"])
	}
}
