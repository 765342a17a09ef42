package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// However many ids a batch has, its requests keep the protocol's bounds, and every id is
// found where it was asked for.
func TestLookupsAreSplitAtTheProtocolsBounds(t *testing.T) {
	const mebibyte = (1<<20 - 8) / 4 // the dim of a row that takes one
	for name, tc := range map[string]struct {
		dims []int
		ids  []int
		asks int // 0: more than one
	}{
		"an ordinary batch":            {[]int{64, 64}, []int{4096, 4096}, 1},
		"nothing of the first table":   {[]int{64, 8}, []int{0, 3}, 1},
		"more floats than a table may": {[]int{64}, []int{4096 * 20 / 2}, 0},
		"more ids than a request may":  {[]int{1, 1}, []int{rowwire.MaxIDs - 1, 7}, 0},
		"many tables of many floats":   {[]int{512, 512, 512, 512, 512}, []int{4000, 4000, 4000, 1, 9000}, 0},
		"an answer that is just full":  {[]int{mebibyte, mebibyte, mebibyte}, []int{maxFloats / mebibyte, maxAnswer>>20 - 1 - maxFloats/mebibyte, 1}, 1},
		"an answer and a row":          {[]int{mebibyte, mebibyte, mebibyte}, []int{maxFloats / mebibyte, maxAnswer>>20 - 1 - maxFloats/mebibyte, 2}, 2},
		"as many tables as may be":     {slices.Repeat([]int{1}, rowwire.MaxTables), slices.Repeat([]int{1}, rowwire.MaxTables), 1},
		"a table more":                 {slices.Repeat([]int{1}, rowwire.MaxTables+1), slices.Repeat([]int{1}, rowwire.MaxTables+1), 2},
		"rows of a frame each":         {[]int{maxFloats, maxFloats}, []int{3, 2}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			m := Want{Model: "m", Serves: 3, Version: 3, Job: "j"}
			var blocks []runtime.Block
			for i, dim := range tc.dims {
				b := runtime.Block{Table: fmt.Sprint("table", i), Dim: dim, Rows: make([]float32, tc.ids[i]*dim), Seqs: make([]uint64, tc.ids[i])}
				for k := range tc.ids[i] {
					b.IDs = append(b.IDs, int64(i)<<40|int64(k))
				}
				blocks = append(blocks, b)
			}
			var h shardScratch
			for range 2 { // once on fresh memory, once on used
				h.reset()
				h.split(m, 5, blocks, true)
				if tc.asks > 0 && len(h.asks) != tc.asks || tc.asks == 0 && len(h.asks) < 2 {
					t.Errorf("%d requests", len(h.asks))
				}
				for i := range h.asks {
					q := &h.asks[i].req
					ids, bytes := 0, 0
					for _, tab := range q.Tables {
						var dim int
						for _, b := range blocks {
							if b.Table == tab.Table {
								dim = b.Dim
							}
						}
						ids, bytes = ids+len(tab.IDs), bytes+len(tab.IDs)*(4*dim+8)
						if len(tab.IDs) == 0 || len(tab.IDs)*dim > maxFloats {
							t.Errorf("request %d asks for %d rows of dim %d at once", i, len(tab.IDs), dim)
						}
					}
					if ids > rowwire.MaxIDs || bytes > rowwire.MaxFrame-1<<16 || len(q.Tables) > rowwire.MaxTables {
						t.Errorf("request %d: %d ids, %d bytes, %d tables", i, ids, bytes, len(q.Tables))
					}
					if q.Model != "m" || q.Shard != 5 || q.Version != 3 || q.Job != "j" || !q.WithSeqs {
						t.Errorf("request %d: %s:ps_%d, version %d of %s", i, q.Model, q.Shard, q.Version, q.Job)
					}
				}
				for k, b := range blocks {
					for i, id := range b.IDs {
						a := h.asked(k, i)
						tab := slices.IndexFunc(a.req.Tables, func(q rowwire.TableIDs) bool { return q.Table == b.Table })
						if tab < 0 {
							t.Fatalf("id %d of %s is looked for where its table is not asked for", id, b.Table)
						}
						if i > 0 && h.asked(k, i-1) == a {
							continue // of one segment with the id before
						}
						if n := len(a.req.Tables[tab].IDs); a.req.Tables[tab].IDs[0] != id || &a.rows[tab][0] != &b.Rows[i*b.Dim] || len(a.rows[tab]) != n*b.Dim || &a.seqs[tab][0] != &b.Seqs[i] || len(a.seqs[tab]) != n || h.asked(k, i+n-1) != a {
							t.Fatalf("%d ids of %s from %d on are asked for, and answered elsewhere", n, b.Table, id)
						}
					}
				}
			}
		})
	}
}

