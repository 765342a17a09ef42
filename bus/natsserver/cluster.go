package natsserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is the servers that replicate streams among each other.
type Cluster struct {
	Name   string        // the same on all of them; "": the server is alone
	Listen string        // host:port for the others
	Routes []string      // host:port of the others; the server's own may be among them
	TLS    *tls.Config   // of both ends of a route, which show certificates; nil: plain text
	Drain  time.Duration // over which Leave sends clients to the others; default 10 s
}

const (
	defaultDrain = 10 * time.Second
	drainGrace   = time.Second // before the first client is sent away

	// pingEvery and unanswered pings end what a machine that was cut off has left behind: until then
	// commands are sent to whoever answered them there. The server's own would take minutes.
	pingEvery  = 2 * time.Second
	unanswered = 2
)

// Validate complains about what keeps servers from finding each other.
func (c Cluster) Validate() error {
	if c.Name == "" {
		if len(c.Routes) > 0 {
			return errors.New("routes without the cluster's name: name it, the same on all servers")
		}
		return nil
	}
	if _, _, err := HostPort(c.Listen); err != nil {
		return fmt.Errorf("the address for the other servers: %w", err)
	}
	for _, r := range c.Routes {
		if _, port, err := HostPort(r); err != nil || port == 0 {
			return fmt.Errorf("route %q: give host:port of a server's address for the others", r)
		}
	}
	if c.Drain < 0 || c.Drain > time.Hour {
		return fmt.Errorf("clients are sent away over %v: give 0 to 1h", c.Drain)
	}
	return nil
}

// HostPort splits an address and reads its port.
func HostPort(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q ends with no port", addr)
	}
	return host, int(n), nil
}

// apply has a server join. Others are dialled by the routes that are given and by no address that
// they tell: those need not be in their certificates.
func (c Cluster) apply(o *server.Options) {
	if c.Name == "" {
		return
	}
	host, port, _ := HostPort(c.Listen) // validated
	o.Cluster = server.ClusterOpts{Name: c.Name, Host: host, Port: port, NoAdvertise: true, TLSConfig: c.TLS, TLSTimeout: shakeTimeout.Seconds(),
		PingInterval: pingEvery, MaxPingsOut: unanswered}
	o.PingInterval, o.MaxPingsOut = pingEvery, unanswered
	for _, r := range c.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	o.LameDuckGracePeriod = drainGrace
	o.LameDuckDuration = drainGrace + c.drain()
}

func (c Cluster) drain() time.Duration {
	if c.Drain > 0 {
		return c.Drain
	}
	return defaultDrain
}

// Leave is Close for a server whose clients have others to go to: it takes no more of them, hands
// over what it leads, and sends its clients away one after the other. One that is alone just closes.
func (s *Server) Leave() error {
	if s.cfg.Cluster.Name == "" {
		return s.Close()
	}
	return s.end((*server.Server).LameDuckShutdown)
}
