// Package natstest has what tests need between a NATS client and its server.
package natstest

import (
	"io"
	"net"
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
		r.wg.Go(func() { r.pump(client, server) })
		r.wg.Go(func() { r.pump(server, client) })
	}
}

func (r *Relay) pump(to, from net.Conn) {
	_, _ = io.Copy(to, from) // its end, whatever the cause, is the connection's
	_ = to.Close()
	_ = from.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, to)
	delete(r.conns, from)
}
