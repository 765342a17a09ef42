package modelserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

func TestDefaultsAreOnlyForWhatIsNotSaid(t *testing.T) {
	want := Config{Container: "c", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Rows: "127.0.0.1:0", SampleRate: 0.01, MaxBatch: 4096,
		LookupTimeout: 200 * time.Millisecond, LookupRetries: 2, LoadBytes: 256 << 20, PollInterval: time.Second, Linger: 5 * time.Second,
		SignalInterval: 200 * time.Millisecond, Drain: 5 * time.Second}
	got := Config{Container: "c"}.withDefaults()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("defaults\n%+v, want\n%+v", got, want)
	}
	own := Config{Container: "c", GRPC: "h:1", HTTP: "h:2", Rows: "unix:///x", SampleRate: -1, MaxBatch: 1, LookupTimeout: 1, LookupRetries: 1,
		LoadBytes: 1, PollInterval: 2, Linger: 3, SignalInterval: 4, Drain: 5}
	kept := own.withDefaults()
	if fmt.Sprintf("%+v", kept) != fmt.Sprintf("%+v", own) {
		t.Errorf("one's own became\n%+v, want\n%+v", kept, own)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"every sample":     {func(c *Config) { c.SampleRate = 1 }, true},
		"more than every":  {func(c *Config) { c.SampleRate = 1.01 }, false},
		"the largest":      {func(c *Config) { c.MaxBatch = 1 << 16 }, true},
		"beyond":           {func(c *Config) { c.MaxBatch = 1<<16 + 1 }, false},
		"no bytes":         {func(c *Config) { c.LoadBytes = -1 }, false},
		"most retries":     {func(c *Config) { c.LookupRetries = maxRetries }, true},
		"more retries":     {func(c *Config) { c.LookupRetries = maxRetries + 1 }, false},
		"fewer than none":  {func(c *Config) { c.LookupRetries = -1 }, false},
		"a negative drain": {func(c *Config) { c.Drain = -1 }, false},
		"no http port":     {func(c *Config) { c.HTTP = "host" }, false},
	} {
		c := want
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRowsOfAVersionAndAJob(t *testing.T) {
	s := newServables(nil, 0, health.New())
	newest, old := newPS(t), newPS(t)
	newest.version, newest.job = 4, "j"
	old.version, old.job = 3, "i"
	s.index.Store(&index{rows: map[shardKey][]*psModel{{"m", 0}: {newest, old}}})
	r := rows{s}
	for _, tc := range []struct {
		version int64
		job     string
		want    *psModel
	}{{0, "", newest}, {4, "", newest}, {3, "", old}, {0, "i", old}, {0, "j", newest}, {4, "j", newest}, {3, "j", nil}, {4, "i", nil}, {5, "", nil}, {0, "k", nil}} {
		newest.asked.Store(0)
		old.asked.Store(0)
		res, err := r.Lookup(context.Background(), &rowwire.LookupRequest{Model: "m", Version: tc.version, Job: tc.job})
		switch {
		case tc.want == nil:
			if rowwire.CodeOf(err) != rowwire.NotFound || !strings.Contains(err.Error(), "but 4 of") {
				t.Errorf("version %d of %q: %v, %v", tc.version, tc.job, res, err)
			}
		case err != nil || res.Version != tc.want.version:
			t.Errorf("version %d of %q: %+v, %v", tc.version, tc.job, res, err)
		}
		named := tc.version != 0 || tc.job != ""
		for _, m := range []*psModel{newest, old} {
			if asked := m.asked.Load() != 0; asked != (named && m == tc.want) {
				t.Errorf("version %d of %q: version %d was asked for: %v", tc.version, tc.job, m.version, asked)
			}
		}
	}
	if _, err := r.Lookup(context.Background(), &rowwire.LookupRequest{Model: "m", Shard: 1}); rowwire.CodeOf(err) != rowwire.NotFound || !strings.Contains(err.Error(), "m:ps_1 is not served here") {
		t.Errorf("another shard: %v", err)
	}
}

func TestLookupsOfAShardAreBounded(t *testing.T) {
	m := newPS(t)
	if err := m.apply(&delta.Delta{Step: 8, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1, 2, 3}, Values: make([]byte, 24)}}}, 77, 5); err != nil {
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
	if err := m.apply(&delta.Delta{Rows: []*delta.Rows{{Table: "movie", Dim: 2, Ids: ids, Values: make([]byte, 8*len(ids))}}}, 78, 5); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint32{0, maxScan, maxScan + 1} {
		if res, err := m.scan(&rowwire.ScanRequest{Table: "movie", After: math.MinInt64, Limit: limit}); err != nil || len(res.IDs) != maxScan || !res.More {
			t.Errorf("a scan of %d rows: %d, %v", limit, len(res.IDs), err)
		}
	}
}

