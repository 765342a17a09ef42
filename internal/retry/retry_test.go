package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/retry"
)

func TestPausesGrowWithJitterUpToTheLast(t *testing.T) {
	const first, last = 100 * time.Millisecond, 5 * time.Second
	b := retry.New(first, last)
	drawn := map[time.Duration]bool{}
	for range 3 { // Reset begins again
		for i, base := 0, first; i < 12; i, base = i+1, min(2*base, last*2/3) {
			d := b.Next()
			if d < base/2 || d > base*3/2+1 {
				t.Fatalf("pause %d is %v, want %v give or take a half", i, d, base)
			}
			drawn[d] = true
		}
		b.Reset()
	}
	if len(drawn) < 12 {
		t.Errorf("only %d different pauses in 36: there is no jitter", len(drawn))
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := retry.New(time.Hour, time.Hour).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Wait = %v after %v", err, time.Since(began))
		}
		if err := retry.Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Second+time.Minute {
			t.Errorf("Sleep = %v after %v", err, time.Since(began))
		}
	})
}
