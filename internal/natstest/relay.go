// Package natstest has what tests need between a NATS client and its server.
package natstest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Relay passes connections on to a NATS server, and may speak in its name.
type Relay struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]net.Conn // client's end -> server's end
	lose  func(payload []byte) bool
}

// NewRelay relays to the server at url until the test ends.
func NewRelay(t testing.TB, url string) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{ln: ln, target: strings.TrimPrefix(url, "nats://"), conns: map[net.Conn]net.Conn{}}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		r.Drop()
		r.wg.Wait()
	})
	return r
}

// URL is what clients connect to.
func (r *Relay) URL() string { return "nats://" + r.ln.Addr().String() }

// Say writes a line of the protocol to every client, as if the server had. They must be
// idle: nothing keeps it from standing inside of something else.
func (r *Relay) Say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client := range r.conns {
		_, _ = io.WriteString(client, line+"\r\n") // a client that has gone hears nothing
	}
}

// Lose has messages to clients vanish of which lose is true, with the headers before the
// payload. It is called by several connections at a time.
func (r *Relay) Lose(lose func(payload []byte) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = lose
}

// Drop ends every connection.
func (r *Relay) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client, server := range r.conns {
		_ = client.Close()
		_ = server.Close()
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		r.conns[client] = server
		r.mu.Unlock()
		r.wg.Go(func() { r.pump(client, server, r.speak) })
		r.wg.Go(func() { r.pump(server, client, io.Copy) })
	}
}

func (r *Relay) pump(to, from net.Conn, pass func(io.Writer, io.Reader) (int64, error)) {
	_, _ = pass(to, from) // its end, whatever the cause, is the connection's
	_ = to.Close()
	_ = from.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, to)
	delete(r.conns, from)
}

// speak passes on what a server says, message by message.
func (r *Relay) speak(to io.Writer, from io.Reader) (n int64, err error) {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return n, err
		}
		var body []byte
		if f := bytes.Fields(line); len(f) > 3 && (string(f[0]) == "MSG" || string(f[0]) == "HMSG") {
			size, err := strconv.Atoi(string(f[len(f)-1]))
			if err != nil {
				return n, err
			}
			body = make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(in, body); err != nil {
				return n, err
			}
			r.mu.Lock()
			lose := r.lose
			r.mu.Unlock()
			if lose != nil && lose(body) {
				continue
			}
		}
		w, err := to.Write(append(line, body...))
		if n += int64(w); err != nil {
			return n, err
		}
	}
}
