package cluster

import (
	"fmt"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/hosts"
)

const (
	// lasts is how long a fault is, and soonest how long writes may stay without an ack for it.
	lasts   = 12 * time.Second
	soonest = 10 * time.Second
)

// fault is something that happens to a machine or a process, and ends.
type fault struct {
	name       string
	begin, end func()
}

// machineFaults are those of each machine, with everything on it.
func (w *world) machineFaults() (all []fault) {
	for _, m := range w.machines {
		add := func(name string, begin, end func()) {
			all = append(all, fault{fmt.Sprintf("machine %s is %s", m.Address, name), begin, end})
		}
		add("killed", m.off, m.boot)
		add("cut off", m.Cut, m.Heal)
		add("paused", func() { m.Signal(syscall.SIGSTOP) }, func() { m.Signal(syscall.SIGCONT) })
		add("restarted", m.drain, m.boot)
		add("far away", func() { m.Link(hosts.Link{Delay: 20 * time.Millisecond, Loss: 0.01}) }, m.Heal)
	}
	return all
}

// processFaults are those of each process. One that ends is started again by itself.
func (w *world) processFaults() (all []fault) {
	for _, m := range w.machines {
		for _, k := range m.tasks {
			add := func(name string, begin, end func()) {
				all = append(all, fault{fmt.Sprintf("%s on %s is %s", k.name, m.Address, name), begin, end})
			}
			add("killed", func() { k.signal(syscall.SIGKILL) }, func() {})
			add("paused", func() { k.signal(syscall.SIGSTOP) }, func() { k.signal(syscall.SIGCONT) })
			add("restarted", func() { k.signal(syscall.SIGTERM) }, func() {})
		}
	}
	return all
}

// suffer has a fault happen, waits until everything is as well as before, and holds that writes were
// not without an ack for long.
func (f *traffic) suffer(x fault) {
	f.w.t.Helper()
	f.worst()
	began := time.Now()
	x.begin()
	time.Sleep(lasts - time.Since(began))
	x.end()
	ended := time.Now()
	f.w.well(f.job)
	gaps, asked := f.worst()
	f.w.t.Logf("%s: well again %v after its end; longest without an ack: %v; %d of %d predictions, p99 %v ms, slowest %v, %v", x.name, time.Since(ended).Round(100*time.Millisecond), rounded(gaps),
		asked.Answered, asked.Calls, asked.P99, asked.Max, asked.Errors)
	for what, gap := range gaps {
		if f.soak && gap > soonest {
			f.w.t.Errorf("%s: %s without an ack for %v", x.name, what, gap.Round(100*time.Millisecond))
		}
	}
}

func rounded(gaps map[string]time.Duration) map[string]time.Duration {
	for what := range gaps {
		gaps[what] = gaps[what].Round(100 * time.Millisecond)
	}
	return gaps
}
