// Package servables holds which versions of which models a server has: it finds them in their
// base paths, loads them, keeps them fresh from the deltas, and lets them go.
package servables

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// Manager holds what is configured and what became of it. One goroutine, run, starts and
// stops versions; each version has a goroutine of its own until END.
type Manager struct {
	serve   func(ctx context.Context, v *version) error // one version's life, until ctx ends
	linger  time.Duration                               // how long rows answer after the last entry asked for them
	health  *health.State
	expects func(name string) bool // see index; fixed before run, as what follows
	avoids  func(name string) int64
	canary  func(name string) *publish.CanaryDeclared // that runs; nil: nobody knows of any

	of         string        // the model of names without one
	beside     bool          // entries are whole with the shards beside them
	lookOnce   bool          // at the base paths
	retries    int           // of a load that failed
	retryEvery time.Duration // between them
	log        *slog.Logger
	seen       map[string]found // on disk, by Run's last look; its own

	mu      sync.Mutex
	configs map[string]tfserving.Model
	// configured counts the configurations.
	configured uint64
	forced     map[string]bool // configured anew: try failed versions again
	labels     map[string]map[string]label
	models     map[string]map[int64]*version
	attempts   map[string]*health.Attempts // at loading, by name
	changed    chan struct{}               // closed at the next change
	count      uint64                      // of beginnings and ends

	kick  chan struct{}
	lives sync.WaitGroup
	index atomic.Pointer[index]
}

func newManager(serve func(context.Context, *version) error, linger time.Duration, well *health.State) *Manager {
	s := &Manager{
		serve: serve, linger: linger, health: well, log: slog.New(slog.DiscardHandler), seen: map[string]found{}, attempts: map[string]*health.Attempts{}, configs: map[string]tfserving.Model{}, forced: map[string]bool{},
		models: map[string]map[int64]*version{}, changed: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	s.index.Store(&index{})
	return s
}

// Configure replaces the whole configuration and returns the names that are new in it. A
// sub-model that is not served here has ended with the reason, and keeps nobody else.
func (s *Manager) Configure(models []tfserving.Model) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]tfserving.Model, len(models))
	var added []string
	s.forced = make(map[string]bool, len(models))
	for _, m := range models {
		if _, ok := s.configs[m.Name]; !ok {
			added = append(added, m.Name)
		}
		next[m.Name] = m
		if _, _, _, err := s.split(m.Name); err != nil {
			s.refuse(m, &loadError{codes.Unimplemented, err})
			continue
		}
		s.forced[m.Name] = true
	}
	for name := range s.configs {
		if _, ok := next[name]; !ok {
			s.works(name)
		}
	}
	s.configs = next
	s.configured++
	s.reindex()
	s.announce()
	s.notify()
	return added
}

// refuse shows a model that cannot be served here as ended. The caller holds mu.
func (s *Manager) refuse(m tfserving.Model, err *loadError) {
	numbers := m.Policy.Versions
	if len(numbers) == 0 {
		numbers = []int64{0} // which one it would be is not looked at
	}
	s.models[m.Name] = map[int64]*version{}
	for _, n := range numbers {
		s.count++
		s.models[m.Name][n] = &version{name: m.Name, number: n, basePath: m.BasePath, state: stateEnd, err: err, endedAt: s.count}
	}
	s.forget()
}

func (s *Manager) notify() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Run brings what is served in line with the configuration, whenever something changes
// and every poll, until ctx ends; then every version is stopped.
func (s *Manager) Run(ctx context.Context, poll time.Duration) {
	defer s.lives.Wait()
	t := time.NewTicker(poll)
	defer t.Stop()
	for {
		s.reconcile(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.kick:
		}
	}
}

