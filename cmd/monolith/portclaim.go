package main

import (
	"errors"
	"net"
	"strconv"
)

// claim takes a port of loopback that is free and that no other stack has claimed.
func (s *stack) claim(port int) error {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	claim, err := claimPort(addr)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, claim.Close())
	}
	s.claims = append(s.claims, claim)
	return ln.Close()
}
