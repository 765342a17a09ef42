package replicaregistry

import (
	"strings"
	"testing"
)

func TestTheAgentServiceBeyondThisMachineIsAskedForByName(t *testing.T) {
	for addr, want := range map[string]bool{"": true, "127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false, ":0": false, "[::]:0": false} {
		c := Config{Listen: addr}
		if err := c.Validate(); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "--insecure-agent") {
			t.Errorf("%q: %v", addr, err)
		}
		c.InsecureAgent = true
		if err := c.Validate(); err != nil {
			t.Errorf("%q, allowed: %v", addr, err)
		}
	}
}
