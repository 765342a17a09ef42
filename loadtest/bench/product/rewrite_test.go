package product

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Replicas apply what is published in the place of the training shards, which then learn on. One that has
// not applied it is told of.
func TestRewrite(t *testing.T) {
	c, err := StartCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	learn := func(n int) {
		t.Helper()
		ends, err := produce(t.Context(), c.Brokers(), c.Topic(), ratings(n))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Served(t.Context(), ends); err != nil {
			t.Fatal(err)
		}
	}
	learn(200)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	for _, movies := range [][]int64{{1, 2, 3, 4, 5, 6, 7, 8}, {70_001, 70_002, 70_003, 70_004, 70_005, 70_006, 70_007, 70_008}} {
		if err := c.Rewrite(ctx, movies); err != nil {
			t.Fatal(err)
		}
		if err := c.Rewritten(ctx); err != nil {
			t.Fatal(err)
		}
	}
	learn(300)
	c.(*stackCluster).writers[0].newest.seq += 1 << 20 // which no replica has seen
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := c.Rewritten(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a sequence that does not exist: %v", err)
	}
}
