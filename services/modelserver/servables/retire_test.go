package servables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// retireNow is when the versions of TestRetire are looked at, and retireLinger how long rows
// go on after the last question.
var retireNow = time.Unix(1000, 0)

const retireLinger = 10 * time.Second

// retires holds the versions that are stopped against those that should be.
func retires(t *testing.T, versions map[int64]*version, wanted []int64, gone bool, want []int64) {
	s := newManager(nil, retireLinger, health.New())
	var stopped []int64
	before := map[int64]bool{}
	for n, v := range versions {
		v.number, before[n] = n, v.unloaded
		v.stop = func() { stopped = append(stopped, n) }
	}
	for range 20 { // versions are looked at in any order
		again := map[int64]*version{}
		for n, v := range versions {
			c := *v
			c.stop = func() {
				if !slices.Contains(want, n) {
					t.Errorf("version %d is stopped", n)
				}
			}
			again[n] = &c
		}
		s.retire(again, retireNow, !gone, func(n int64) bool { return slices.Contains(wanted, n) })
	}
	s.retire(versions, retireNow, !gone, func(n int64) bool { return slices.Contains(wanted, n) })
	slices.Sort(stopped)
	if !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
	for n, v := range versions {
		if unloaded := before[n] || slices.Contains(want, n); v.unloaded != unloaded {
			t.Errorf("version %d is unloaded: %v", n, v.unloaded)
		}
		if slices.Contains(wanted, n) && !gone && !v.unwanted.IsZero() {
			t.Errorf("version %d is wanted, and unwanted since %v", n, v.unwanted)
		}
	}
}

