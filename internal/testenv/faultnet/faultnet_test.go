package faultnet

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// world is an echo behind a relay, and one connection to it.
type world struct {
	t *testing.T
	*Relay
	c  net.Conn
	br *bufio.Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	r, err := New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, Relay: r}
	w.dial()
	return w
}

func (w *world) dial() {
	w.t.Helper()
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	w.c, w.br = c, bufio.NewReader(c)
}

func (w *world) say(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w.c, text+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

// hears is false when nothing has come within a time, and fails on anything but text.
func (w *world) hears(text string, within time.Duration) bool {
	w.t.Helper()
	if err := w.c.SetReadDeadline(time.Now().Add(within)); err != nil {
		w.t.Fatal(err)
	}
	got, err := w.br.ReadString('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case err != nil || got != text+"\n":
		w.t.Fatalf("heard %q, %v, want %q", got, err, text)
	}
	return true
}

// ended waits for the connection's end.
func (w *world) ended() {
	w.t.Helper()
	_ = w.c.SetReadDeadline(time.Now().Add(wait.Patience))
	if b, err := w.br.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("heard %q, %v, want the connection's end", b, err)
	}
}

const soon, quiet = wait.Patience, 100 * time.Millisecond

func TestPass(t *testing.T) {
	w := newWorld(t)
	w.say("a")
	if !w.hears("a", soon) {
		t.Fatal("nothing came through")
	}
	_ = w.c.(*net.TCPConn).CloseWrite()
	w.ended()
}

func TestHeldBytesArriveLate(t *testing.T) {
	for name, set := range map[string]func(*world){
		"to the target":   func(w *world) { w.Set(Fault{Mode: Hold}, Fault{}) },
		"from the target": func(w *world) { w.Set(Fault{}, Fault{Mode: Hold}) },
		"both":            func(w *world) { w.Set(Fault{Mode: Hold}, Fault{Mode: Hold}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			set(w)
			w.say("held")
			if w.hears("held", quiet) {
				t.Fatal("it came through")
			}
			w.Heal()
			if !w.hears("held", soon) {
				t.Fatal("it never came")
			}
		})
	}
}

func TestLostBytesEndTheConnection(t *testing.T) {
	w := newWorld(t)
	w.Set(Fault{}, Fault{Mode: Drop})
	w.say("lost")
	if w.hears("lost", quiet) {
		t.Fatal("it came through")
	}
	w.Heal()
	w.ended()
	w.dial()
	w.say("anew")
	if !w.hears("anew", soon) {
		t.Fatal("the healed relay carries nothing")
	}
}

func TestCut(t *testing.T) {
	w := newWorld(t)
	w.say("a")
	if !w.hears("a", soon) {
		t.Fatal("nothing came through")
	}
	w.Cut()
	w.ended()
	w.dial()
	w.ended()
	w.Heal()
	w.dial()
	w.say("anew")
	if !w.hears("anew", soon) {
		t.Fatal("the healed relay carries nothing")
	}
}

func TestDelay(t *testing.T) {
	w := newWorld(t)
	w.Set(Fault{Delay: 30 * time.Millisecond}, Fault{Delay: 20 * time.Millisecond})
	began := time.Now()
	for _, s := range []string{"a", "b", "c"} {
		w.say(s)
	}
	for _, s := range []string{"a", "b", "c"} {
		if !w.hears(s, soon) {
			t.Fatal("nothing came through")
		}
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("there and back took %v", took)
	}
}
