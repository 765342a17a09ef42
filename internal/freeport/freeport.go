// Package freeport finds ports on loopback for servers that must know theirs before
// they listen.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are drawn from below the range that operating systems hand out to connections
// and to listeners on port 0: a port found here is not taken by chance in the moment
// before its server listens.
const first, last = 20000, 32000

// Find returns a port on 127.0.0.1 that nobody listens on.
func Find() (int, error) {
	var err error
	for range 200 {
		port := first + rand.IntN(last-first)
		var ln net.Listener
		if ln, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, ln.Close()
		}
	}
	return 0, errors.Join(errors.New("no port between 20000 and 32000 is free on 127.0.0.1"), err)
}
