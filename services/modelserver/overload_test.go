package modelserver_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/modelserver/admission"
)

// Many more callers than the server has processors, who have little time, are answered or told at once when to try
// again.
func TestOverloadIsRefused(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	s, subs := w.one(1)
	s.mustLoad(1, subs...)
	users, movies := make([]int64, 4000), make([]int64, 4000)
	for i := range users {
		users[i], movies[i] = int64(i), int64(i)
	}
	wait.Until(t, "the first answer", func() error { _, err := s.scores(users, movies); return err })
	began := time.Now()
	for range 10 {
		if _, err := s.scores(users, movies); err != nil {
			t.Fatal(err)
		}
	}
	within := 10 * time.Since(began) // a hundred times what one takes alone
	ctx, stop := context.WithTimeout(t.Context(), wait.Patience)
	defer stop()
	var answered, refused atomic.Int64
	var callers sync.WaitGroup
	for range 256 {
		callers.Go(func() {
			for ctx.Err() == nil && (answered.Load() < 50 || refused.Load() < 50) {
				call, cancel := context.WithTimeout(ctx, within)
				_, err := s.predict.Predict(call, request(users, movies))
				cancel()
				switch in, ok := admission.RetryIn(err); status.Code(err) {
				case codes.OK:
					answered.Add(1)
				case codes.ResourceExhausted:
					if !ok || in <= 0 {
						t.Errorf("refused without a hint: %v", err)
						return
					}
					refused.Add(1)
					select {
					case <-time.After(in): // as it was told
					case <-ctx.Done():
					}
				case codes.DeadlineExceeded, codes.Canceled:
				default:
					t.Errorf("under overload: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	if answered.Load() < 50 || refused.Load() < 50 {
		t.Errorf("%d calls answered and %d refused; want 50 of each within %v", answered.Load(), refused.Load(), wait.Patience)
	}
	if err := s.check([]int64{1}, []int64{2}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
