package resources

import (
	"math"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Usage measures how busy processors were between two looks. It is safe for concurrent
// use.
type Usage struct {
	probe *Probe
	now   func() time.Time

	mu   sync.Mutex
	last map[string]clock // by whose
}

// clock is processor time spent and what could have been spent, in any one unit.
type clock struct{ busy, wall float64 }

// NewUsage starts now to measure; now is the wall clock.
func NewUsage(p *Probe, now func() time.Time) *Usage {
	u := &Usage{probe: p, now: now, last: map[string]clock{}}
	u.Group()
	u.Machine()
	return u
}

// Group is how many processors' time the control group has used per time since the last
// call, such as 1.5. False where there is no control group, or no time has passed.
func (u *Usage) Group() (float64, bool) {
	ns, ok := u.probe.groupTime()
	if !ok {
		return 0, false
	}
	return u.since("group", clock{busy: float64(ns), wall: float64(u.now().UnixNano())})
}

// Machine is the share of all processors' time that was not idle since the last call,
// from 0 to 100. False where the machine does not tell, or no time has passed.
func (u *Usage) Machine() (float64, bool) {
	c, ok := u.probe.machineTime()
	if !ok {
		return 0, false
	}
	share, ok := u.since("machine", c)
	return math.Round(1000*min(max(share, 0), 1)) / 10, ok
}

func (u *Usage) since(whose string, now clock) (float64, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was, known := u.last[whose]
	u.last[whose] = now
	if !known || now.wall <= was.wall || now.busy < was.busy { // the clock was set back, the group is a new one
		return 0, false
	}
	return (now.busy - was.busy) / (now.wall - was.wall), true
}

// groupTime is the processor time that the control group has used, in nanoseconds.
func (p *Probe) groupTime() (int64, bool) {
	for _, controller := range []string{"cpuacct", "cpu"} {
		if dirs := p.dirs(controller, "sys/fs/cgroup/"+controller); dirs != nil {
			if ns, ok := p.number(path.Join(dirs[0], "cpuacct.usage")); ok {
				return ns, true
			}
		}
	}
	for _, dir := range p.dirs("", "sys/fs/cgroup") {
		if us := p.stat(path.Join(dir, "cpu.stat"), "usage_usec"); us > 0 && us < math.MaxInt64/1000 {
			return us * 1000, true
		}
	}
	return 0, false
}

// machineTime sums the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq, steal; what guests use is in user already.
func (p *Probe) machineTime() (c clock, ok bool) {
	for line := range strings.Lines(p.text("proc/stat")) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != "cpu" {
			continue
		}
		for i, text := range f[1:min(len(f), 9)] {
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				return clock{}, false
			}
			c.wall += float64(n)
			if i != 3 && i != 4 {
				c.busy += float64(n)
			}
		}
		return c, true
	}
	return clock{}, false
}
