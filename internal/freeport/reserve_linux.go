package freeport

import (
	"net"
	"sync"
)

// reserved holds what this process has reserved; the kernel gives the names back when the
// process ends, in whatever way.
var reserved struct {
	sync.Mutex
	names []net.Listener
}

// reserve takes addr's name among the sockets without a file: it exists once on this
// machine (in this network namespace).
func reserve(addr string) error {
	ln, err := net.Listen("unix", "@freeport/"+addr)
	if err != nil {
		return err
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.names = append(reserved.names, ln)
	return nil
}
