package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// counted writes for a shard of the counting model.
func counted(b bus.Deltas, newest func(context.Context) (uint64, error)) *Publisher {
	return New(Config{BZID: pstest.BZID, Job: pstest.Job, Shards: 1, Spec: pstest.Counting(), DenseRate: 8 << 20}, b, nil, newest)
}

// Large variables go out as seldom as their rate says, at the latest when applies have paused
// for so long; small ones as ever.
func TestDenseVariablesKeepTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{BZID: pstest.BZID, Job: pstest.Job, Shards: 2, Spec: pstest.Deep(), DenseRate: 8 << 20}, nil, nil, nil)
		bytes := 0
		for _, v := range modelspec.Variables(pstest.Deep()) {
			bytes += 4 * v.Size
		}
		if want := time.Duration(bytes) * time.Second / (8 << 20); p.pause.Round(time.Microsecond) != want.Round(time.Microsecond) {
			t.Errorf("%d bytes go out each %v, want %v", bytes, p.pause, want)
		}
		due, begin := p.Due(2), time.Now()
		var at []time.Duration
		for i := range 60 { // 20 ms each: 40 with applies, then a pause
			if due(max(0, 40-i)) {
				at = append(at, time.Since(begin))
			}
			time.Sleep(20 * time.Millisecond)
		}
		if want := []time.Duration{20 * time.Millisecond, 360 * time.Millisecond, 700 * time.Millisecond, 1040 * time.Millisecond}; !slices.Equal(at, want) {
			t.Errorf("variables of %v went out at %v, want %v", p.pause, at, want)
		}
		if small := counted(nil, nil); small.pause > time.Millisecond {
			t.Errorf("few variables wait %v", small.pause)
		}
	})
}

// Variables go along with every n-th publication that holds applies, and after a pause.
func TestWhenVariablesAreDue(t *testing.T) {
	p := &Publisher{}
	due := p.Due(3)
	var got []bool
	for _, applies := range []int{1, 5, 1, 1, 0, 1, 1, 1, 0} {
		got = append(got, due(applies))
	}
	if want := []bool{false, false, true, false, true, false, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("due %v, want %v", got, want)
	}
}

// forgetful is a stream that has discarded the subject's last message.
type forgetful struct {
	bus.Deltas
	last      uint64
	published []uint64 // expected by the calls
	stored    bus.StoredDelta
}

func (f *forgetful) LastOf(context.Context, string) (uint64, error) { return f.last, nil }

func (f *forgetful) Get(context.Context, uint64) (bus.StoredDelta, error) { return f.stored, nil }

func (f *forgetful) Publish(_ context.Context, d ...bus.DeltaDraft) (uint64, error) {
	f.published = append(f.published, d[0].Expect)
	if d[0].Expect != f.last {
		return 0, bus.ErrConflict
	}
	f.last = 100
	return 100, nil
}

func TestConflictsAreToldApart(t *testing.T) {
	newest := uint64(3)
	send := func(d *forgetful) (*Publisher, error) {
		p := counted(d, func(context.Context) (uint64, error) { return newest, nil })
		p.Begin(3, map[string]uint64{p.rows: 40})
		p.queue = [][]bus.DeltaDraft{{{Subject: p.rows, Data: []byte("first")}, {Subject: p.rows, Data: []byte("last")}}}
		return p, p.send(t.Context())
	}
	discarded := &forgetful{last: 0}
	if p, err := send(discarded); err != nil || p.Seq() != 100 || len(p.queue) != 0 || fmt.Sprint(discarded.published) != "[40 0]" {
		t.Errorf("the expected message was discarded: %v after calls that expected %v", err, discarded.published)
	}
	own := &forgetful{last: 42, stored: bus.StoredDelta{Seq: 42, Data: []byte("last")}}
	if p, err := send(own); err != nil || p.Seq() != 42 || len(p.queue) != 0 {
		t.Errorf("stored by a call whose answer was lost: %v", err)
	}
	stranger := &forgetful{last: 42, stored: bus.StoredDelta{Seq: 42, Data: []byte("of nobody")}}
	if p, err := send(stranger); err != nil || p.Seq() != 100 || fmt.Sprint(stranger.published) != "[40 42]" {
		t.Errorf("a stranger has written: %v after calls that expected %v", err, stranger.published)
	}
	newest = 4
	successor := &forgetful{last: 42, stored: bus.StoredDelta{Seq: 42, Data: []byte{}}}
	if _, err := send(successor); !errors.Is(err, ErrFenced) {
		t.Errorf("a successor has written: %v, want ErrFenced", err)
	}
}

// A writer behind whom nobody has written need not ask the facts whether it is followed.
func TestAWriterAloneAsksNobody(t *testing.T) {
	asked, newest := 0, uint64(3)
	d := &forgetful{last: 40}
	p := counted(d, func(context.Context) (uint64, error) { asked++; return newest, nil })
	p.Begin(3, map[string]uint64{p.rows: 40, p.vars: 40})
	for _, tc := range []struct {
		last, newest uint64
		asked        int
		fenced       bool
	}{{40, 3, 0, false}, {39, 3, 0, false}, {41, 3, 2, false}, {41, 4, 2, false}, {42, 4, 3, true}} {
		d.last, newest = tc.last, tc.newest
		if err := p.Unfenced(t.Context()); errors.Is(err, ErrFenced) != tc.fenced || !tc.fenced && err != nil || asked != tc.asked {
			t.Errorf("the subjects end at %d, epoch %d is the newest: %v after %d questions, want %d", tc.last, tc.newest, err, asked, tc.asked)
		}
	}
}
