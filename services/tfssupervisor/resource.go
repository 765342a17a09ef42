package tfssupervisor

import (
	"io/fs"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/internal/compat/resources"
)

// resourceEvery is how long a measurement is repeated in heartbeats: each change by a
// tenth becomes a fact, and load averages would make many.
const resourceEvery = 10 * time.Second

// cpuEvery is over how long processor time is averaged, for the same reason.
const cpuEvery = time.Minute

// unmeasured is what agents report for a figure that nobody measures.
const unmeasured = -1.0

// gauge measures what is free for models. files is the root folder outside of tests.
type gauge struct {
	files  fs.FS
	memory int64 // fixed, when not 0

	at   time.Time
	last *container.ResourceReported

	usage *resources.Usage
	cpuAt time.Time
	cpu   float64
}

func (g *gauge) read(now time.Time) *container.ResourceReported {
	if g.last != nil && now.Sub(g.at) < resourceEvery {
		return g.last
	}
	g.at = now
	g.last = &container.ResourceReported{Memory: g.memory, Cpu: g.processors(now), Network: unmeasured, WorkLoad: g.load()}
	if g.memory == 0 {
		g.last.Memory = g.free()
	}
	return g.last
}

// processors is how many are busy: with this agent's control group, or where there is none
// with everything on the machine. In steps of a half.
func (g *gauge) processors(now time.Time) float64 {
	if g.usage == nil {
		g.usage, g.cpuAt, g.cpu = resources.NewUsage(resources.New(g.files, os.Getenv), time.Now), now, unmeasured
	}
	if now.Sub(g.cpuAt) < cpuEvery {
		return g.cpu
	}
	busy, ok := g.usage.Group()
	if !ok {
		var share float64
		share, ok = g.usage.Machine()
		busy = share / 100 * float64(runtime.NumCPU())
	}
	if g.cpuAt = now; ok {
		g.cpu = math.Round(2*busy) / 2
	}
	return g.cpu
}

// free is what the machine can still give, or less where a control group allows less; 0
// where neither can be read.
func (g *gauge) free() int64 {
	m, err := resources.New(g.files, os.Getenv).Memory()
	if err != nil {
		return 0
	}
	return m.Available
}

// load is the load average of the last minute per processor, in steps of a quarter.
func (g *gauge) load() float64 {
	raw, err := fs.ReadFile(g.files, "proc/loadavg")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(raw))
	if len(f) == 0 {
		return 0
	}
	v, err := strconv.ParseFloat(f[0], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return math.Round(4*v/float64(runtime.NumCPU())) / 4
}
