package ps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/parts"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// transfers makes what fetches need; without authorities nothing is fetched.
func (s *Server) transfers() error {
	keys, near, err := peer.Keys(s.cfg.TransferTLS, s.env.TLS, s.cfg.InsecureTransfer)
	if errors.Is(err, peer.ErrNoAuthorities) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	s.client = peer.NewClient(peer.Config{TLS: keys, Near: near, Log: s.log,
		Fetched: prom.Register(s.env.Metrics, prometheus.NewCounter(prometheus.CounterOpts{Name: "monolith_ps_fetched_bytes_total",
			Help: "Bytes of checkpoints that other hosts sent, those that were not used included."})),
		Faults: prom.Register(s.env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monolith_ps_fetch_faults_total",
			Help: "Answers of other hosts that were of no use, by reason: unreachable, or corrupt (not what was written)."}, []string{"reason"}))})
	return nil
}

// sources are the hosts that hand out the folder which path is in, by name.
func (s *Server) sources(path string) (all []peer.Source) {
	s.lineage.Read(func(l lineage.State) { all = parts.Sources(l, path) })
	return all
}

// fetchPart brings a part of a checkpoint from a host that has it onto this machine's disk.
func (s *Server) fetchPart(ctx context.Context, dir string, f *training.ShardFile) error {
	here := parts.Fetcher{Dir: s.cfg.Dir, Client: s.client, Log: s.log}
	return here.Part(ctx, dir, f, s.sources(filepath.Join(dir, filepath.FromSlash(f.GetPath()))))
}
