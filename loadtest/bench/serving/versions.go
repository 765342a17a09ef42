package serving

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// VersionsCase is so many versions of a shard, each with some rows that the one before does not have.
type VersionsCase struct {
	Versions, Rows, Changed int
	Rounds                  int
	Target                  float64 // of the memory of a changed row, against that of a row of one version
	Most                    float64 // ms: of the first lookup of the oldest
}

// VersionsCases are those of a full run.
var VersionsCases = []VersionsCase{
	{Versions: 10, Rows: 1_000_000, Changed: 50_000, Rounds: 3, Target: 1.3, Most: 5},
	{Versions: 100, Rows: 200_000, Changed: 10_000, Rounds: 3, Target: 1.3, Most: 5},
	{Versions: 1000, Rows: 50_000, Changed: 2500, Rounds: 1, Target: 1.3, Most: 5},
}

const (
	versionsDim  = 16
	versionsAsks = 1000 // ids of the first lookup
)

// Versions measures the memory of versions that share rows, and the first lookup of the oldest of them,
// against one version.
func Versions(cases []VersionsCase) bench.Benchmark {
	return bench.Benchmark{Name: "versions", About: "memory of a row that is other in one of many versions, and the oldest one's first lookup, against one version", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, vc := range cases {
			err := r.Compare(ctx, bench.Comparison{
				Name: fmt.Sprintf("versions/n=%d,rows=%d,changed=%d", vc.Versions, vc.Rows, vc.Changed), Baseline: "one version", Rounds: vc.Rounds,
				Figures: []bench.Figure{{Name: "memory", Unit: "B/row", Better: bench.Lower, Target: vc.Target},
					{Name: fmt.Sprintf("first lookup of %d ids", versionsAsks), Unit: "ms", Better: bench.Lower, Most: vc.Most}},
				Ours: func(ctx context.Context) ([]float64, error) { return versionsPass(ctx, vc, vc.Versions) },
				Peer: func(ctx context.Context) ([]float64, error) { return versionsPass(ctx, vc, 1) },
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// versionsPass reads n versions one after the other. It returns what a changed row takes, or a row where
// there is one version, and how long the first lookup of the oldest takes.
func versionsPass(ctx context.Context, vc VersionsCase, n int) ([]float64, error) {
	empty, err := settled(ctx)
	if err != nil {
		return nil, err
	}
	var shared rows.Tables
	var line []*rows.Shard
	defer func() {
		for _, m := range line {
			m.Drop()
		}
	}()
	var first, all int64
	for version := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m := &rows.Shard{Model: "bench", Version: int64(version), Job: "bench", Shards: 1, Shared: &shared}
		if err := readVersion(m, vc, version); err != nil {
			return nil, err
		}
		line = append(line, m)
		if version == 0 {
			if first, err = settled(ctx); err != nil {
				return nil, err
			}
		}
	}
	if all, err = settled(ctx); err != nil {
		return nil, err
	}
	ids := make([]int64, versionsAsks)
	for i := range ids {
		ids[i] = rowID(i * (vc.Rows / versionsAsks))
	}
	h := rows.NewHandler(func(string, uint32) []*rows.Shard { return line[:1] })
	began := time.Now()
	res, err := h.Lookup(ctx, &rowwire.LookupRequest{Model: "bench", Tables: []rowwire.TableIDs{{Table: tableName, IDs: ids}}})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	for i := range ids {
		if got := res.Values[0][i*versionsDim]; got != 0 {
			return nil, fmt.Errorf("row %d of the oldest version is of version %v", ids[i], got)
		}
	}
	res.Done()
	perRow := float64(first-empty) / float64(vc.Rows)
	if n > 1 {
		perRow = float64(all-first) / float64((n-1)*vc.Changed)
	}
	return []float64{perRow, took.Seconds() * 1000}, nil
}

func rowID(i int) int64 { return modelspec.FID(1, int64(i)) }

// readVersion is what a model server does with an export: all rows, of which those that changed since the
// version before say its number.
func readVersion(m *rows.Shard, vc VersionsCase, version int) error {
	if err := m.Declare(nil, tableName, versionsDim); err != nil {
		return err
	}
	const some = 4096
	groups := vc.Rows / vc.Changed
	part, values := make([]table.Row, 0, some), make([]float32, some*versionsDim)
	for i := range vc.Rows {
		v := values[len(part)*versionsDim:][:versionsDim]
		v[0] = float32(newest(i%groups, version, groups))
		if part = append(part, table.Row{ID: rowID(i), Values: v}); len(part) == some || i == vc.Rows-1 {
			if dropped, err := m.Add(tableName, part); dropped > 0 || err != nil {
				return errors.Join(err, fmt.Errorf("%d rows are no numbers", dropped))
			}
			part = part[:0]
		}
	}
	return m.Whole()
}

// newest is the last version up to one that changed the rows of a group: they change one after the other.
func newest(group, version, groups int) int {
	if version == 0 {
		return 0
	}
	if since := ((version-group)%groups + groups) % groups; version-since > 0 {
		return version - since
	}
	return 0
}
