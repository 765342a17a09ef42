package mtls

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
)

// Port is an address that a role is about to listen on.
type Port struct {
	Role, Name string      // "modelserver", "grpc"
	Addr       string      // host:port or unix:///path; empty: it stays closed
	Own        Files       // by flags of its own, which win over
	Shared     Files       // those of --tls-…
	Keys       string      // begins the flags of Own: "--grpc-tls"
	TLS        *tls.Config // made already: it wins over Shared
	Mutual     bool        // whoever reaches it may change what is served: its clients show certificates
	Insecure   bool        // Switch was given: it is open in plain text
	Switch     string      // "--insecure-grpc"
}

// Config is the TLS that the port is served with, nil for plain text. It refuses a port that
// other machines can reach and that nothing protects, unless that was asked for by name.
func (p Port) Config() (*tls.Config, error) {
	if p.Insecure && p.Own != (Files{}) {
		return nil, fmt.Errorf("%s: %s and %s-cert contradict each other: give one of them", p.Role, p.Switch, p.Keys)
	}
	if p.Addr == "" || p.Insecure || strings.HasPrefix(p.Addr, "unix://") {
		return nil, nil
	}
	files, flag := p.Own.Or(p.Shared), p.Keys
	if p.Own == (Files{}) {
		if p.TLS != nil {
			return p.TLS, p.Check()
		}
		flag = "--" + Shared
	}
	conf, err := files.Server(tls.RequireAndVerifyClientCert)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %s-cert, -key and -ca: %w", p.Role, p.Name, flag, err)
	}
	p.TLS = conf
	return conf, p.Check()
}

// Check refuses a port that other machines can reach and that TLS does not protect, unless that
// was asked for by name.
func (p Port) Check() error {
	if p.Addr == "" || Local(p.Addr) || p.Insecure {
		return nil
	}
	if p.TLS == nil {
		return fmt.Errorf("%s: %s on %s could be reached from other machines and is neither encrypted nor authenticated: listen on 127.0.0.1, name certificates with %s-cert, -key and -ca or with --%s-cert, -key and -ca for all ports, or allow it with %s",
			p.Role, p.Name, p.Addr, p.Keys, Shared, p.Switch)
	}
	if p.Mutual && p.TLS.ClientAuth < tls.RequireAndVerifyClientCert {
		return fmt.Errorf("%s: %s on %s is encrypted, and whoever reaches it may change what is served: name the authorities of its clients with %s-ca or --%s-ca, or allow it with %s",
			p.Role, p.Name, p.Addr, p.Keys, Shared, p.Switch)
	}
	return nil
}

// Listen makes a listener one of TLS; a nil configuration leaves it as it is.
func Listen(ln net.Listener, conf *tls.Config) net.Listener {
	if conf == nil {
		return ln
	}
	return tls.NewListener(ln, conf)
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
