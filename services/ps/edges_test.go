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

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
)

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
			r    shardcmd.BarrierRequest
			want string // "": it is over at once
		}{
			"the longest names":   {shardcmd.BarrierRequest{ID: long, Worker: long, NumWorkers: 1}, ""},
			"a longer barrier":    {shardcmd.BarrierRequest{ID: long + "x", Worker: "a", NumWorkers: 1}, "INVALID"},
			"a longer worker":     {shardcmd.BarrierRequest{ID: "b", Worker: long + "x", NumWorkers: 1}, "INVALID"},
			"most workers":        {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: maxWorkers}, "UNAVAILABLE"},
			"a worker too many":   {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: maxWorkers + 1}, "INVALID"},
			"workers below 0":     {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: -1}, "INVALID"},
			"a millisecond":       {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: 2, TimeoutMS: 1}, "UNAVAILABLE"},
			"longer than it gets": {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: 2, TimeoutMS: 1 << 40}, "UNAVAILABLE"},
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
		for id, v := range s.bands {
			c.Dense[id.name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size)}
		}
		for name, kind := range s.kinds {
			c.Manifest.Tables = append(c.Manifest.Tables, checkpoint.TableInfo{Name: name, Dim: s.dims[name], Opt: kind.dumps})
			c.Tables[name] = nil
		}
		slices.SortFunc(c.Manifest.Tables, func(a, b checkpoint.TableInfo) int { return strings.Compare(a.Name, b.Name) })
		c.Manifest.Format, c.Manifest.Shards = 2, 1
		tc.change(c.Dense, s.bandIDs[0].name, s.bands[s.bandIDs[0]].Size)
		if err := s.load(c); (err == nil) != tc.ok || !tc.ok && !errors.Is(err, errOtherModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A table's clock comes from the checkpoint, and where that is older than clocks from the
// newest row.
func TestClocksOfACheckpoint(t *testing.T) {
	for format, want := range map[int]uint32{1: 900, 2: 500} {
		s := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
		c := &checkpoint.Shard{Tables: map[string][]table.Row{"user": {{ID: 1, Values: []float32{1, 2}, UnixSec: 900}}}, Dense: map[string]checkpoint.Variable{}}
		c.Manifest.Format, c.Manifest.Shards = format, 1
		c.Manifest.Tables = []checkpoint.TableInfo{{Name: "movie", Dim: 3, Clock: 7}, {Name: "user", Dim: 2, Clock: 500}}
		for id, v := range s.bands {
			c.Dense[id.name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size)}
		}
		if err := s.load(c); err != nil {
			t.Fatal(err)
		}
		if got := s.expiry["user"].clock; got != want || s.expiry["movie"] != nil {
			t.Errorf("of format %d the clock is %d, want %d", format, got, want)
		}
	}
}

// A chief may hold the same cut again; one that has been followed may hold none.
func TestACutIsHeldAgain(t *testing.T) {
	s := standing(t, Config{})
	defer s.suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
	hold := func(name string, chief uint64) error {
		_, err := s.hold(shardcmd.HoldRequest{Cut: name, Chief: chief}, time.Hour)
		return err
	}
	long := strings.Repeat("x", 256)
	for _, tc := range []struct {
		name  string
		chief uint64
		code  string
	}{{"", 3, "INVALID"}, {long + "x", 3, "INVALID"}, {long, 3, ""}, {long, 3, ""}, {"b", 2, "CONFLICT"}, {"b", 3, "CONFLICT"}, {"b", 4, ""}, {"b", 4, ""}, {long, 4, "CONFLICT"}, {long, 5, "CONFLICT"}, {"b", 5, ""}} {
		err := hold(tc.name, tc.chief)
		if tc.code == "" && err != nil || tc.code != "" && refusalCode(err) != tc.code {
			t.Errorf("chief %d holds %.3q…: %v, want %q", tc.chief, tc.name, err, tc.code)
		}
	}
}

