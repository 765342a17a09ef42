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
	"github.com/monolith-go/monolith/internal/resources"
)

// resourceEvery is how long a measurement is repeated in heartbeats: each change by a
// tenth becomes a fact, and load averages would make many.
const resourceEvery = 10 * time.Second

// gauge measures what is free for models. files is the root folder outside of tests.
type gauge struct {
	files  fs.FS
	memory int64 // fixed, when not 0

	at   time.Time
	last *container.ResourceReported
}

func (g *gauge) read(now time.Time) *container.ResourceReported {
	if g.last != nil && now.Sub(g.at) < resourceEvery {
		return g.last
	}
	g.at = now
	g.last = &container.ResourceReported{Memory: g.memory, Cpu: resources.New(g.files, os.Getenv).CPUs(), WorkLoad: g.load()}
	if g.memory == 0 {
		g.last.Memory = g.free()
	}
	return g.last
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
