package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// refuser decides every proposal in one way.
type refuser struct {
	outcome *tree.Outcome
	err     error
}

func (r refuser) Propose(_ *znode.Event, done func(uint64, *tree.Outcome, error)) {
	done(1, r.outcome, r.err)
}
func (refuser) Touch(int64)    {}
func (refuser) Writable() bool { return true }

// Who is not granted a session is let go: where the log did not take it, where its id is taken,
// and where there are as many as may be.
func TestSessionsThatAreNotOpened(t *testing.T) {
	for name, p := range map[string]refuser{
		"not stored":        {nil, errors.New("the log does not answer")},
		"without a verdict": {nil, nil},
		"taken":             {&tree.Outcome{Code: wire.NodeExists}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, Config{Proposer: p})
			w := h.dial()
			w.write(wire.Frame((&wire.ConnectRequest{}).Encode))
			w.gone()
		})
	}
	t.Run("as many as may be", func(t *testing.T) {
		h, _ := writable(t, Config{MaxSessions: 2})
		for range 2 {
			h.connect(wire.ConnectRequest{})
		}
		w := h.dial()
		w.write(wire.Frame((&wire.ConnectRequest{}).Encode))
		w.gone()
	})
}

// A createTTL in a mode without a time to live has none; one that it names all the same is kept, 0
// being one, so that the fold refuses it.
func TestTimesToLive(t *testing.T) {
	for _, tc := range []struct {
		op        wire.Op
		mode      znode.Mode
		ttl, want int64
	}{
		{wire.OpCreateTTL, znode.Mode_PERSISTENT_WITH_TTL, 5, 5},
		{wire.OpCreateTTL, znode.Mode_PERSISTENT_WITH_TTL, 0, 0},
		{wire.OpCreateTTL, znode.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL, -1, -1},
		{wire.OpCreateTTL, znode.Mode_PERSISTENT, -1, 0},
		{wire.OpCreateTTL, znode.Mode_PERSISTENT, 0, 1},
		{wire.OpCreateTTL, znode.Mode_PERSISTENT, 5, 5},
		{wire.OpCreate, znode.Mode_PERSISTENT, 0, 0},
	} {
		if got := ttl(tc.op, wire.CreateRequest{Flags: int32(tc.mode), TTL: tc.ttl}); got != tc.want {
			t.Errorf("%v of mode %v: %d, want %d", tc.ttl, tc.mode, got, tc.want)
		}
	}
}

// failing accepts nothing.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	if len(f.errs) > 1 {
		f.errs = f.errs[1:]
	}
	return nil, &net.OpError{Op: "accept", Err: err}
}

// A process that is out of files goes on to accept, since others may leave; a port that is gone
// ends the server.
func TestPortsThatAcceptNothing(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := New(Config{}, b.Log(), newTree(b), nil)
	g, ctx := errgroup.WithContext(context.Background())
	ln := &failing{errs: []error{syscall.EMFILE, syscall.EMFILE, net.ErrClosed}}
	if err := s.accept(ctx, ln, g); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "zookeeper port") || len(ln.errs) != 1 {
		t.Errorf("%v, %d are left", err, len(ln.errs))
	}
}
