package host

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
)

// Ports says where a stack listens, and how each port is protected.
type Ports struct {
	Listen string     // IP address of everything, told to others; "": 127.0.0.1
	TLS    mtls.Files // of every port
	Status string     // listen address of /livez, /readyz and /metrics; "": a free port of Listen

	plain map[string]*bool // by port: --insecure-<port> was given
}

// plainPorts are the ports of a stack, and what whoever reaches one in plain text may do.
var plainPorts = [][2]string{
	{"nats", "may state any fact"}, {"kafka", "may write any rating"}, {"zk", "sees the tree and writes to it"}, {"agent", "sees who serves what"},
	{"grpc", "may unload every model and read any folder"}, {"rest", "may ask for predictions"}, {"rows", "may read and change every row"},
}

// register binds the flags of the status address alone: the rest stays on loopback.
func (p *Ports) register(fs *pflag.FlagSet) {
	fs.StringVar(&p.Status, "status", "", "listen `address` of /livez, /readyz and /metrics; empty: a free port beside the others")
	p.plain = map[string]*bool{"status": fs.Bool("insecure-status", false, "answer the status address in plain text, beyond this machine, too")}
}

// RegisterPorts binds the flags of a stack that others may reach.
func (c *Config) RegisterPorts(fs *pflag.FlagSet) {
	p := &c.Ports
	fs.StringVar(&p.Listen, "listen", loopbackIP, "IP `address` that everything listens on and is reached at; beyond loopback each port wants --tls-cert, -key and -ca, or its --insecure flag")
	p.TLS.RegisterShared(fs)
	for _, port := range plainPorts {
		p.plain[port[0]] = fs.Bool("insecure-"+port[0], false, "have this port in plain text, beyond this machine, too: whoever reaches it "+port[1])
	}
}

// validatePorts refuses an address that others cannot be told, and ports that nothing protects.
func (c *Config) validatePorts() error {
	p := &c.Ports
	if ip := net.ParseIP(p.host()); ip == nil || ip.IsUnspecified() {
		return fmt.Errorf("--listen %q: give one IP address of this machine, by which others reach it", p.Listen)
	}
	if p.TLS != (mtls.Files{}) && p.TLS.CA == "" {
		return fmt.Errorf("--%s-cert needs --%[1]s-ca here: the roles know each other by it", mtls.Shared)
	}
	ports := []string{"zk", "agent", "grpc", "rest", "rows"}
	if c.Logs.NATS == "" {
		ports = append(ports, "nats")
	}
	var errs []error
	for _, port := range ports {
		_, err := p.keys(port, 0)
		errs = append(errs, err)
	}
	if c.Kafka == "" && !c.NoKafka {
		errs = append(errs, p.kafka())
	}
	return errors.Join(errs...)
}

const loopbackIP = "127.0.0.1"

func (p *Ports) host() string { return cmp.Or(p.Listen, loopbackIP) }

// at is an address of the stack; port 0 is any that is free.
func (p *Ports) at(port int) string { return net.JoinHostPort(p.host(), strconv.Itoa(port)) }

// insecure says that --insecure-<port> was given.
func (p *Ports) insecure(port string) bool {
	given := p.plain[port]
	return given != nil && *given
}

// keys are the TLS of a port of the stack, nil for plain text.
func (p *Ports) keys(port string, number int) (*tls.Config, error) {
	return mtls.Port{Role: "monolith", Name: port, Addr: p.at(number), Shared: p.TLS, Keys: "--" + mtls.Shared, Insecure: p.insecure(port),
		Mutual: port == "nats" || port == "rows" || port == "grpc", Switch: "--insecure-" + port}.Config()
}

// kafka refuses the embedded broker beyond this machine, which speaks no TLS.
func (p *Ports) kafka() error {
	if mtls.Local(p.at(0)) || p.insecure("kafka") {
		return nil
	}
	return fmt.Errorf("the embedded Kafka broker on %s could be reached from other machines and speaks no TLS: name brokers with --kafka, or allow it with --insecure-kafka", p.host())
}

// flags are those by which a role's ports are opened in plain text.
func (p *Ports) flags(ports ...string) (args []string) {
	for _, port := range ports {
		if p.insecure(port) {
			args = append(args, "--insecure-"+port)
		}
	}
	return args
}

// status is the port of /livez, /readyz and /metrics.
func (p *Ports) status() *statusPort {
	return &statusPort{listen: cmp.Or(p.Status, p.at(0)), shared: p.TLS, insecure: p.insecure("status")}
}