func (s *Manager) reconcile(ctx context.Context) {
	s.mu.Lock()
	configs, forced, looked := maps.Clone(s.configs), maps.Clone(s.forced), s.configured
	s.mu.Unlock()
	disk := s.look(configs, forced)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.configured != looked {
		s.notify() // configured anew meanwhile: look again
		return
	}
	for name, m := range s.configs {
		model, sub, shard, err := s.split(name)
		if err != nil {
			continue // refused when it was configured
		}
		forced := s.forced[name]
		delete(s.forced, name)
		for number, at := range disk[name] {
			v := s.models[name][number]
			fresh := v == nil || v.state == stateEnd && (v.err == nil || forced || !v.modTime.Equal(at) || v.basePath != m.BasePath)
			retried := 0
			if !fresh && s.again(v, now) {
				fresh, retried = true, v.retried+1
			}
			if fresh && ctx.Err() == nil {
				s.start(ctx, &version{name: name, model: model, sub: sub, shard: shard, number: number, basePath: m.BasePath, modTime: at, retried: retried})
			}
		}
	}
	for name, versions := range s.models {
		m, configured := s.configs[name]
		s.retire(versions, now, configured, func(number int64) bool {
			_, ok := disk[name][number]
			return ok || slices.Contains(m.Policy.Versions, number)
		})
	}
}

// look finds the versions of what is configured, and says once where there are none.
func (s *Manager) look(configs map[string]tfserving.Model, forced map[string]bool) map[string]found {
	disk := make(map[string]found, len(configs))
	for name, m := range configs {
		last, known := s.seen[name]
		if known && s.lookOnce && !forced[name] {
			disk[name] = last
			continue
		}
		disk[name] = scanVersions(m, s.beside)
		if len(disk[name]) == 0 && (!known || len(last) > 0 || forced[name]) {
			s.log.Warn("no version found: a base path has a folder for each, whose name is its number; it is looked at again", "model", name, "base_path", m.BasePath)
		}
	}
	s.seen = disk
	return disk
}

// again says whether a version that could not be loaded is to be tried once more by itself. The caller
// holds mu.
func (s *Manager) again(v *version, now time.Time) bool {
	return v.state == stateEnd && v.err != nil && v.retried < s.retries && now.Sub(v.failedAt) >= s.retryEvery
}

// start begins a version's life. The caller holds mu.
func (s *Manager) start(ctx context.Context, v *version) {
	life, stop := context.WithCancel(ctx)
	s.count++
	v.state, v.stop, v.begunAt = stateStart, stop, s.count
	if s.models[v.name] == nil {
		s.models[v.name] = map[int64]*version{}
	}
	s.models[v.name][v.number] = v
	s.reindex()
	s.announce()
	s.lives.Go(func() {
		defer stop()
		s.set(v, stateLoading, nil)
		err := s.serve(life, v)
		if s.stateOf(v) == stateAvailable {
			s.set(v, stateUnloading, nil)
		}
		if life.Err() != nil {
			err = nil
		}
		s.end(v, err)
		for _, g := range v.handOver(nil) {
			s.letGo(ctx, g)
		}
	})
}

func (s *Manager) stateOf(v *version) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.state
}

// answerOf is what v answers from; nil: it does not.
func (s *Manager) answerOf(v *version) *servable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.data
}

// set moves v to a state. A servable makes it AVAILABLE with that data.
func (s *Manager) set(v *version, to state, data *servable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.state, v.data = to, data
	v.settled = v.settled || data != nil && (data.ps != nil || data.own != nil) // it needs nobody else
	if to == stateAvailable {
		s.works(v.name)
	}
	s.reindex()
	s.announce()
}

// loading are the attempts to load a model since the last that succeeded. The caller holds mu.
func (s *Manager) loading(name string) *health.Attempts {
	a := s.attempts[name]
	if a == nil {
		a = s.health.Attempts("load " + name)
		s.attempts[name] = a
	}
	return a
}

// works forgets the failures of a model. The caller holds mu.
func (s *Manager) works(name string) {
	s.loading(name).Succeeded()
	delete(s.attempts, name)
}

// settle notes that v has all that it needs to answer.
func (s *Manager) settle(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.settled {
		v.settled = true
		s.notify()
	}
}

func (s *Manager) end(v *version, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.state, v.data = stateEnd, nil
	if err != nil {
		v.err, v.failedAt = failed(err), time.Now()
		// Whoever configures tries again for as long as the model is wanted.
		s.loading(v.name).Failed(err)
	}
	s.count++
	v.endedAt = s.count
	s.forget()
	s.reindex()
	s.announce()
	s.notify()
}

// announce wakes whoever waits for a change. The caller holds mu.
func (s *Manager) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
