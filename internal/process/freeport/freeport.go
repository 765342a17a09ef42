// Package freeport finds ports on loopback for servers that must know theirs before
// they listen.
package freeport

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are drawn from below the range that operating systems hand out to connections
// and to listeners on port 0: a port found here is not taken by chance in the moment
// before its server listens.
const first, last = 20000, 32000

// Find returns a port on 127.0.0.1 that nobody listens on. Where the system can say so
// (Linux), no other call of this machine returns it while this process lives: a virtual
// machine takes seconds until it listens, and a server that is killed comes back to its
// port.
func Find() (int, error) {
	var err error
	for range 200 {
		port := first + rand.IntN(last-first)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var claim io.Closer
		if claim, err = Claim("freeport", addr); err != nil {
			continue
		}
		found.keep(claim)
		var ln net.Listener
		if ln, err = net.Listen("tcp", addr); err == nil {
			return port, ln.Close()
		}
	}
	return 0, fmt.Errorf("%w: %w", errNone, err)
}

var errNone = errors.New("no port between 20000 and 32000 is free on 127.0.0.1")

// found holds the claims of what Find has returned, for the life of the process.
var found claims

type claims struct {
	mu  sync.Mutex
	all []io.Closer
}

func (c *claims) keep(claim io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, claim)
}
