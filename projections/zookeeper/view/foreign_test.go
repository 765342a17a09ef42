package view

import (
	"fmt"
	"testing"
)

// Containers of foreign agents are told from others by their ids.
func TestContainersOfForeignAgents(t *testing.T) {
	for id, want := range map[string]bool{"znode-1:2": true, "znode-0:0": true, "1:2": false, "znode-1": false, "znode-a:2": false, "znode-1:b": false, "znode-": false, "": false} {
		node, shard, number, ok := foreignNode(id)
		if ok != want || ok && (ForeignContainer(node) != id || node != fmt.Sprintf("%d:%d", shard, number)) {
			t.Errorf("%q is a foreign agent's: %v; %q, %d, %d", id, ok, node, shard, number)
		}
	}
}
