package machine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/compat/resources"
	"github.com/monolith-go/monolith/services/ps/machine"
)

// group is a machine whose one control group has 1000 MiB, of which so many are in use.
type group struct{ files fstest.MapFS }

func (g group) uses(mib int) {
	g.files["sys/fs/cgroup/memory.current"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", mib<<20)}
}

func newGroup(limit string) (group, *machine.Check) {
	g := group{fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte(limit + "\n")},
	}}
	return g, &machine.Check{High: 0.9, Memory: resources.New(g.files, func(string) string { return "" }).GroupHeadroom, Timeout: time.Minute}
}

// TestMemory: a group is out of memory from the limit on, and well again clearly below it; what has no
// limit, and what cannot be read, is not judged.
func TestMemory(t *testing.T) {
	g, c := newGroup("1048576000")
	for _, step := range []struct {
		mib int
		out bool
	}{{100, false}, {899, false}, {900, true}, {899, true}, {851, true}, {849, false}, {899, false}, {1000, true}} {
		g.uses(step.mib)
		f := c.Look(t.Context())
		if (f != nil) != step.out || f != nil && (f.Status != shard.MachineFailed_OUT_OF_MEMORY || !strings.Contains(f.Reason, fmt.Sprintf("%d of 1000 MiB", step.mib))) {
			t.Errorf("%d MiB in use: %+v", step.mib, f)
		}
	}
	g.files["sys/fs/cgroup/memory.stat"] = &fstest.MapFile{Data: fmt.Appendf(nil, "active_file %d\nslab_reclaimable %d\n", 500<<20, 100<<20)}
	if f := c.Look(t.Context()); f != nil {
		t.Errorf("600 MiB of what is in use are cache: %+v", f)
	}
	c.High = 0
	if f := c.Look(t.Context()); f != nil {
		t.Errorf("no share was given: %+v", f)
	}
	g, c = newGroup("max")
	g.uses(5000)
	if f := c.Look(t.Context()); f != nil {
		t.Errorf("a group without a limit: %+v", f)
	}
	c.Memory = func() (resources.Memory, error) { return resources.Memory{}, errors.New("unreadable") }
	if f := c.Look(t.Context()); f != nil {
		t.Errorf("figures that cannot be read: %+v", f)
	}
}

// TestCommand: its status decides, its output is the reason, and neither a command that hangs nor one
// that talks without end holds the check up.
func TestCommand(t *testing.T) {
	look := func(command string, timeout time.Duration) *machine.Failure {
		c := machine.Check{Command: command, Timeout: timeout, Env: []string{"MONOLITH_SHARD=3"}}
		return c.Look(t.Context())
	}
	if f := look("echo all is well", time.Minute); f != nil {
		t.Errorf("a machine that is well: %+v", f)
	}
	for command, want := range map[string]string{
		`echo "disk of shard $MONOLITH_SHARD"; echo fails >&2; exit 3`: "exit status 3: disk of shard 3 fails",
		"/nowhere/at/all": "exit status 127: ",
		"exit 1":          "exit status 1",
		"head -c 100000 /dev/zero | tr '\\0' x; exit 9": "exit status 9: xxx",
		"printf '\\377'; kill -9 $$":                    "signal: killed: ?",
	} {
		f := look(command, time.Minute)
		if f == nil || f.Status != shard.MachineFailed_CHECK_FAILED || !strings.Contains(f.Reason, want) || len(f.Reason) > 2000 {
			t.Errorf("%q: %+v", command, f)
		}
	}
	if f := look("sleep 1000", 50*time.Millisecond); f == nil || !strings.Contains(f.Reason, "did not end within 50ms") {
		t.Errorf("a command that hangs: %+v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := machine.Check{Command: "sleep 1000", Timeout: time.Minute}
	if f := c.Look(ctx); f != nil {
		t.Errorf("a look that was broken off: %+v", f)
	}
}
