package natsserver

import (
	"errors"
	"testing"
)

// A replica that makes progress is well by the server's own check, and current only once it has
// applied what was committed when it first heard of that.
func TestReadyOnlyOnceCaughtUp(t *testing.T) {
	var c catchUp
	one := func(leader, catchingUp bool, committed, applied uint64) map[string]group {
		return map[string]group{"meta": {Leader: true, Committed: 9, Applied: 9}, "log": {leader, catchingUp, committed, applied}}
	}
	for i, step := range []struct {
		health error
		groups map[string]group
		ready  bool
	}{
		{errors.New("no contact with a meta leader"), nil, false},
		{nil, one(false, false, 0, 0), false},
		{nil, one(true, true, 100, 10), false},
		{nil, one(true, false, 100, 20), false},
		{nil, one(true, false, 150, 99), false},  // progress is not enough
		{nil, one(true, false, 160, 101), true},  // the goal is that of the first look, or a busy log were never ready
		{nil, one(true, false, 900, 500), true},  // from here on the check counts
		{nil, one(false, false, 900, 500), true}, // an election of one stream takes no server away
		{errors.New("stream is not current"), one(true, false, 900, 500), false},
		{nil, one(true, false, 900, 500), false}, // the whole way again
		{nil, one(true, false, 900, 900), true},
	} {
		if err := c.look(step.health, step.groups); (err == nil) != step.ready {
			t.Errorf("step %d: %v", i, err)
		}
	}
	var gone catchUp // a stream that is deleted meanwhile keeps nobody waiting
	if err := gone.look(nil, one(true, false, 100, 1)); err == nil {
		t.Error("ready at the first look")
	}
	if err := gone.look(nil, map[string]group{}); err != nil {
		t.Errorf("a deleted stream: %v", err)
	}
}
