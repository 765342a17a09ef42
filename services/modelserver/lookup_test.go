package modelserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// However many ids a batch has, its requests keep the protocol's bounds, and every id is
// found where it was asked for.
func TestLookupsAreSplitAtTheProtocolsBounds(t *testing.T) {
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
		"rows of a frame each":         {[]int{maxFloats, maxFloats}, []int{3, 2}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			m := &entryModel{model: "m", version: 3, rows: exportID{3, "j"}}
			var h shardScratch
			for range 2 { // once on fresh memory, once on used
				h.reset(len(tc.dims))
				m.tables = m.tables[:0]
				for i, dim := range tc.dims {
					m.tables = append(m.tables, embedding{name: fmt.Sprint("table", i), dim: dim})
					for k := range tc.ids[i] {
						h.ids[i] = append(h.ids[i], int64(i)<<40|int64(k))
					}
				}
				h.split(m, 5, true)
				if tc.asks > 0 && len(h.asks) != tc.asks || tc.asks == 0 && len(h.asks) < 2 {
					t.Errorf("%d requests", len(h.asks))
				}
				for i := range h.asks {
					q := &h.asks[i].req
					ids, bytes := 0, 0
					for _, tab := range q.Tables {
						var dim int
						for _, e := range m.tables {
							if e.name == tab.Table {
								dim = e.dim
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
				for tab := range tc.dims {
					for at, id := range h.ids[tab] {
						a, table, i := h.place(tab, int32(at))
						if got := a.req.Tables[table]; got.Table != m.tables[tab].name || got.IDs[i] != id {
							t.Fatalf("id %d of %s is looked for at %d of %s, where %d stands", id, m.tables[tab].name, i, got.Table, got.IDs[i])
						}
					}
				}
			}
		})
	}
}

// refuser answers every lookup with one code.
type refuser struct {
	rows
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
			s := &Server{cfg: Config{LookupRetries: 2, LookupTimeout: 5 * time.Second}, metrics: newMetrics(nil), pool: rowwire.NewPool(nil), routes: newRoutes(nil, nil)}
			defer s.pool.Close()
			m := &entryModel{model: "m", version: 3, rows: exportID{3, "j"}, shards: 1, tables: []embedding{{"t", 1}}}
			e := &endpoint{addr: rowwire.Addr(ln.Addr())}
			s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: {all: []*endpoint{e}}})
			var h shardScratch
			h.reset(1)
			h.ids[0] = []int64{1}
			h.split(m, 0, false)
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
