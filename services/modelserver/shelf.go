package modelserver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/internal/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// maxEnded is how many unloaded versions keep showing END; the oldest are forgotten.
const maxEnded = 256

type state = apis.ModelVersionStatus_State

const (
	stateStart     = apis.ModelVersionStatus_START
	stateLoading   = apis.ModelVersionStatus_LOADING
	stateAvailable = apis.ModelVersionStatus_AVAILABLE
	stateUnloading = apis.ModelVersionStatus_UNLOADING
	stateEnd       = apis.ModelVersionStatus_END
)

// version is one version of one configured model. The shelf's mutex guards what is not
// fixed when it is made.
type version struct {
	name     string // as configured: {model}:{sub}
	model    string
	sub      string // entry, or ps_<shard>
	shard    int    // -1: entry
	number   int64
	basePath string

	state    state
	err      *loadError // why it ended; nil: it was unloaded
	modTime  time.Time  // of its directory when it failed: a change of it is a new try
	data     *generation
	endedAt  uint64 // orders the forgetting
	stop     context.CancelFunc
	unloaded bool // stop was called
}

// shelf holds what is configured and what became of it. One goroutine, run, starts and
// stops versions; each version has a goroutine of its own until END.
type shelf struct {
	serve func(ctx context.Context, v *version) error // one version's life, until ctx ends

	mu      sync.Mutex
	configs map[string]tfserving.Model
	forced  map[string]bool // configured anew: try failed versions again
	models  map[string]map[int64]*version
	changed chan struct{} // closed at the next change
	ended   uint64

	kick  chan struct{}
	lives sync.WaitGroup
	index atomic.Pointer[index]
}

// index is what requests read: only AVAILABLE versions, newest first.
type index struct {
	models map[string][]*generation
	rows   map[shardKey]*psModel
}

type shardKey struct {
	model string
	shard uint32
}

func newShelf(serve func(context.Context, *version) error) *shelf {
	s := &shelf{
		serve: serve, configs: map[string]tfserving.Model{}, forced: map[string]bool{},
		models: map[string]map[int64]*version{}, changed: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	s.index.Store(&index{})
	return s
}

// splitName takes {model}:{sub} apart; a name without a sub-model is an entry.
func splitName(name string) (model, sub string, shard int, err error) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		return name, "entry", -1, nil
	}
	model, sub = name[:i], name[i+1:]
	if model == "" {
		return "", "", 0, fmt.Errorf("model name %q has nothing in front of the colon; write {model}:{sub-model}", name)
	}
	if sub == "entry" {
		return model, sub, -1, nil
	}
	if digits, ok := strings.CutPrefix(sub, "ps_"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 0 && n < maxShards && strconv.Itoa(n) == digits {
			return model, sub, n, nil
		}
	}
	return "", "", 0, fmt.Errorf("sub-model %q of %q is not served here; use entry or ps_<shard>", sub, model)
}

// configure replaces the whole configuration and returns the names that are new in it.
func (s *shelf) configure(models []tfserving.Model) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]tfserving.Model, len(models))
	var added []string
	s.forced = make(map[string]bool, len(models))
	for _, m := range models {
		if _, ok := s.configs[m.Name]; !ok {
			added = append(added, m.Name)
		}
		s.forced[m.Name] = true
		next[m.Name] = m
	}
	s.configs = next
	s.poke()
	return added
}

func (s *shelf) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run brings what is served in line with the configuration, whenever something changes
// and every poll, until ctx ends; then every version is stopped.
func (s *shelf) run(ctx context.Context, poll time.Duration) {
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

// found are the versions of a model on disk, with the time their directories changed.
type found map[int64]time.Time

func look(m tfserving.Model) found {
	f := found{}
	if len(m.Policy.Versions) > 0 {
		for _, v := range m.Policy.Versions {
			if at, ok := modTime(m.Name, m.BasePath, v); ok {
				f[v] = at
			}
		}
		return f
	}
	versions, err := ckpt.Versions(m.BasePath)
	if err != nil {
		return f // a base path that cannot be read has no versions, as one that is not there
	}
	if !m.Policy.All {
		versions = versions[max(0, len(versions)-max(1, m.Policy.Latest)):]
	}
	for _, v := range versions {
		if at, ok := modTime(m.Name, m.BasePath, v); ok {
			f[v] = at
		}
	}
	return f
}

// modTime finds a version's directory; a serving shard beyond the exported ones has
// none of its own and counts from its siblings'.
func modTime(name, basePath string, v int64) (time.Time, bool) {
	dir := filepath.Join(basePath, strconv.FormatInt(v, 10))
	if at, ok := dirTime(dir); ok {
		return at, true
	}
	if _, _, shard, err := splitName(name); err != nil || shard < 0 {
		return time.Time{}, false
	}
	return dirTime(filepath.Join(filepath.Dir(basePath), "ps_0", strconv.FormatInt(v, 10)))
}

func (s *shelf) reconcile(ctx context.Context) {
	s.mu.Lock()
	configs := maps.Clone(s.configs)
	s.mu.Unlock()
	disk := make(map[string]found, len(configs))
	for name, m := range configs {
		disk[name] = look(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.configs {
		if old, ok := configs[name]; !ok || old.BasePath != m.BasePath || !slices.Equal(old.Policy.Versions, m.Policy.Versions) ||
			old.Policy.Latest != m.Policy.Latest || old.Policy.All != m.Policy.All {
			s.poke() // configured anew meanwhile: look again
			continue
		}
		forced := s.forced[name]
		delete(s.forced, name)
		for number, at := range disk[name] {
			v := s.models[name][number]
			fresh := v == nil || v.state == stateEnd && (v.err == nil || forced || !v.modTime.Equal(at) || v.basePath != m.BasePath)
			if fresh && ctx.Err() == nil {
				s.start(ctx, name, m.BasePath, number, at)
			}
		}
	}
	for name, versions := range s.models {
		m, configured := s.configs[name]
		wanted := func(number int64) bool {
			_, ok := disk[name][number]
			return ok || slices.Contains(m.Policy.Versions, number)
		}
		// An old version goes once a new one answers, or when the model is configured
		// away. What is in memory stays when its files vanish.
		replaced := !configured
		for number, v := range versions {
			replaced = replaced || v.state == stateAvailable && wanted(number)
		}
		for number, v := range versions {
			if (!configured || !wanted(number)) && replaced && v.state != stateEnd && !v.unloaded {
				v.unloaded = true
				v.stop()
			}
		}
	}
}

// start begins a version's life. The caller holds mu.
func (s *shelf) start(ctx context.Context, name, basePath string, number int64, at time.Time) {
	model, sub, shard, err := splitName(name)
	if err != nil {
		return // configure was asked with checked names
	}
	life, stop := context.WithCancel(ctx)
	v := &version{name: name, model: model, sub: sub, shard: shard, number: number, basePath: basePath,
		state: stateStart, modTime: at, stop: stop}
	if s.models[name] == nil {
		s.models[name] = map[int64]*version{}
	}
	s.models[name][number] = v
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
	})
}

func (s *shelf) stateOf(v *version) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.state
}

