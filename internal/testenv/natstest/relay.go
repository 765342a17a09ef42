// Package natstest has what tests need between a NATS client and its server.
package natstest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
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
	alter func(message []byte) []byte
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

// Alter has clients get what alter returns instead of each message, headers and payload;
// nil: nothing. It is called by several connections at a time.
func (r *Relay) Alter(alter func(message []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alter = alter
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
		if f := bytes.Fields(line); len(f) > 3 && (string(f[0]) == "MSG" || string(f[0]) == "HMSG") {
			if line, err = r.message(f, in); err != nil {
				return n, err
			}
		}
		w, err := to.Write(line)
		if n += int64(w); err != nil {
			return n, err
		}
	}
}

// message reads one behind the fields of its line, and returns what stands for both.
func (r *Relay) message(f [][]byte, in io.Reader) ([]byte, error) {
	size, err := strconv.Atoi(string(f[len(f)-1]))
	if err != nil {
		return nil, err
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(in, body); err != nil {
		return nil, err
	}
	body = body[:size]
	r.mu.Lock()
	alter := r.alter
	r.mu.Unlock()
	if alter != nil {
		if body = alter(body); body == nil {
			return nil, nil
		}
	}
	f[len(f)-1] = strconv.AppendInt(nil, int64(len(body)), 10)
	if string(f[0]) == "HMSG" {
		f[len(f)-2] = strconv.AppendInt(nil, int64(bytes.Index(body, []byte("\r\n\r\n"))+4), 10)
	}
	return slices.Concat(bytes.Join(f, []byte(" ")), []byte("\r\n"), body, []byte("\r\n")), nil
}
