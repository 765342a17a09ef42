package freeport

import (
	"fmt"
	"io"
	"net"
)

// Claim takes addr's name among the sockets without a file: who has it has the address
// among all that claim for the same purpose on this machine (in this network namespace),
// also while nobody listens on it. The kernel gives the name back when the process ends, in
// whatever way.
func Claim(purpose, addr string) (io.Closer, error) {
	ln, err := net.Listen("unix", "@"+purpose+"/"+addr)
	if err != nil {
		return nil, fmt.Errorf("another process or caller has claimed %s: %w", addr, err)
	}
	return ln, nil
}
