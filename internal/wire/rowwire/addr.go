package rowwire

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
)

// SplitAddr takes "host:port" or "unix:///path" apart for package net.
func SplitAddr(addr string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return "", "", fmt.Errorf("rows address %q: a unix socket is written unix:///absolute/path", addr)
		}
		return "unix", path, nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "", "", fmt.Errorf("rows address %q is neither host:port nor unix:///path: %w", addr, err)
	}
	return "tcp", addr, nil
}

// Listen opens addr. A socket file that a killed process left behind is replaced.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	network, address, err := SplitAddr(addr)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if st, err := os.Lstat(address); err == nil && st.Mode()&os.ModeSocket != 0 {
			if c, err := net.Dial("unix", address); err == nil {
				_ = c.Close()
				return nil, fmt.Errorf("listen on %s: another process answers there", addr)
			}
			if err := os.Remove(address); err != nil {
				return nil, fmt.Errorf("listen on %s: remove the dead socket: %w", addr, err)
			}
		}
	}
	ln, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return ln, nil
}

// Addr writes a listener's address the way SplitAddr reads it.
func Addr(a net.Addr) string {
	if a.Network() == "unix" {
		return "unix://" + a.String()
	}
	return a.String()
}
