package freeport_test

import (
	"net"
	"runtime"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/internal/process/freeport"
)

func TestFind(t *testing.T) {
	for range 20 {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		if port < 20000 || port >= 32000 {
			t.Errorf("port %d may be handed out to a connection", port)
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatalf("port %d is not free: %v", port, err)
		}
		defer ln.Close() // held, so that the next one is another
	}
}

// Servers that are started side by side have found different ports, though none of them
// listens yet.
func TestNoPortIsFoundTwice(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has names for sockets that need no file")
	}
	found := map[int]bool{}
	for range 600 { // by chance, 15 of them would be met again
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		if found[port] {
			t.Fatalf("port %d was found twice", port)
		}
		found[port] = true
	}
}
