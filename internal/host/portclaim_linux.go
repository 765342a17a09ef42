package host

import (
	"fmt"
	"io"
	"net"
)

// claimPort keeps other stacks of this machine from a port until it is closed: who has the
// port's name among the sockets without a file has the port, also while nobody listens on
// it. A role that is started again finds it free, though another stack starts meanwhile
// and wants the same; its clients never meet the other's tree. The kernel gives the name
// back when the process ends, in whatever way.
func claimPort(addr string) (io.Closer, error) {
	ln, err := net.Listen("unix", "@monolith/"+addr)
	if err != nil {
		return nil, fmt.Errorf("another stack has %s: %w", addr, err)
	}
	return ln, nil
}