// refuser answers every lookup with one code.
type refuser struct {
	Handler
	code rowwire.Code
}

func (r refuser) Lookup(context.Context, *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	return nil, rowwire.Errorf(r.code, "because")
}

// What a replica says of the request is no trouble of the replica.
func TestARefusalDoesNotPutAReplicaAside(t *testing.T) {
	for code, aside := range map[rowwire.Code]bool{rowwire.Invalid: false, rowwire.NotFound: false, rowwire.Unavailable: true} {
		t.Run(code.String(), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- rowwire.Serve(ctx, ln, refuser{code: code}, rowwire.Options{}) }()
			defer func() { cancel(); <-done }()
			s := NewClient(nil, rowwire.NewPool(nil), NewMetrics(nil, "c"), wait.Patience, 2)
			defer s.pool.Close()
			m := Want{Model: "m", Serves: 3, Version: 3, Job: "j"}
			e := &endpoint{addr: rowwire.Addr(ln.Addr())}
			s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: {all: []*endpoint{e}}})
			var h shardScratch
			h.reset()
			h.split(m, 0, []runtime.Block{{Table: "t", Dim: 1, IDs: []int64{1}, Rows: make([]float32, 1)}}, false)
			err = s.ask(t.Context(), m, &h.asks[0])
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "because") {
				t.Errorf("ask = %v", err)
			}
			if down := e.downUntil.Load() != 0; down != aside {
				t.Errorf("left alone: %v, want %v", down, aside)
			}
			asked := map[rowwire.Code]float64{rowwire.Invalid: 1, rowwire.NotFound: 1, rowwire.Unavailable: 3}[code]
			outcome := map[rowwire.Code]string{rowwire.Invalid: "refused", rowwire.NotFound: "missing", rowwire.Unavailable: "failed"}[code]
			if got := value(t, s.metrics.lookups.WithLabelValues(outcome)); got != asked {
				t.Errorf("%v lookups %s, want %v", got, outcome, asked)
			}
		})
	}
}

// answering serves the row protocol until the test ends, and returns its address.
func answering(t *testing.T, h rowwire.Handler) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- rowwire.Serve(ctx, ln, h, rowwire.Options{}) }()
	t.Cleanup(func() { cancel(); <-done })
	return rowwire.Addr(ln.Addr())
}

// asking is a client of replicas that are yet to be named.
func asking(t *testing.T, timeout time.Duration, retries int) *Client {
	s := NewClient(nil, rowwire.NewPool(nil), NewMetrics(nil, "c"), timeout, retries)
	t.Cleanup(func() { s.pool.Close() })
	return s
}

// Replicas that lack a version take none of the retries: the last of many may have it.
func TestTheLastOfManyReplicasIsAsked(t *testing.T) {
	s := asking(t, wait.Patience, 1)
	lacks := answering(t, refuser{code: rowwire.NotFound})
	m := Want{Model: "m", Serves: 1, Version: 1, Job: "j"}
	rowsOf := newPS(t)
	rowsOf.Version, rowsOf.Job = 1, "j"
	c := &choice{}
	for range 2*(MaxRetries+1) - 1 {
		c.all = append(c.all, &endpoint{addr: lacks})
	}
	last := &endpoint{addr: answering(t, serving(rowsOf))}
	last.downUntil.Store(time.Now().Add(time.Hour).UnixNano()) // asked when no other is left
	c.all = append(c.all, last)
	s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: c})
	var h shardScratch
	h.reset()
	h.split(m, 0, []runtime.Block{{Table: "user", Dim: 2, IDs: []int64{1}, Rows: make([]float32, 2)}}, false)
	if err := s.ask(t.Context(), m, &h.asks[0]); err != nil || h.asks[0].from != last {
		t.Errorf("ask = %v, from %v", err, h.asks[0].from)
	}
	if got := value(t, s.metrics.lookups.WithLabelValues("missing")); got != float64(len(c.all)-1) {
		t.Errorf("%v replicas lacked it, want %d", got, len(c.all)-1)
	}
}

// Every way in which an answer may not be one to the question.
func TestAnswersThatDoNotFit(t *testing.T) {
	m := Want{Version: 3, Job: "j"}
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
			if err := (Want{}).landed(a); err != nil || !slices.Equal(slices.Concat(a.rows...), []float32{1, 2, 3}) || tc.seqs && a.seqs[1][0] != 1 {
				t.Errorf("%s, where any version will do: %v, %v, %v", name, a.rows, a.seqs, err)
			}
		}
	}
}
