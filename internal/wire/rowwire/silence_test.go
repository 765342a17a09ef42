package rowwire

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// mute shakes hands and then says nothing more, as a host does that has vanished.
func mute(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer nc.Close()
				r := bufio.NewReader(nc)
				if _, _, _, _, err := readFrame(r); err != nil {
					return
				}
				b, _ := frame(opHello|opResponse, 0, -1, &hello{Magic: magic, Version: Version, InFlight: 8})
				_, _ = nc.Write(*b)
				_, _ = r.Peek(1)
				for {
					if _, err := r.ReadByte(); err != nil {
						return
					}
				}
			})
		}
	})
	return ln.Addr().String()
}

func TestSilenceCondemnsAConnection(t *testing.T) {
	p := NewPool(nil)
	defer p.Close()
	addr := mute(t)
	first, err := p.Get(soon(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for n := 1; first.Err() == nil; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := first.Lookup(ctx, lookupOf(1))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("request %d: %v", n, err)
		}
		if n > 100 {
			t.Fatal("100 requests ran out of time, and the connection goes on being used")
		}
	}
	if quiet := time.Since(began); quiet < condemnQuiet || !strings.Contains(first.Err().Error(), "nothing arrived for") {
		t.Errorf("condemned after %v: %v", quiet, first.Err())
	}
	if second, err := p.Get(soon(t), addr); err != nil || second == first {
		t.Errorf("Get = %p, %v; want a new connection instead of %p", second, err, first)
	}
}

// One request that is lost condemns nobody, even after a long silence.
func TestTheThirdLostRequestCondemns(t *testing.T) {
	addr := mute(t)
	for lost, condemned := range map[int]bool{condemnAfter - 2: false, condemnAfter - 1: true} {
		c := dial(t, addr)
		c.mu.Lock()
		c.timeouts, c.quiet = lost, time.Now().Add(-time.Hour)
		c.mu.Unlock()
		// What is not sent is not lost.
		if err := sent(t, func(ctx context.Context) error { _, err := c.Lookup(ctx, lookupOf(1)); return err }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := c.Err(); (err != nil) != condemned {
			t.Errorf("%d lost before this one: %v", lost, err)
		}
	}
}

// A server that answers late lives: its connection is kept, however many run out of time.
func TestLatenessCondemnsNobody(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1, apply: func(ctx context.Context, _ *ApplyRequest) (*ApplyResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}, Options{})
	c := dial(t, addr)
	c.mu.Lock()
	c.timeouts, c.quiet = condemnAfter, time.Now().Add(-time.Hour) // as if much had been lost
	c.mu.Unlock()
	if _, err := c.Lookup(soon(t), lookupOf(1)); err != nil {
		t.Fatal(err)
	}
	for range condemnAfter + 1 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := c.Apply(ctx, &ApplyRequest{})
		cancel()
		if CodeOf(err) != Unavailable {
			t.Fatal(err)
		}
		wait.For(t, "the late answer", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.timeouts == 0 || c.err != nil })
	}
	if err := c.Err(); err != nil {
		t.Errorf("condemned: %v", err)
	}
}

// The deadline may pass a moment before its context says so.
func TestARequestThatIsNotSentSaysWhy(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{})
	c := dial(t, addr)
	_, err := c.Lookup(late{t.Context()}, lookupOf(1))
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), "not sent: context deadline exceeded") {
		t.Errorf("%v", err)
	}
}

// late is past its deadline and does not know it yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }
