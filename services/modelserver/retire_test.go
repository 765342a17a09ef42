package modelserver

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

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// library is servables whose versions load until they are told to answer.
type library struct {
	*servables
	t   *testing.T
	dir string

	mu      sync.Mutex
	loading map[int64]chan struct{} // closed: it answers from then on
}

func newLibrary(t *testing.T) *library {
	l := &library{t: t, dir: t.TempDir(), loading: map[int64]chan struct{}{}}
	l.servables = newServables(func(ctx context.Context, v *version) error {
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
			l.set(v, stateAvailable, &servable{entry: &entryModel{}})
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
	go func() { defer close(done); l.run(ctx, time.Millisecond) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// want configures one version alone, and waits until it is looked at.
func (l *library) want(n int64) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Join(l.dir, strconv.FormatInt(n, 10)), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.configure([]tfserving.Model{{Name: "m:entry", BasePath: l.dir, Policy: tfserving.Policy{Versions: []int64{n}}}})
	wait.Until(l.t, "it is looked at", func() error {
		if len(l.status("m:entry", n)) == 0 {
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
		for _, v := range l.status("m:entry", 0) {
			if v.state != stateEnd {
				got = append(got, fmt.Sprint(v.number, v.state))
			}
		}
		if want := []string{"12 AVAILABLE"}; !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// Reading waits for its share of --load-bytes; a version that is not wanted any more
// leaves the queue.
func TestReadsAreBoundedByBytes(t *testing.T) {
	dir := t.TempDir()
	spec := modelspec.MovieRanking()
	e := &checkpoint.Entry{Spec: spec, Version: 1, Job: "job", Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	if err := checkpoint.WriteEntry(filepath.Join(dir, "1"), e); err != nil {
		t.Fatal(err)
	}
	size, err := checkpoint.DirSize(filepath.Join(dir, "1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]int64{"one at a time": size + size/2, "one that is greater than all": size / 2} {
		r := newReads(limit)
		done, err := r.take(t.Context(), filepath.Join(dir, "1"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		loaded := make(chan error, 1)
		go func() {
			_, err := r.loadEntry(ctx, "m", dir, 1, target{})
			loaded <- err
		}()
		select {
		case err := <-loaded:
			t.Fatalf("%s: a second load did not wait: %v", name, err)
		case <-time.After(20 * time.Millisecond):
		}
		cancel()
		if err := <-loaded; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a load that nobody waits for: %v", name, err)
		}
		done()
		if _, err := r.loadEntry(t.Context(), "m", dir, 1, target{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
