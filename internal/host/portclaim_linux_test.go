package host

import (
	"fmt"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/process/freeport"
)

// A port belongs to its stack while nobody listens on it, as between the end of a role and
// its next start: another stack that wants it has another one. Afterwards it is free.
func TestAPortIsItsStacksWhileNobodyListens(t *testing.T) {
	config := func(port int) Config {
		cfg := small(t)
		cfg.ZKPort = port
		return cfg
	}
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	first, halt := logsOnly(t, config(port)) // without its roles
	second, _ := logsOnly(t, config(port))
	if first.Config.ZKPort != port || second.Config.ZKPort == port {
		t.Errorf("the first stack has port %d, the second %d; both want %d", first.Config.ZKPort, second.Config.ZKPort, port)
	}
	if note := fmt.Sprintf("port %d is taken, so ZooKeeper got %d", port, second.Config.ZKPort); !slices.Contains(second.Notes, note) {
		t.Errorf("notes %q", second.Notes)
	}
	halt()
	if third, _ := logsOnly(t, config(port)); third.Config.ZKPort != port {
		t.Errorf("port %d is free again, and the third stack has %d", port, third.Config.ZKPort)
	}
}
