package host

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// scope remembers what was registered through it: a role that is started again inside
// one process registers the same metrics anew.
type scope struct {
	prometheus.Registerer
	mu    sync.Mutex
	owned []prometheus.Collector // guarded by mu
}

func newScope(r prometheus.Registerer) *scope { return &scope{Registerer: r} }

func (s *scope) Register(c prometheus.Collector) error {
	if err := s.Registerer.Register(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = append(s.owned, c)
	return nil
}

func (s *scope) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

func (s *scope) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.owned {
		s.Unregister(c)
	}
	s.owned = nil
}
