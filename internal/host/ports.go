package host

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/monolith-go/monolith/internal/process/freeport"
)

// claim takes a port of --listen that is free and that no other stack has claimed: a role
// that is started again finds it free, though another stack starts meanwhile and wants the
// same; its clients never meet the other's tree.
func (s *Stack) claim(port int) error {
	addr := s.Config.Ports.at(port)
	claim, err := freeport.Claim("monolith", addr)
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

// port is want if it becomes free on --listen before the deadline, else any that is,
// with a note; 0 wants any. It is the stack's until Close, also while the role behind it is
// started again.
func (s *Stack) port(what string, want int, until time.Time) (int, error) {
	for want != 0 {
		err := s.claim(want)
		if err == nil {
			return want, nil
		}
		if !time.Now().Before(until) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	port, err := freeport.Find()
	if err == nil {
		err = s.claim(port)
	}
	if err != nil {
		return 0, fmt.Errorf("find a port for %s: %w", what, err)
	}
	if want != 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("port %d is taken, so %s got %d", want, what, port))
	}
	return port, nil
}

// ports finds the ports of what a person or a client dials.
func (s *Stack) ports() error {
	until := time.Now()
	if _, err := ReadRunning(s.Config.Dir); err == nil {
		// The processes of a start that was killed end a moment after it.
		until = until.Add(portWait)
	}
	for _, p := range []struct {
		what string
		port *int
		skip bool
	}{
		{"NATS", &s.Config.NATSPort, s.Config.Logs.NATS != ""}, {"Kafka", &s.Config.KafkaPort, s.Config.Kafka != "" || s.Config.NoKafka},
		{"ZooKeeper", &s.Config.ZKPort, false}, {"gRPC", &s.Config.GRPCPort, false}, {"REST", &s.Config.RESTPort, false},
	} {
		if p.skip {
			continue
		}
		port, err := s.port(p.what, *p.port, until)
		if err != nil {
			return err
		}
		*p.port = port
	}
	return nil
}
