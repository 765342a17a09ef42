package peers_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/peers"
)

func TestTriton(t *testing.T) {
	const rows, dim = 1000, 8
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	p, err := peers.StartTriton(ctx, dim, zeros(4*rows*dim))
	if errors.Is(err, peers.ErrMissing) {
		t.Skip("SKIPPED: triton is not installed; make peers installs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	if all, err := p.Processes(); err != nil || len(all) != 2 {
		t.Errorf("processes %v, %v: want the server and one of its backend", all, err)
	}
	for want := int64(1); want <= 3; want++ {
		if got, err := p.Lookup(ctx, []int64{0, rows - 1}); err != nil || got != want {
			t.Errorf("version %d, %v, want %d", got, err, want)
		}
		if err := p.Reload(ctx); err != nil || p.Version() != want+1 {
			t.Fatalf("reloaded as %d, %v", p.Version(), err)
		}
	}
	if _, err := p.Lookup(ctx, []int64{rows}); err == nil {
		t.Error("a row that does not exist is found")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := peers.StartTriton(ctx, dim, zeros(4*dim-4)); err == nil || !strings.Contains(err.Error(), "triton has ended") {
		t.Errorf("less than a row: %v", err)
	}
}

func zeros(n int) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(make([]byte, n))
		return err
	}
}

func TestTritonIsMissing(t *testing.T) {
	stand(t, "")
	if _, err := peers.StartTriton(t.Context(), 8, zeros(32)); !errors.Is(err, peers.ErrMissing) {
		t.Errorf("%v", err)
	}
}
