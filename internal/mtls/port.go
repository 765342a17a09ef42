package mtls

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
)

// Port is an address that a role is about to listen on.
type Port struct {
	Role, Name string // "modelserver", "grpc"
	Addr       string // host:port or unix:///path; empty: it stays closed
	TLS        *tls.Config
	Keys       string // begins the flags that name certificates: "--rows-tls"; empty: it has none
	File       string // the flag that names a file with them; empty: there is none
	Insecure   bool   // Switch was given
	Switch     string // "--insecure-grpc"
}

// Check refuses a port that other machines can reach and that nothing protects, unless that
// was asked for by name.
func (p Port) Check() error {
	if p.Addr == "" || Local(p.Addr) || p.TLS != nil || p.Insecure {
		return nil
	}
	keys := ""
	if p.Keys != "" {
		keys = fmt.Sprintf("name certificates with %s-cert, -key and -ca, ", p.Keys)
	}
	if p.File != "" {
		keys = fmt.Sprintf("name certificates with %s, ", p.File)
	}
	return fmt.Errorf("%s: %s on %s could be reached from other machines and is neither encrypted nor authenticated: listen on 127.0.0.1, %sor allow it with %s", p.Role, p.Name, p.Addr, keys, p.Switch)
}

// Local says that nobody beyond this machine can connect to addr.
func Local(addr string) bool {
	if strings.HasPrefix(addr, "unix://") {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
