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

	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

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

// version is one version of one configured model. The mutex of servables guards what is not
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
	data     *servable
	begunAt  uint64    // orders the loads
	endedAt  uint64    // orders the forgetting
	settled  bool      // all that it needs to answer is there: others may go
	unwanted time.Time // since when it only answers who still asks for it; zero: it is wanted
	stop     context.CancelFunc
	unloaded bool // stop was called
}

// loading says that v does not answer yet, and may.
func (v *version) loading() bool { return v.state == stateStart || v.state == stateLoading }

// servables holds what is configured and what became of it. One goroutine, run, starts and
// stops versions; each version has a goroutine of its own until END.
type servables struct {
	serve   func(ctx context.Context, v *version) error // one version's life, until ctx ends
	linger  time.Duration                               // how long rows answer after the last entry asked for them
	health  *health.State
	expects func(name string) bool // see index; fixed before run

	mu      sync.Mutex
	configs map[string]tfserving.Model
	// configured counts the configurations.
	configured uint64
	forced     map[string]bool // configured anew: try failed versions again
	models     map[string]map[int64]*version
	attempts   map[string]*health.Attempts // at loading, by name
	changed    chan struct{}               // closed at the next change
	count      uint64                      // of beginnings and ends

	kick  chan struct{}
	lives sync.WaitGroup
	index atomic.Pointer[index]
}

// index is what requests read: only AVAILABLE versions, newest first, and why others are
// not among them.
type index struct {
	models map[string][]*servable
	rows   map[shardKey][]*psModel
	absent map[string]map[int64]string // of configured models: what keeps a version from answering

	expects func(name string) bool // it is to be served here, configured or not; nil: nobody knows
}

type shardKey struct {
	model string
	shard uint32
}

