package outbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// piped is an outbox on a pipe, and what its peer has read by the time that heard is called.
func piped(t *testing.T, sent func(int), sized func(int)) (o *Outbox, heard func() []byte) {
	t.Helper()
	nc, peer := net.Pipe()
	o = New(nc, 1<<20, sent, sized)
	var got bytes.Buffer
	var read sync.WaitGroup
	read.Go(func() { _, _ = io.Copy(&got, peer) })
	t.Cleanup(func() { o.Kill(nil) })
	return o, func() []byte {
		o.Kill(nil)
		read.Wait()
		return got.Bytes()
	}
}

func woken(o *Outbox) bool {
	select {
	case <-o.Wake():
		return true
	default:
		return false
	}
}

// Frames are written in the order in which they were queued, whichever way, behind their
// lengths; who counts them hears of each how long it is, without its length.
func TestFrames(t *testing.T) {
	var sizes []int
	sent := 0
	o, heard := piped(t, func(n int) { sent += n }, func(n int) { sizes = append(sizes, n) })
	for _, text := range []string{"ab", "c"} { // the second batch has the buffer of the first
		w := o.Begin()
		w.B = append(w.B, text...)
		o.End()
		o.Add([]byte{0, 0, 0, 1, 'x'})
		w = o.Begin()
		w.B = append(w.B, "yz"...)
		o.End()
		o.Push([]byte{0, 0, 0, 0})
		o.Text("!")
		if !woken(o) {
			t.Error("the writer was not woken")
		}
		o.Flush()
	}
	want := "\x00\x00\x00\x02ab\x00\x00\x00\x01x\x00\x00\x00\x02yz\x00\x00\x00\x00!" + "\x00\x00\x00\x01c\x00\x00\x00\x01x\x00\x00\x00\x02yz\x00\x00\x00\x00!"
	if got := heard(); string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	if len(sizes) != 8 || sizes[0] != 2 || sizes[1] != 1 || sizes[2] != 2 || sizes[3] != 0 || sizes[4] != 1 || sent != 8 {
		t.Errorf("sizes %v, %d frames sent", sizes, sent)
	}
}

// Once a connection is to end, what is queued is written and nothing more is taken; once it
// has ended, nothing is.
func TestNothingIsQueuedBehindTheEnd(t *testing.T) {
	for name, end := range map[string]func(*Outbox){"finished": (*Outbox).Finish, "killed": func(o *Outbox) { o.Kill(io.EOF) }} {
		t.Run(name, func(t *testing.T) {
			sized := 0
			o, heard := piped(t, func(int) {}, func(int) { sized++ })
			o.Push([]byte("\x00\x00\x00\x01a"))
			end(o)
			w := o.Begin()
			w.B = append(w.B, "late"...)
			o.End()
			o.Add([]byte("\x00\x00\x00\x01b"))
			o.Push([]byte("\x00\x00\x00\x01c"))
			o.flushNow()
			want := "\x00\x00\x00\x01a"
			if name == "killed" {
				want = ""
			}
			if waiting, _ := o.Waiting(); waiting != len(want) || sized != 1 {
				t.Errorf("%d bytes wait, %d frames were counted", waiting, sized)
			}
			if woken(o) {
				o.Flush()
			}
			if !o.Ended() {
				t.Error("the connection goes on")
			}
			if got := heard(); string(got) != want {
				t.Errorf("%q was written", got)
			}
			if cause := o.Cause(); errors.Is(cause, io.EOF) != (name == "killed") {
				t.Errorf("it ended by %v", cause)
			}
		})
	}
}

// What comes while somebody writes at once is left to the connection's writer, who is woken
// for it again, having found somebody writing; with nothing left nobody is.
func TestWhatComesWhileItIsWritten(t *testing.T) {
	frame := []byte("\x00\x00\x00\x01a")
	for name, tc := range map[string]struct {
		meanwhile func(*Outbox)
		woken     bool
	}{
		"nothing":         {func(*Outbox) {}, false},
		"another frame":   {func(o *Outbox) { o.Push(frame) }, true},
		"the end":         {(*Outbox).Finish, true},
		"its client went": {func(o *Outbox) { o.Kill(nil) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := tcpPair(t)
			var o *Outbox
			written := 0
			o = New(server, 1<<20, func(n int) {
				if written += n; written == 1 {
					tc.meanwhile(o)
					_ = woken(o)
					o.Flush() // finds somebody writing
				}
			}, nil)
			defer o.Kill(nil)
			o.Add(frame)
			o.flushNow()
			if written != 1 || woken(o) != tc.woken {
				t.Errorf("%d frames written, the writer is woken: %v", written, !tc.woken)
			}
		})
	}
	t.Run("nothing to write", func(t *testing.T) {
		server, _ := tcpPair(t)
		o := New(server, 1<<20, func(n int) { t.Errorf("%d frames were sent", n) }, nil)
		defer o.Kill(nil)
		if o.flushNow(); woken(o) {
			t.Error("the writer is woken")
		}
	})
}