// Every way in which an answer may not be one to the question.
func TestAnswersThatDoNotFit(t *testing.T) {
	m := &entryModel{rows: exportID{3, "j"}}
	for name, tc := range map[string]struct {
		seqs bool
		res  rowwire.LookupResponse
		want rowwire.Code
	}{
		"right":                 {false, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}}, 0},
		"right, with sequences": {true, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}, Seqs: [][]uint64{{1}, {1}}}, 0},
		"another version":       {false, rowwire.LookupResponse{Version: 2, Values: [][]float32{{1, 2}, {3}}}, rowwire.NotFound},
		"a table less":          {false, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}}}, rowwire.Invalid},
		"no sequences":          {true, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}}, rowwire.Invalid},
		"a number less":         {false, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1}, {3}}}, rowwire.Invalid},
		"a sequence less":       {true, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}, Seqs: [][]uint64{{1}, {}}}, rowwire.Invalid},
	} {
		a := &ask{answer: tc.res, rows: [][]float32{make([]float32, 2), make([]float32, 1)}}
		if tc.seqs {
			a.seqs = [][]uint64{make([]uint64, 1), make([]uint64, 1)}
		}
		if err := m.landed(a); rowwire.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if tc.want == 0 || name == "another version" {
			if err := new(entryModel).landed(a); err != nil || !slices.Equal(slices.Concat(a.rows...), []float32{1, 2, 3}) || tc.seqs && a.seqs[1][0] != 1 {
				t.Errorf("%s, where any version will do: %v, %v, %v", name, a.rows, a.seqs, err)
			}
		}
	}
}

func TestBatches(t *testing.T) {
	m := newEntry(t)
	two, names := tfserving.NewInt64([]int64{1, 2}), []string{m.features[0].name, m.features[1].name}
	in := func(a, b *tfserving.TensorProto) map[string]*tfserving.TensorProto {
		return map[string]*tfserving.TensorProto{names[0]: a, names[1]: b}
	}
	for name, tc := range map[string]struct {
		inputs map[string]*tfserving.TensorProto
		limit  int
		says   string
	}{
		"two rows":           {in(two, two), 2, ""},
		"a column":           {in(two, tfserving.NewInt64([]int64{1, 2}, 2, 1)), 2, ""},
		"over the limit":     {in(two, two), 1, "input"},
		"another count":      {in(two, tfserving.NewInt64([]int64{1, 2, 3})), 3, "give each the same number"},
		"one for all":        {in(two, tfserving.NewInt64([]int64{1})), 2, ""},
		"one for all, first": {in(tfserving.NewInt64([]int64{1}), two), 2, ""},
		"none for two":       {in(two, tfserving.NewInt64(nil)), 2, "give each the same number"},
		"two ids a row":      {in(tfserving.NewInt64([]int64{1, 2, 3, 4}, 2, 2), two), 4, ""},
		"three dims":         {in(tfserving.NewInt64([]int64{1, 2}, 2, 1, 1), two), 2, "3 dimensions"},
		"no rows":            {in(tfserving.NewInt64(nil), tfserving.NewInt64(nil)), 2, "the batch is empty"},
		"the largest id":     {in(tfserving.NewInt64([]int64{modelspec.MaxID, 0}), two), 2, ""},
		"beyond it":          {in(tfserving.NewInt64([]int64{modelspec.MaxID + 1, 0}), two), 2, "is outside"},
		"below 0":            {in(tfserving.NewInt64([]int64{0, -1}), two), 2, "row 1: id -1 is outside"},
		"another's input":    {map[string]*tfserving.TensorProto{names[0]: two, "x": two}, 2, "is missing"},
		"one input":          {map[string]*tfserving.TensorProto{names[0]: two}, 2, "input size does not match"},
	} {
		sc := m.scratches.Get().(*scratch)
		err := sc.load(m, tc.inputs, tc.limit)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || err == nil && (sc.batch.Len() != 2 || sc.batch.Seal() != nil) {
			t.Errorf("%s: %d rows, %v; want %q", name, sc.batch.Len(), err, tc.says)
		}
	}
}

// One folder alone may always be read, and gives back what it took.
func TestReadsAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, together := range map[int64]bool{50: false, 100: false, 199: false, 200: true} {
		r := newReads(limit)
		done, err := r.take(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		second := r.sem.TryAcquire(100)
		if second != together {
			t.Errorf("a second folder within %d bytes: %v", limit, second)
		}
		if second {
			r.sem.Release(100)
		}
		done()
		if done, err = r.take(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		done()
	}
}

func TestMeteredBodies(t *testing.T) {
	all := semaphore.NewWeighted(10)
	m := &metered{r: strings.NewReader("0123456789"), all: all}
	if b, err := io.ReadAll(m); err != nil || len(b) != 10 || m.taken != 10 || all.TryAcquire(1) {
		t.Errorf("%q, %v, %d taken", b, err, m.taken)
	}
	m.done()
	m = &metered{r: strings.NewReader("0123456789a"), all: all}
	if _, err := io.ReadAll(m); !errors.Is(err, errBodies) {
		t.Errorf("a byte more: %v", err)
	}
	m.done()
	if !all.TryAcquire(10) {
		t.Error("bytes stay taken")
	}
}
