package shardcmd

import "testing"

func TestCommandKeepsJobsApart(t *testing.T) {
	if got, want := Command("a.b", 3, Hold), "ps.a%2Eb.3.hold"; got != want {
		t.Errorf("Command = %q, want %q", got, want)
	}
	if Service("a.1", 2) == Service("a", 12) {
		t.Error("two shards share a service name")
	}
}
