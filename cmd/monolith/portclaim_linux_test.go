package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/freeport"
)

// A port belongs to its stack while nobody listens on it, as between the end of a role and
// its next start: another stack that wants it has another one. Afterwards it is free.
func TestAPortIsItsStacksWhileNobodyListens(t *testing.T) {
	config := func(port int) stackConfig {
		cfg := opsConfig(t.TempDir())
		cfg.spans, cfg.zkPort = false, port
		return cfg
	}
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	first, halt := logsOnly(t, config(port)) // without its roles
	second, _ := logsOnly(t, config(port))
	if first.cfg.zkPort != port || second.cfg.zkPort == port {
		t.Errorf("the first stack has port %d, the second %d; both want %d", first.cfg.zkPort, second.cfg.zkPort, port)
	}
	if note := fmt.Sprintf("port %d is taken, so ZooKeeper got %d", port, second.cfg.zkPort); !slices.Contains(second.notes, note) {
		t.Errorf("notes %q", second.notes)
	}
	halt()
	if third, _ := logsOnly(t, config(port)); third.cfg.zkPort != port {
		t.Errorf("port %d is free again, and the third stack has %d", port, third.cfg.zkPort)
	}
}