// A socket that cannot be asked, such as TLS, is its connection's writer's alone.
func TestWhatIsNoPlainSocket(t *testing.T) {
	o, heard := piped(t, func(int) {}, nil)
	o.Add([]byte("\x00\x00\x00\x01a"))
	if o.flushNow(); !woken(o) {
		t.Error("the writer was not woken")
	}
	if waiting, _ := o.Waiting(); waiting != 5 {
		t.Errorf("%d bytes wait", waiting)
	}
	if got := heard(); len(got) != 0 {
		t.Errorf("%q was written", got)
	}
}

// A buffer is used again, unless one batch has made it large or the connection has ended.
func TestWhatIsKeptOfABuffer(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes int
		kill  bool
		kept  bool
	}{"small": {1000, false, true}, "large": {spareBytes + 1, false, false}, "ended": {1000, true, false}} {
		for how, flush := range map[string]func(*Outbox){"by its writer": (*Outbox).Flush, "at once": (*Outbox).flushNow} {
			t.Run(name+" "+how, func(t *testing.T) {
				server, client := tcpPair(t)
				var read sync.WaitGroup
				read.Go(func() { _, _ = io.Copy(io.Discard, client) })
				var o *Outbox
				o = New(server, 1<<20, func(int) {
					if tc.kill {
						o.Kill(nil)
					}
				}, nil)
				o.Add(make([]byte, tc.bytes))
				flush(o)
				o.Flush() // what the socket did not take at once
				if (o.spare != nil) != tc.kept {
					t.Errorf("%d bytes are kept", cap(o.spare))
				}
				o.Kill(nil)
				read.Wait()
			})
		}
	}
}

// A client that reads nothing is given up once one write has taken longer than the limit; a
// connection on which nothing is written may be silent for ever.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, peer := net.Pipe()
		defer peer.Close()
		o := New(nc, 1<<20, func(int) {}, nil)
		time.Sleep(time.Hour)
		if o.Overdue(time.Now(), time.Second); o.Ended() {
			t.Fatal("given up with nothing to write")
		}
		o.Add(make([]byte, 100))
		var written sync.WaitGroup
		written.Go(o.Flush)
		synctest.Wait()
		for _, step := range []struct {
			after time.Duration
			ended bool
		}{{0, false}, {time.Second, false}, {1, true}} {
			time.Sleep(step.after)
			o.Overdue(time.Now(), time.Second)
			if o.Ended() != step.ended {
				t.Errorf("given up: %v", o.Ended())
			}
		}
		written.Wait()
		if !errors.Is(o.Cause(), ErrSlow) {
			t.Errorf("by %v", o.Cause())
		}
	})
}

// Up to notifyAlone connections are left to their own writers, more to the notifiers, in
// chunks; when the notifiers are behind, to their own writers again.
func TestWhoIsLeftToWhom(t *testing.T) {
	nc, peer := net.Pipe()
	defer peer.Close()
	outboxes := func(n int) []*Outbox {
		all := make([]*Outbox, n)
		for i := range all {
			all[i] = New(nc, 1<<20, func(int) {}, nil)
		}
		return all
	}
	n := NewNotifiers()
	left := func(told []*Outbox) (own int) {
		for _, o := range told {
			if woken(o) {
				own++
			}
		}
		return own
	}
	for _, tc := range []struct{ told, own, chunks int }{{0, 0, 0}, {notifyAlone, notifyAlone, 0}, {notifyAlone + 1, 0, 1}, {2*notifyChunk + 1, 0, 3}} {
		told := outboxes(tc.told)
		n.Tell(told)
		if own, chunks := left(told), len(n.work); own != tc.own || chunks != tc.chunks {
			t.Errorf("of %d told %d are left to themselves, %d chunks to notifiers", tc.told, own, chunks)
		}
		for len(n.work) > 0 {
			<-n.work
		}
	}
	for range notifyQueued - 1 {
		n.work <- nil
	}
	told := outboxes(3 * notifyChunk)
	if n.Tell(told); left(told[:notifyChunk]) != 0 || left(told[notifyChunk:]) != 2*notifyChunk {
		t.Error("with the notifiers behind, some are left to nobody")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	n.Run(ctx) // ends
}
