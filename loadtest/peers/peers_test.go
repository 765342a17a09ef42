package peers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// stand puts a program in the place of libcuckoo's.
func stand(t *testing.T, program string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("MONOLITH_PEERS", dir)
	if program == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "cuckoo"), []byte("#!/bin/sh\n"+program), 0o700); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T) (*peers.Peer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	t.Cleanup(cancel)
	return peers.Cuckoo(ctx, 10, 2)
}

func TestPeerIsTold(t *testing.T) {
	stand(t, "echo \"$@\"; echo ready; while read -r what n; do echo \"0.$n\"; done")
	p, err := begin(t)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]float64{5: 0.5, 25: 0.25} {
		if got, err := p.Seconds("find", n); err != nil || got != want {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestPeerThatFails(t *testing.T) {
	stand(t, "")
	if _, err := begin(t); !errors.Is(err, peers.ErrMissing) {
		t.Errorf("not installed: %v", err)
	}
	stand(t, "echo no memory left >&2; exit 3")
	if _, err := begin(t); err == nil || !strings.Contains(err.Error(), "no memory left") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("died at once: %v", err)
	}
	stand(t, "echo ready; read -r x; echo soon; read -r x; exit 0")
	p, err := begin(t)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Seconds("find", 1); err == nil || !strings.Contains(err.Error(), "not seconds") {
		t.Errorf("no number: %v", err)
	}
	if _, err := p.Seconds("find", 1); err == nil {
		t.Error("a peer that ended answered")
	}
}

func TestPeerThatIsSlow(t *testing.T) {
	t.Setenv("MONOLITH_PEER_PATIENCE", "50ms")
	stand(t, "exec sleep 1000")
	if _, err := begin(t); !errors.Is(err, peers.ErrSlow) || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("never ready: %v", err)
	}
	t.Setenv("MONOLITH_PEER_PATIENCE", "5s") // to start a shell takes long on a busy machine
	stand(t, "echo ready; read -r x; exec sleep 1000")
	p, err := begin(t)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Seconds("find", 1); !errors.Is(err, peers.ErrSlow) {
		t.Errorf("no answer: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("closed after that: %v", err)
	}
	t.Setenv("MONOLITH_PEER_PATIENCE", "long")
	if _, err := begin(t); err == nil || !strings.Contains(err.Error(), "duration") {
		t.Errorf("patience of no duration: %v", err)
	}
}
