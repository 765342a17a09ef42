package ps

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

type reached struct {
	shardcmd.BarrierResponse
	err error
}

func meet(b *barriers, r shardcmd.BarrierRequest) <-chan reached {
	ch := make(chan reached, 1)
	go func() {
		a, err := b.wait(context.Background(), r)
		ch <- reached{a, err}
	}()
	return ch
}

func at(worker string, n int) shardcmd.BarrierRequest {
	return shardcmd.BarrierRequest{ID: "epoch", Worker: worker, NumWorkers: n}
}

func TestBarrierRoundAfterRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b barriers
		for round := uint64(1); round <= 3; round++ {
			first, again := meet(&b, at("a", 3)), meet(&b, at("a", 3))
			second := meet(&b, at("b", 3))
			synctest.Wait()
			select {
			case r := <-first:
				t.Fatalf("round %d: two of three workers were enough: %+v", round, r)
			default:
			}
			named := at("c", 3) // who counts the rounds himself meets those who do not
			named.Round = round
			third := meet(&b, named)
			for _, ch := range []<-chan reached{first, again, second, third} {
				if r := <-ch; r.err != nil || r.Round != round || fmt.Sprint(r.Workers) != "[a b c]" {
					t.Errorf("round %d: %+v", round, r)
				}
			}
		}
		late := at("a", 3)
		late.Round = 3
		if r := <-meet(&b, late); r.err != nil || r.Round != 3 || len(r.Workers) != 3 {
			t.Errorf("a round that is over: %+v", r)
		}
	})
}

func TestBarrierTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b barriers
		hurried := at("a", 2)
		hurried.TimeoutMS = 100
		began := time.Now()
		r := <-meet(&b, hurried)
		if pstest.Code(r.err) != "UNAVAILABLE" || !strings.Contains(r.err.Error(), "1 of 2 workers") || time.Since(began) != 100*time.Millisecond {
			t.Errorf("alone: %v after %v", r.err, time.Since(began))
		}
		// Who gave up no longer counts: b alone does not end the round.
		second := meet(&b, at("b", 2))
		synctest.Wait()
		select {
		case r := <-second:
			t.Fatalf("a worker that gave up was counted: %+v", r)
		default:
		}
		if r := <-meet(&b, at("a", 2)); r.err != nil || r.Round != 1 {
			t.Errorf("asked again: %+v", r)
		}
		if r := <-second; r.err != nil || r.Round != 1 {
			t.Errorf("the one that waited: %+v", r)
		}
		began = time.Now()
		if r := <-meet(&b, at("a", 2)); pstest.Code(r.err) != "UNAVAILABLE" || time.Since(began) != maxBarrierWait {
			t.Errorf("without a time-out of its own: %v after %v", r.err, time.Since(began))
		}
	})
}

func TestBarrierRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b barriers
		waiting := meet(&b, at("a", 2))
		synctest.Wait()
		for name, tc := range map[string]struct {
			r    shardcmd.BarrierRequest
			code string
			want string
		}{
			"nobody to wait for": {shardcmd.BarrierRequest{ID: "x", Worker: "a"}, "INVALID", "0 workers"},
			"no name":            {shardcmd.BarrierRequest{Worker: "a", NumWorkers: 1}, "INVALID", "names"},
			"no worker":          {shardcmd.BarrierRequest{ID: "x", NumWorkers: 1}, "INVALID", "names"},
			"backwards in time":  {shardcmd.BarrierRequest{ID: "x", Worker: "a", NumWorkers: 1, TimeoutMS: -1}, "INVALID", "time-out"},
			"another number":     {at("b", 3), "CONFLICT", "waits for 2 workers"},
			"another round":      {shardcmd.BarrierRequest{ID: "epoch", Worker: "b", NumWorkers: 2, Round: 9}, "CONFLICT", "is in round 1"},
		} {
			if r := <-meet(&b, tc.r); pstest.Code(r.err) != tc.code || !strings.Contains(r.err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s about %q", name, r.err, tc.code, tc.want)
			}
		}
		if r := <-meet(&b, at("b", 2)); r.err != nil {
			t.Errorf("the round was spoilt: %v", r.err)
		}
		if r := <-waiting; r.err != nil {
			t.Error(r.err)
		}
	})
}

func TestBarriersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b barriers
		var waiting []<-chan reached
		for i := range maxBarriers - 1 {
			waiting = append(waiting, meet(&b, shardcmd.BarrierRequest{ID: fmt.Sprint(i), Worker: "a", NumWorkers: 2}))
		}
		for i := range 3 { // each takes the place of the one before
			if r := <-meet(&b, shardcmd.BarrierRequest{ID: fmt.Sprint("idle", i), Worker: "a", NumWorkers: 1}); r.err != nil {
				t.Fatal(r.err)
			}
		}
		last := meet(&b, shardcmd.BarrierRequest{ID: "last", Worker: "a", NumWorkers: 2})
		synctest.Wait()
		if r := <-meet(&b, at("a", 2)); pstest.Code(r.err) != "UNAVAILABLE" || !strings.Contains(r.err.Error(), "1024 barriers") {
			t.Errorf("one too many: %+v", r)
		}
		for i, ch := range append(waiting, last) {
			id := fmt.Sprint(i)
			if i == len(waiting) {
				id = "last"
			}
			<-meet(&b, shardcmd.BarrierRequest{ID: id, Worker: "b", NumWorkers: 2})
			if r := <-ch; r.err != nil {
				t.Fatal(r.err)
			}
		}
	})
}

// A barrier whose round is over stays until those that were told so have left, however many
// others are begun meanwhile: nobody finds it forgotten.
func TestBarrierIsNotForgottenWhileSomebodyLeaves(t *testing.T) {
	var b barriers
	over, answer, err := b.arrive(at("a", 2))
	if over == nil || err != nil {
		t.Fatal(err)
	}
	if over, _, err := b.arrive(at("b", 2)); over != nil || err != nil {
		t.Fatalf("the round is not over: %v", err)
	}
	<-over // a is awake and has not left
	full := 0
	for i := range maxBarriers + 1 {
		r := at("w", 2)
		r.ID = fmt.Sprint("other ", i)
		if _, _, err := b.arrive(r); err != nil {
			full++
		}
	}
	if full != 2 { // one place is taken by the barrier that is left, and one is too many
		t.Errorf("%d barriers too many, want 2", full)
	}
	if r, err := b.leave(at("a", 2), answer.Round); err != nil || r.Round != 1 || fmt.Sprint(r.Workers) != "[a b]" {
		t.Errorf("a leaves with %+v, %v", r, err)
	}
	r := at("w", 2)
	r.ID = "in its place"
	if _, _, err := b.arrive(r); err != nil {
		t.Errorf("nobody waits at the first barrier any more, yet it stays: %v", err)
	}
}