// A snapshot is taken where every target is reached and none is passed, at its turn.
func TestWhenASnapshotMayBeTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		targets map[int32]int64
		turn    uint64
		says    string
	}{
		"at the targets":          {map[int32]int64{0: 10, 1: 0}, 0, ""},
		"at its turn":             {map[int32]int64{0: 10}, 3, ""},
		"at another turn":         {map[int32]int64{0: 10}, 4, "is at turn 3 here, not 4"},
		"without targets":         {nil, 0, "has no targets yet"},
		"before a target":         {map[int32]int64{0: 11}, 0, "recorded up to 10, 11 is the target"},
		"before another's target": {map[int32]int64{0: 10, 1: 1}, 0, "partition 1 is recorded up to 0, 1 is the target"},
		"beyond a target":         {map[int32]int64{0: 9}, 0, "beyond the target 9"},
		"beyond no target":        {map[int32]int64{}, 0, "beyond the target 0"},
	} {
		s := standing(t, Config{Deterministic: true})
		s.parts[0], s.turn = &partition{next: 10}, 3
		if _, err := s.hold(shardcmd.HoldRequest{Cut: "c"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.cuts.now.targets = tc.targets
		c, err := s.atCut(shardcmd.SnapshotRequest{Cut: "c", Turn: tc.turn})
		if tc.says == "" && (err != nil || c == nil) || tc.says != "" && (refusalCode(err) != "CONFLICT" || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if _, err := s.copyCut(shardcmd.SnapshotRequest{Cut: "c", Turn: tc.turn}, 1); (err == nil) != (tc.says == "") {
			t.Errorf("%s: copied: %v", name, err)
		}
		s.suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
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

// The end of a process explains what its end brings about, and nothing else.
func TestErrorsOfACleanEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		err error
		end bool // whether it is one at the end, too
	}{
		"none": {nil, false}, "cancelled": {context.Canceled, false}, "no bus": {bus.ErrUnavailable, false},
		"followed": {errFenced, true}, "a conflict": {bus.ErrConflict, true},
	} {
		if got := clean(t.Context(), tc.err); got != tc.err {
			t.Errorf("%s, alive: %v", name, got)
		}
		if got := clean(ended, tc.err); (got != nil) != tc.end {
			t.Errorf("%s, at the end: %v", name, got)
		}
	}
}

// What a caller can do about an error is its code.
func TestCodesOfRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"a refusal": {fmt.Errorf("x: %w", bus.Refuse(bus.CodeNotFound, "y")), "NOT_FOUND"}, "a newer process": {errFenced, "CONFLICT"}, "another's append": {bus.ErrConflict, "CONFLICT"},
		"no bus": {bus.ErrUnavailable, "UNAVAILABLE"}, "too late": {context.DeadlineExceeded, "UNAVAILABLE"}, "left": {context.Canceled, "UNAVAILABLE"},
		"a shard that starts": {rowwire.Errorf(rowwire.Unavailable, "x"), "UNAVAILABLE"}, "a shard's other refusal": {rowwire.Errorf(rowwire.Invalid, "x"), "INTERNAL"},
		"anything else": {errors.New("x"), "INTERNAL"},
	} {
		if got := refusalCode(refusal(tc.err)); got != tc.code {
			t.Errorf("%s: %s, want %s", name, got, tc.code)
		}
	}
}

// A page of a scan has what a quarter of a frame holds, and no more than was asked for.
func TestPagesOfAScan(t *testing.T) {
	const most = rowwire.MaxFrame / 4
	for _, tc := range []struct {
		limit      uint32
		slots      bool
		dim, state int
		want       int
	}{
		{0, false, 1 << 14, 5, most / (20 + 4<<14)}, {0, true, 1 << 14, 1 << 14, most / (20 + 8<<14)}, {0, true, 1 << 14, 0, most / (20 + 4<<14)},
		{1, false, 1 << 14, 0, 1}, {math.MaxUint32, false, 1 << 14, 0, most / (20 + 4<<14)}, {7, true, 4, 4, 7}, {0, false, 0, 0, min(most/20, rowwire.MaxIDs)},
	} {
		if got := pageSize(&rowwire.ScanRequest{Limit: tc.limit, Slots: tc.slots}, tc.dim, tc.state); got != tc.want {
			t.Errorf("%d rows of %d values and %d slots (wanted: %v): %d, want %d", tc.limit, tc.dim, tc.state, tc.slots, got, tc.want)
		}
	}
}

// What is asked for at once takes half a frame at most.
func TestAnswersOfHalfAFrame(t *testing.T) {
	const size = 1 << 20 // of a row and of a variable
	s := standing(t, Config{})
	s.dims["user"] = size // its table knows nothing of it, and refuses what gets that far
	s.bands[bandID{name: "wide"}] = modelspec.Band{Name: "wide", Size: size}
	s.dense[bandID{name: "wide"}] = &variable{values: make([]float32, size)}
	ids, names := make([]int64, rowwire.MaxFrame/2/(4*size)+1), []string(nil)
	for i := range ids {
		ids[i] = int64(i)
		names = append(names, "wide")
	}
	for n, much := range map[int]bool{len(ids) - 1: false, len(ids): true} {
		err := s.lookup(t.Context(), &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: ids[:n]}}}, new(rowwire.LookupResponse))
		if got := err != nil && strings.Contains(err.Error(), "ask for fewer"); got != much {
			t.Errorf("%d rows of %d bytes: %v", n, 4*size, err)
		}
		res, err := s.denseOf(t.Context(), &rowwire.DenseRequest{Job: job, Names: names[:n]})
		if (err != nil) != much || err == nil && len(res.Tensors) != n {
			t.Errorf("%d variables of %d bytes: %v", n, 4*size, err)
		}
	}
}
