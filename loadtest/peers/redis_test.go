package peers_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/peers"
)

func TestRedisAnswersWhatWasSet(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	r, err := peers.StartRedis(ctx)
	if errors.Is(err, peers.ErrMissing) {
		t.Skip("SKIPPED: redis-server is not installed; make peers installs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	keys := make([]int64, 2500)
	for i := range keys {
		keys[i] = int64(i) - 3
	}
	value := []byte("sixteen bytes ..")
	if err := r.Set(keys, value); err != nil {
		t.Fatal(err)
	}
	out := make([]byte, len(keys)*len(value))
	if n, err := r.MGet(keys, out); err != nil || n != len(out) || !bytes.Equal(out, bytes.Repeat(value, len(keys))) {
		t.Errorf("%d bytes of %d, %v", n, len(out), err)
	}
	if _, err := r.MGet([]int64{1 << 40}, out); err == nil {
		t.Error("a key that was never set was read")
	}
}