// Which of several versions of a model go.
func TestRetire(t *testing.T) {
	now := retireNow
	ps := func(asked time.Time) *servable {
		m := &rows.Shard{}
		m.Ask(asked)
		return &servable{ps: m}
	}
	scores := &servable{entry: &entry.Model{}}
	const linger = retireLinger
	long, short := now.Add(-linger), now.Add(-linger+1)
	type vs = map[int64]*version
	for name, tc := range map[string]struct {
		versions vs
		wanted   []int64
		gone     bool // not configured any more
		stopped  []int64
	}{
		"nothing is configured":          {vs{1: {state: stateAvailable, data: scores, settled: true}, 2: {state: stateLoading}}, nil, true, []int64{1, 2}},
		"all are wanted":                 {vs{1: {state: stateAvailable, data: scores, settled: true}, 2: {state: stateLoading}}, []int64{1, 2}, false, nil},
		"a wanted one answers":           {vs{1: {state: stateAvailable, data: scores, settled: true}, 2: {state: stateAvailable, data: scores, settled: true}}, []int64{2}, false, []int64{1}},
		"a wanted one is not settled":    {vs{1: {state: stateAvailable, data: scores, settled: true, begunAt: 1}, 2: {state: stateAvailable, data: scores, begunAt: 2}}, []int64{2}, false, nil},
		"a wanted one loads":             {vs{1: {state: stateAvailable, data: scores, settled: true}, 2: {state: stateLoading}}, []int64{2}, false, nil},
		"its files vanish":               {vs{1: {state: stateAvailable, data: scores, settled: true}}, nil, false, nil},
		"one that loads beside another":  {vs{1: {state: stateAvailable, data: scores, settled: true}, 2: {state: stateLoading}}, []int64{1}, false, []int64{2}},
		"only the first load goes on":    {vs{1: {state: stateStart, begunAt: 5}, 2: {state: stateLoading, begunAt: 4}, 3: {state: stateLoading, begunAt: 6}}, []int64{9}, false, []int64{1, 3}},
		"the first was stopped":          {vs{1: {state: stateLoading, begunAt: 5}, 2: {state: stateLoading, begunAt: 4, unloaded: true}}, []int64{9}, false, nil},
		"what has ended stays":           {vs{1: {state: stateEnd}, 2: {state: stateAvailable, data: scores, settled: true}}, []int64{2}, false, nil},
		"what is stopped stays":          {vs{1: {state: stateUnloading, unloaded: true}, 2: {state: stateAvailable, data: scores, settled: true}}, []int64{2}, true, []int64{2}},
		"an unsettled older one":         {vs{1: {state: stateAvailable, data: scores, begunAt: 1}, 2: {state: stateAvailable, data: scores, begunAt: 2}}, []int64{2}, false, []int64{1}},
		"an unsettled one beside a load": {vs{1: {state: stateAvailable, data: scores, begunAt: 1}, 2: {state: stateLoading, begunAt: 2}}, []int64{2}, false, nil},
		"rows somebody asks for": {vs{1: {state: stateAvailable, data: ps(now), settled: true, unwanted: long},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
		"rows not long enough unwanted": {vs{1: {state: stateAvailable, data: ps(long), settled: true, unwanted: short},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
		"rows asked for too lately": {vs{1: {state: stateAvailable, data: ps(short), settled: true, unwanted: long},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
		"rows nobody asks for": {vs{1: {state: stateAvailable, data: ps(long), settled: true, unwanted: long},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, []int64{1}},
		"rows just replaced": {vs{1: {state: stateAvailable, data: ps(long), settled: true},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			retires(t, tc.versions, tc.wanted, tc.gone, tc.stopped)
		})
	}
	v := &version{state: stateAvailable, data: ps(now), settled: true, unwanted: long, stop: func() {}}
	newManager(nil, linger, health.New()).retire(vs{1: v}, now, true, func(int64) bool { return true })
	if !v.unwanted.IsZero() {
		t.Error("wanted again, and its time goes on")
	}
}

// library is servables whose versions load until they are told to answer.
type library struct {
	*Manager
	t   *testing.T
	dir string

	mu      sync.Mutex
	loading map[int64]chan struct{} // closed: it answers from then on
}

func newLibrary(t *testing.T) *library {
	l := &library{t: t, dir: t.TempDir(), loading: map[int64]chan struct{}{}}
	l.Manager = newManager(func(ctx context.Context, v *version) error {
		answer := make(chan struct{})
		l.mu.Lock()
		l.loading[v.number] = answer
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			delete(l.loading, v.number)
			l.mu.Unlock()
		}()
		select {
		case <-answer:
			l.set(v, stateAvailable, &servable{entry: &entry.Model{}})
			l.settle(v)
			l.mu.Lock()
			delete(l.loading, v.number)
			l.mu.Unlock()
			<-ctx.Done()
		case <-ctx.Done():
		}
		return ctx.Err()
	}, time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx, time.Millisecond) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// want configures one version alone, and waits until it is looked at.
func (l *library) want(n int64) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Join(l.dir, strconv.FormatInt(n, 10)), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.Configure([]tfserving.Model{{Name: "m:entry", BasePath: l.dir, Policy: tfserving.Policy{Versions: []int64{n}}}})
	wait.Until(l.t, "it is looked at", func() error {
		if len(l.Status("m:entry", n)) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

func (l *library) untilLoading(want ...int64) {
	l.t.Helper()
	wait.Until(l.t, "loading", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if got := slices.Sorted(maps.Keys(l.loading)); !slices.Equal(got, want) {
			return fmt.Errorf("versions %v load, want %v", got, want)
		}
		return nil
	})
}

func (l *library) answer(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.loading[n])
}

func TestVersionsThatNobodyWantsStopLoading(t *testing.T) {
	l := newLibrary(t)
	for n := range int64(10) {
		l.want(n + 1)
	}
	// The first may go on while nothing answers, or wishes that change faster than a
	// load takes would leave nothing to answer at all.
	l.untilLoading(1, 10)
	l.answer(1)
	l.untilLoading(10)
	l.want(11)
	l.untilLoading(11) // 1 answers meanwhile
	l.want(12)
	l.untilLoading(12)
	l.answer(12)
	wait.Until(l.t, "the new one alone", func() error {
		var got []string
		for _, v := range l.Status("m:entry", 0) {
			if v.State != stateEnd {
				got = append(got, fmt.Sprint(v.Version, v.State))
			}
		}
		if want := []string{"12 AVAILABLE"}; !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}
