package ps

import (
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// tally counts calls of one kind, failed ones too.
type tally struct{ count, failed, rows, ns atomic.Uint64 }

func (t *tally) add(took time.Duration, rows int, err error) {
	t.count.Add(1)
	t.ns.Add(uint64(max(took, 0)))
	if err != nil {
		t.failed.Add(1)
		return
	}
	t.rows.Add(uint64(rows))
}

func (t *tally) stats() shardcmd.CallStats {
	s := shardcmd.CallStats{Count: t.count.Load(), Failed: t.failed.Load(), Rows: t.rows.Load()}
	if s.Count > 0 {
		s.AvgLatencyUS = float64(t.ns.Load()) / 1e3 / float64(s.Count)
	}
	return s
}

// stats is the shard in figures.
func (s *Server) stats() (shardcmd.StatsResponse, error) {
	now, err := s.st.Now()
	if err != nil {
		return shardcmd.StatsResponse{}, err
	}
	return shardcmd.StatsResponse{
		State: now, Lookup: s.m.looking.stats(), Dense: s.m.fetching.stats(), Apply: s.m.applying.stats(),
		Rows: s.st.Rows(), Touched: uint64(s.st.Backlog()),
	}, nil
}

// health says whether the shard answers lookups and applies now.
func (s *Server) health() shardcmd.HealthResponse {
	if why, _ := s.st.Refusal(); why != nil {
		return shardcmd.HealthResponse{Reason: why.Message}
	}
	return shardcmd.HealthResponse{Serving: true}
}