// set moves v to a state. A generation makes it AVAILABLE with that data.
func (s *shelf) set(v *version, to state, data *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.state, v.data = to, data
	s.reindex()
	s.announce()
}

func (s *shelf) end(v *version, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.state, v.data = stateEnd, nil
	if err != nil {
		v.err = failed(err)
	}
	s.ended++
	v.endedAt = s.ended
	s.forget()
	s.reindex()
	s.announce()
	s.poke()
}

// forget drops the oldest of too many ended versions. The caller holds mu.
func (s *shelf) forget() {
	var ended []*version
	for _, versions := range s.models {
		for _, v := range versions {
			if v.state == stateEnd {
				ended = append(ended, v)
			}
		}
	}
	if len(ended) <= maxEnded {
		return
	}
	slices.SortFunc(ended, func(a, b *version) int { return cmp.Compare(a.endedAt, b.endedAt) })
	for _, v := range ended[:len(ended)-maxEnded] {
		delete(s.models[v.name], v.number)
		if len(s.models[v.name]) == 0 {
			delete(s.models, v.name)
		}
	}
}

// announce wakes whoever waits for a change. The caller holds mu.
func (s *shelf) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// reindex publishes what answers now. The caller holds mu.
func (s *shelf) reindex() {
	x := &index{models: map[string][]*generation{}, rows: map[shardKey]*psModel{}}
	for name, versions := range s.models {
		for _, number := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
			v := versions[number]
			if v.state != stateAvailable {
				continue
			}
			x.models[name] = append(x.models[name], v.data)
			key := shardKey{v.model, uint32(max(0, v.shard))}
			if v.data.ps != nil && x.rows[key] == nil {
				x.rows[key] = v.data.ps
			}
		}
	}
	s.index.Store(x)
}

// wait blocks until each of the models has an available version or only failed ones,
// as the original's reload does.
func (s *shelf) wait(ctx context.Context, stopping <-chan struct{}, names []string) error {
	for _, name := range names {
		for {
			s.mu.Lock()
			changed := s.changed
			settled, err := s.settled(name)
			s.mu.Unlock()
			if err != nil {
				return err
			}
			if settled {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return &loadError{codes.DeadlineExceeded, fmt.Errorf("model %s is not available yet; the configuration stays in force, ask GetModelStatus", name)}
			case <-stopping:
				return &loadError{codes.Unavailable, fmt.Errorf("model %s is not available yet, and the server is stopping; send the configuration to the next one", name)}
			}
		}
	}
	return nil
}

// settled tells whether a model needs no more waiting. The caller holds mu.
func (s *shelf) settled(name string) (bool, error) {
	if _, ok := s.configs[name]; !ok {
		return true, nil // configured away meanwhile
	}
	if s.forced[name] {
		return false, nil // not looked at yet
	}
	var err *loadError
	for _, v := range s.models[name] {
		if v.state != stateEnd && v.state != stateAvailable {
			return false, nil
		}
		if v.state == stateAvailable {
			return true, nil
		}
		if v.err != nil {
			err = v.err
		}
	}
	if err != nil {
		return true, &loadError{err.code, fmt.Errorf("model %s: %w", name, err)}
	}
	return false, nil
}

// alias resolves {model} to {model}:entry where no model has that very name.
func alias[V any](models map[string]V, name string) (V, bool) {
	v, ok := models[name]
	if !ok {
		v, ok = models[name+":entry"]
	}
	return v, ok
}

// status lists the versions of a model, newest first; number 0 means all.
func (s *shelf) status(name string, number int64) []*version {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions, _ := alias(s.models, name)
	var out []*version
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
		if number == 0 || n == number {
			c := *versions[n]
			out = append(out, &c)
		}
	}
	return out
}
