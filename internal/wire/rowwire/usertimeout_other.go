//go:build !linux

package rowwire

import "syscall"

// userTimeout is known to Linux alone; elsewhere requests that run out of time condemn
// the connection.
func userTimeout(string, string, syscall.RawConn) error { return nil }