func newServables(serve func(context.Context, *version) error, linger time.Duration, well *health.State) *servables {
	s := &servables{
		serve: serve, linger: linger, health: well, attempts: map[string]*health.Attempts{}, configs: map[string]tfserving.Model{}, forced: map[string]bool{},
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

// configure replaces the whole configuration and returns the names that are new in it. A
// sub-model that is not served here has ended with the reason, and keeps nobody else.
func (s *servables) configure(models []tfserving.Model) []string {
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
		if _, _, _, err := splitName(m.Name); err != nil {
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
func (s *servables) refuse(m tfserving.Model, err *loadError) {
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

func (s *servables) notify() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run brings what is served in line with the configuration, whenever something changes
// and every poll, until ctx ends; then every version is stopped.
func (s *servables) run(ctx context.Context, poll time.Duration) {
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

func scanVersions(m tfserving.Model) found {
	f := found{}
	if len(m.Policy.Versions) > 0 {
		for _, v := range m.Policy.Versions {
			if at, ok := modTime(m.Name, m.BasePath, v); ok {
				f[v] = at
			}
		}
		return f
	}
	versions, err := checkpoint.Versions(m.BasePath)
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

func (s *servables) reconcile(ctx context.Context) {
	s.mu.Lock()
	configs, looked := maps.Clone(s.configs), s.configured
	s.mu.Unlock()
	disk := make(map[string]found, len(configs))
	for name, m := range configs {
		disk[name] = scanVersions(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.configured != looked {
		s.notify() // configured anew meanwhile: look again
		return
	}
	for name, m := range s.configs {
		model, sub, shard, err := splitName(name)
		if err != nil {
			continue // refused when it was configured
		}
		forced := s.forced[name]
		delete(s.forced, name)
		for number, at := range disk[name] {
			v := s.models[name][number]
			fresh := v == nil || v.state == stateEnd && (v.err == nil || forced || !v.modTime.Equal(at) || v.basePath != m.BasePath)
			if fresh && ctx.Err() == nil {
				s.start(ctx, &version{name: name, model: model, sub: sub, shard: shard, number: number, basePath: m.BasePath, modTime: at})
			}
		}
	}
	now := time.Now()
	for name, versions := range s.models {
		m, configured := s.configs[name]
		s.retire(versions, now, configured, func(number int64) bool {
			_, ok := disk[name][number]
			return ok || slices.Contains(m.Policy.Versions, number)
		})
	}
}

// retire stops versions of one model that are not wanted. One that answers goes once a
// wanted one can take its place, and rows not before the last entry has ceased to ask for
// them; what is in memory stays when its files vanish. One that loads goes at once,
// except that the first of them may go on while nothing else answers: where wishes change
// faster than a load takes, none would ever end. The caller holds mu.
func (s *servables) retire(versions map[int64]*version, now time.Time, configured bool, wanted func(number int64) bool) {
	var first, newest *version
	answers, replaced := false, false
	for number, v := range versions {
		answers = answers || v.state == stateAvailable
		if v.state == stateAvailable && (newest == nil || v.begunAt > newest.begunAt) {
			newest = v
		}
		replaced = replaced || v.state == stateAvailable && v.settled && wanted(number)
		if v.loading() && !v.unloaded && (first == nil || v.begunAt < first.begunAt) {
			first = v
		}
	}
	for number, v := range versions {
		if v.state == stateEnd || v.unloaded {
			continue
		}
		stop := !configured
		switch {
		case stop:
		case wanted(number):
			v.unwanted = time.Time{}
		case v.loading():
			stop = answers || v != first
		case v.state == stateAvailable && !v.settled && newest != v:
			stop = true // it never had what it needs, and a newer one waits for the same
		case replaced:
			if v.unwanted.IsZero() {
				v.unwanted = now
			}
			stop = v.data == nil || v.data.ps == nil || now.Sub(v.unwanted) >= s.linger && now.Sub(v.data.ps.lastAsked()) >= s.linger
		}
		if stop {
			v.unloaded = true
			v.stop()
		}
	}
}

// start begins a version's life. The caller holds mu.
func (s *servables) start(ctx context.Context, v *version) {
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
	})
}

func (s *servables) stateOf(v *version) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.state
}

// set moves v to a state. A servable makes it AVAILABLE with that data.
func (s *servables) set(v *version, to state, data *servable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.state, v.data = to, data
	v.settled = v.settled || data != nil && data.ps != nil // rows need nobody else
	if to == stateAvailable {
		s.works(v.name)
	}
	s.reindex()
	s.announce()
}

// loading are the attempts to load a model since the last that succeeded. The caller holds mu.
func (s *servables) loading(name string) *health.Attempts {
	a := s.attempts[name]
	if a == nil {
		a = s.health.Attempts("load " + name)
		s.attempts[name] = a
	}
	return a
}

// works forgets the failures of a model. The caller holds mu.
func (s *servables) works(name string) {
	s.loading(name).Succeeded()
	delete(s.attempts, name)
}

// settle notes that v has all that it needs to answer.
func (s *servables) settle(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.settled {
		v.settled = true
		s.notify()
	}
}

func (s *servables) end(v *version, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.state, v.data = stateEnd, nil
	if err != nil {
		v.err = failed(err)
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

// forget drops the oldest of too many ended versions. The caller holds mu.
func (s *servables) forget() {
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
func (s *servables) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// reindex publishes what answers now. The caller holds mu.
func (s *servables) reindex() {
	x := &index{models: map[string][]*servable{}, rows: map[shardKey][]*psModel{}, expects: s.expects, absent: map[string]map[int64]string{}}
	for name := range s.configs {
		x.absent[name] = map[int64]string{}
	}
	for name, versions := range s.models {
		if _, configured := s.configs[name]; !configured {
			continue // whoever was told that it is gone must not be answered by it
		}
		for _, number := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
			v := versions[number]
			if v.state != stateAvailable {
				if absent := x.absent[name]; absent != nil && (v.loading() || v.err != nil) {
					absent[number] = v.state.String()
					if v.err != nil {
						absent[number] += ": " + v.err.Error()
					}
				}
				continue
			}
			x.models[name] = append(x.models[name], v.data)
			if v.data.ps != nil {
				key := shardKey{v.model, uint32(v.shard)}
				x.rows[key] = append(x.rows[key], v.data.ps)
			}
		}
	}
	s.index.Store(x)
}

// wait blocks until each of the models has an available version or only failed ones,
// as the original's reload does, and returns the first failure.
func (s *servables) wait(ctx context.Context, stopping <-chan struct{}, names []string) error {
	var failure error
	for _, name := range names {
		for {
			s.mu.Lock()
			changed := s.changed
			settled, err := s.settled(name)
			s.mu.Unlock()
			if settled {
				failure = cmp.Or(failure, err)
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
	return failure
}

// settled tells whether a model needs no more waiting. The caller holds mu.
func (s *servables) settled(name string) (bool, error) {
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
func (s *servables) status(name string, number int64) []*version {
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
