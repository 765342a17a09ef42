package ensemble

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/mtls"
)

// secure puts TLS on a connection to the server at addr, where it is configured: the
// server must show a certificate of its name. It closes the connection on an error.
func (c *Config) secure(nc net.Conn, addr string) (net.Conn, error) {
	if c.TLS == nil {
		return nc, nil
	}
	cfg, err := mtls.To(c.TLS, addr)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	t := tls.Client(nc, cfg)
	err = nc.SetDeadline(time.Now().Add(dialWithin))
	if err == nil {
		err = t.Handshake()
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("TLS to %s: %w", addr, err), nc.Close())
	}
	return t, nil
}

// prompt is a connection whose first answer must come soon. The library would wait for it
// several times as long as the session lasts, at a member that takes connections and is
// cut off from everything else, for example.
type prompt struct {
	net.Conn
	within time.Duration
	asked  bool // for the answer; the library's goroutine's
}

// SetReadDeadline is net.Conn's.
func (p *prompt) SetReadDeadline(t time.Time) error {
	if !p.asked && !t.IsZero() {
		p.asked = true
		if soon := time.Now().Add(p.within); t.After(soon) {
			t = soon
		}
	}
	return p.Conn.SetReadDeadline(t)
}

// names hands the library the servers as they were written, one after the other in an
// order of chance. The library's own way asks for their addresses once: certificates are
// of names, and a member may come back under another address.
type names struct {
	mu    sync.Mutex
	all   []string
	next  int
	since int // servers handed out since one has answered
}

// Init is zk.HostProvider's, as the others are.
func (n *names) Init(servers []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = nil
	for _, i := range rand.Perm(len(servers)) {
		n.all = append(n.all, servers[i])
	}
	return nil
}

func (n *names) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// Next says to wait first when every server has been tried in vain.
func (n *names) Next() (server string, wait bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	server = n.all[n.next]
	n.next = (n.next + 1) % len(n.all)
	if n.since++; n.since > len(n.all) {
		n.since, wait = 1, true
	}
	return server, wait
}

func (n *names) Connected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.since = 0
}
