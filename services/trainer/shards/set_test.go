package shards

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// The shards are there once each is ready and healthy, and are others once one came back as
// another process or in another timeline.
func TestWhetherTheShardsAreThere(t *testing.T) {
	w := setOf(t, 2)
	var ids []string
	check := func(what string, there, another bool, addrs ...string) {
		t.Helper()
		w.caughtUp()
		id, complete := w.set.Incarnation()
		if complete != there {
			t.Errorf("%s: the shards are there: %v", what, complete)
		}
		if len(ids) > 0 && (id != ids[len(ids)-1]) != another {
			t.Errorf("%s: %q, they were %q", what, id, ids[len(ids)-1])
		}
		ids = append(ids, id)
		for i, want := range addrs {
			if addr, _, err := w.set.Address(i); err != nil || addr != want {
				t.Errorf("%s: shard %d is at %q, %v; want %q", what, i, addr, err, want)
			}
		}
	}
	check("none", false, false, "", "")
	w.ready(1, 2, 1, 0, "h:2")
	check("the second", false, true, "", "h:2")
	w.ready(0, 2, 1, 0, "h:1")
	check("both", true, true, "h:1", "h:2")
	w.unhealthy(0, 1)
	check("the first fails", false, false, "", "h:2")
	w.ready(0, 2, 2, 0, "h:3")
	check("it is back", true, true, "h:3", "h:2")
	w.unhealthy(1, 1)
	check("the second fails", false, false, "h:3", "")
	w.ready(1, 2, 1, 4, "h:2")
	check("in another generation", true, true, "h:3", "h:2")
	w.ready(0, 3, 3, 0, "h:1")
	w.caughtUp()
	if _, _, err := w.set.Address(0); err == nil || !strings.Contains(err.Error(), "start it with --shards 3") {
		t.Errorf("one of three: %v", err)
	}
	if err := w.set.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "--shards 3") {
		t.Errorf("one of three is waited for: %v", err)
	}
}

// A shard that does not answer is asked again and again, and told of after ten attempts; what
// it refuses is the caller's to see at once.
func TestAShardIsAskedUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setOf(t, 1)
		attempts, ended := 0, make(chan error, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := func() {
			attempts = 0
			go func() {
				_, err := Call(ctx, w.set, 0, func(context.Context, rowwire.Conn) (int, error) { attempts++; return 0, nil })
				ended <- err
			}()
			synctest.Wait()
		}
		begin()
		w.says("at once", "shard 0", "")
		time.Sleep(500 * time.Millisecond) // 100, 200, 400 ms, each up to a half less
		w.says("after a few attempts", "shard 0", "")
		time.Sleep(15 * time.Second)
		w.says("after many", "shard 0", "it is not there, or not ready")
		cancel(ErrMoved)
		if err := <-ended; !errors.Is(err, ErrMoved) {
			t.Errorf("after the end of ctx: %v", err)
		}
		w.set.answers(0, nil)
		w.says("answered", "shard 0", "")
		w.set.answers(1, errors.New("nobody knows it")) // none of this trainer's
		if got := w.well.Problems(); len(got) != 0 {
			t.Errorf("problems %v", got)
		}
		if attempts != 0 {
			t.Errorf("it was asked %d times without an address", attempts)
		}
	})
}

// What follows shards ends once one is another, and not before.
func TestFollowingShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setOf(t, 2)
		w.ready(0, 1, 1, 0, "h:1")
		w.caughtUp()
		followed, stop := w.set.Follow(t.Context())
		defer stop()
		first, stopFirst := w.set.FollowOne(t.Context(), 0)
		defer stopFirst()
		second, stopSecond := w.set.FollowOne(t.Context(), 1)
		defer stopSecond()
		w.unhealthy(0, 1)
		w.ready(0, 1, 1, 0, "h:1") // the same
		synctest.Wait()
		if followed.Err() != nil {
			t.Errorf("the same shard: %v", context.Cause(followed))
		}
		w.ready(0, 1, 2, 0, "h:1")
		synctest.Wait()
		if !errors.Is(context.Cause(followed), ErrMoved) {
			t.Errorf("another one: %v", context.Cause(followed))
		}
		if !errors.Is(context.Cause(first), ErrMoved) || second.Err() != nil {
			t.Errorf("the first alone is another: %v, the second: %v", context.Cause(first), context.Cause(second))
		}
	})
}

// Nine attempts in vain are told nobody, the tenth is. Whatever changes in the fleet is an attempt at once.
func TestTheTenthAttemptIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setOf(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := Call(ctx, w.set, 0, func(context.Context, rowwire.Conn) (int, error) { return 0, nil })
			ended <- err
		}()
		synctest.Wait()
		for attempt := uint64(2); attempt <= illAfter; attempt++ {
			w.says("after nine attempts or fewer", "shard 0", "")
			w.ready(1, 2, attempt, 0, "h:2")
			w.caughtUp()
			synctest.Wait()
		}
		w.says("after ten", "shard 0", "it is not there, or not ready")
		cancel()
		<-ended
	})
}

// refusing answers how far it is with one error after the other, and then as it should.
type refusing struct {
	rowwire.Handler
	errs  []error
	asked atomic.Int32
}

func (r *refusing) Offsets(context.Context, *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	if n := int(r.asked.Add(1)); n <= len(r.errs) {
		return nil, r.errs[n-1]
	}
	return &rowwire.OffsetsResponse{Step: 7}, nil
}

// A request that a shard could not answer is repeated; one that it refuses is not, since the answer
// would be the same.
func TestWhatIsAskedAgain(t *testing.T) {
	away, gap := rowwire.Errorf(rowwire.Unavailable, "starting"), rowwire.Errorf(rowwire.Gap, "a gap")
	for name, tc := range map[string]struct {
		errs  []error
		code  rowwire.Code // 0: it is answered
		asked int32
	}{
		"answered": {nil, 0, 1}, "away": {[]error{away, away}, 0, 3}, "refused": {[]error{gap}, rowwire.Gap, 1}, "away, then refused": {[]error{away, gap}, rowwire.Gap, 2},
	} {
		w := setOf(t, 1)
		shard := &refusing{errs: tc.errs}
		w.answer(0, shard)
		w.caughtUp()
		all, err := w.set.Offsets(t.Context())
		if code := rowwire.CodeOf(err); err != nil && code != tc.code || (err == nil) != (tc.code == 0) || shard.asked.Load() != tc.asked {
			t.Errorf("%s: %v after %d requests, want %v after %d", name, err, shard.asked.Load(), tc.code, tc.asked)
		}
		if err == nil && all[0].Step != 7 {
			t.Errorf("%s: answered %+v", name, all[0])
		}
	}
}
