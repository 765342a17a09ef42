package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/process/health"
)

// desk gives one lease at a time; a test loses it, takes it away and gives it to others.
type desk struct {
	mu    *sync.Mutex
	away  error         // of every attempt, nil: it can be had
	other chan struct{} // nil, or closed when somebody else gives the lease back
	lost  chan struct{}
	epoch uint64
	freed int
}

func (d *desk) TryAcquire(_ context.Context, name, _ string, _ time.Duration) (bus.Lease, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.away != nil:
		return bus.Lease{}, nil, d.away
	case d.other != nil:
		return bus.Lease{}, nil, bus.ErrConflict
	}
	d.epoch++
	d.lost = make(chan struct{})
	return bus.Lease{Name: name, Epoch: d.epoch, Lost: d.lost}, func() { d.mu.Lock(); d.freed++; d.mu.Unlock() }, nil
}

func (d *desk) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (bus.Lease, func(), error) {
	d.mu.Lock()
	other := d.other
	d.mu.Unlock()
	select {
	case <-other:
		d.mu.Lock()
		d.other = nil
		d.mu.Unlock()
		return d.TryAcquire(ctx, name, holder, ttl)
	case <-ctx.Done():
		return bus.Lease{}, nil, ctx.Err()
	}
}

// led is a Lead that runs on a desk, whose terms end as a test says. The test looks at it,
// and changes it, between two calls of after, while Lead waits.
type led struct {
	*testing.T
	mu       sync.Mutex
	desk     desk
	health   *health.State
	log      strings.Builder
	end      chan error // of the term
	leading  bool       // each term says that it leads
	terms    []uint64   // their epochs
	causes   []error    // why their contexts ended
	standbys int
	stop     func()
	ended    chan error
}

func lead(t *testing.T, d desk) *led {
	l := &led{T: t, desk: d, health: health.New(), end: make(chan error), ended: make(chan error, 1)}
	l.desk.mu = &l.mu
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	go func() {
		l.ended <- bus.Lead(ctx, bus.Leadership{
			Leases: &l.desk, Lease: "b.writer", Holder: "me", TTL: time.Second,
			Log: slog.New(slog.NewTextHandler(&l.log, nil)), Health: l.health, Problem: "leadership", Standby: func() { l.mu.Lock(); l.standbys++; l.mu.Unlock() },
		}, func(ctx context.Context, term bus.Term) error {
			l.mu.Lock()
			l.terms = append(l.terms, term.Epoch)
			leading := l.leading
			l.mu.Unlock()
			if leading {
				term.Leading()
			}
			select {
			case err := <-l.end:
				return err
			case <-ctx.Done():
				l.mu.Lock()
				l.causes = append(l.causes, context.Cause(ctx))
				l.mu.Unlock()
				return ctx.Err()
			}
		})
	}()
	l.after(0)
	return l
}

// after lets time pass.
func (l *led) after(d time.Duration) {
	l.meet()
	time.Sleep(d)
	synctest.Wait()
	l.meet()
}

// meet has what the test changed happen before what Lead does next, and what Lead did
// before what the test looks at.
func (l *led) meet() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// lose takes the lease away.
func (l *led) lose() {
	close(l.desk.lost)
	l.after(0)
}

func (l *led) problem() string {
	for _, p := range l.health.Problems() {
		return p.Reason
	}
	return ""
}

func (l *led) over() {
	l.Helper()
	l.stop()
	if err := <-l.ended; err != nil {
		l.Error(err)
	}
	if p := l.problem(); p != "" {
		l.Errorf("at the end there is a problem still: %s", p)
	}
}

// longest is longer than any pause between two terms.
const longest = 6 * time.Second

// A lease that is not had is a problem from the third attempt on, until a term leads or has
// lasted for a minute.
func TestLeadWithoutALease(t *testing.T) {
	for _, leading := range []bool{true, false} {
		t.Run(fmt.Sprint("leading ", leading), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lead(t, desk{away: errors.New("the bucket is away")})
				l.leading = leading
				if p := l.problem(); p != "" {
					t.Errorf("after one attempt: %s", p)
				}
				l.after(30 * time.Second)
				if p := l.problem(); p != "the bucket is away" || len(l.terms) != 0 {
					t.Errorf("after many: %q, %d terms", p, len(l.terms))
				}
				l.desk.away = nil
				l.after(longest)
				if p := l.problem(); (p == "") != leading || len(l.terms) != 1 {
					t.Errorf("in a term: %q, %d terms", p, len(l.terms))
				}
				l.over()
				if l.desk.freed != 1 || l.causes[0] != context.Canceled {
					t.Errorf("%d leases given back, the term ended by %v", l.desk.freed, l.causes)
				}
			})
		})
	}
}

// A term ends with its lease; the next one has a higher epoch, and terms that never last
// are a problem.
func TestLeadThroughLostLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t, desk{})
		for n := 1; n <= 4; n++ {
			l.lose()
			if p := l.problem(); (p != "") != (n >= 3) || p != "" && p != "b.writer: the lease was lost" {
				t.Errorf("after %d lost leases: %q", n, p)
			}
			l.after(longest)
		}
		l.after(time.Minute)
		l.lose()
		if p := l.problem(); p != "" {
			t.Errorf("after one that was lost behind a long term: %q", p)
		}
		l.after(longest)
		if fmt.Sprint(l.terms) != "[1 2 3 4 5 6]" || l.desk.freed != 5 {
			t.Errorf("epochs %v, %d leases given back", l.terms, l.desk.freed)
		}
		for _, cause := range l.causes {
			if cause != bus.ErrLeaseLost {
				t.Errorf("a term ended by %v", cause)
			}
		}
		l.over()
	})
}

// Who finds another one leading stands by, which is no problem, and leads once that one
// gives way.
func TestLeadStandsBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := make(chan struct{})
		l := lead(t, desk{other: other})
		l.after(time.Hour)
		if l.standbys != 1 || l.problem() != "" || len(l.terms) != 0 {
			t.Errorf("it stood by %d times, %q, %d terms", l.standbys, l.problem(), len(l.terms))
		}
		close(other)
		l.after(0)
		if len(l.terms) != 1 {
			t.Errorf("%d terms", len(l.terms))
		}
		l.over()
	})
}

// What a term ends with decides how it goes on: a fenced one and one without an error try
// again and are no problem, others are; who resigns leads no more.
func TestLeadByTheTermsEnd(t *testing.T) {
	for _, tc := range []struct {
		name    string
		err     error
		problem string
		log     string
	}{
		{"without an error", nil, "", ""},
		{"fenced", fmt.Errorf("x: %w", bus.ErrFenced), "", "fenced"},
		{"another error", errors.New("no disk"), "no disk", "not leading; trying again"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lead(t, desk{})
				for range 3 {
					l.end <- tc.err
					l.after(longest)
				}
				if p := l.problem(); p != tc.problem || len(l.terms) != 4 || l.desk.freed != 3 {
					t.Errorf("problem %q, %d terms, %d leases given back", p, len(l.terms), l.desk.freed)
				}
				if got := l.log.String(); !strings.Contains(got, tc.log) || tc.log == "" && got != "" {
					t.Errorf("log %q", got)
				}
				l.over()
			})
		})
	}
	t.Run("resigned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := lead(t, desk{})
			l.end <- fmt.Errorf("the job was stopped: %w", bus.ErrResigned)
			l.after(longest)
			if len(l.terms) != 1 || l.desk.freed != 1 {
				t.Errorf("%d terms, %d leases given back", len(l.terms), l.desk.freed)
			}
			l.over()
		})
	})
}
