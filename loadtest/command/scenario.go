// Package command is monolith loadtest: open-loop load on any TensorFlow Serving, the highest rate
// that it bears, and two runs side by side.
package command

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/cluster"
)

// Scenario is what a server is asked, and when.
type Scenario struct {
	Model       string        `yaml:"model"`
	Version     int64         `yaml:"version"`
	Signature   string        `yaml:"signature"`
	Rate        float64       `yaml:"rate"`     // calls per second
	Arrivals    string        `yaml:"arrivals"` // poisson or even
	Duration    time.Duration `yaml:"duration"`
	Warmup      time.Duration `yaml:"warmup"` // before it, not counted
	Batch       int           `yaml:"batch"`  // samples of a call
	Shared      []string      `yaml:"shared"` // inputs of which all samples of a call have the same values
	MaxID       int64         `yaml:"max_id"`
	Requests    int           `yaml:"requests"` // different ones, sent in turns
	Seed        uint64        `yaml:"seed"`
	Timeout     time.Duration `yaml:"timeout"`
	MaxInFlight int           `yaml:"max_in_flight"`
	Connections int           `yaml:"connections"`
	Protocol    string        `yaml:"protocol"` // tensorflow, kserve or kserve-rest
	Skew        float64       `yaml:"skew"`     // exponent of Zipf's law by which ids are drawn, above 1; 0: evenly
	// OfCapacity is the rate as a multiple of what the server is measured to bear first; 0: Rate is it.
	OfCapacity float64 `yaml:"of_capacity"`
	// Shards, Replicas and Event are for a run that starts the server itself: how large it is, and
	// what happens to it after a third of the time.
	Shards   int    `yaml:"shards"`
	Replicas int    `yaml:"replicas"`
	Event    string `yaml:"event"`
}

// ready are the scenarios that have names.
var ready = map[string]Scenario{
	"predict":        {Rate: 100, Batch: 1},
	"fan-out":        {Rate: 500, Batch: 1000, Shared: []string{"user"}, Shards: 4},
	"skewed":         {Rate: 100, Batch: 100, Skew: 1.2, Requests: 1024},
	"slow-replica":   {Rate: 100, Batch: 10, Duration: 30 * time.Second, Event: "slow"},
	"killed-replica": {Rate: 100, Batch: 10, Duration: 30 * time.Second, Event: "kill"},
	"version-swap":   {Rate: 100, Batch: 10, Duration: 30 * time.Second, Event: "swap"},
	"delta-storm":    {Rate: 100, Batch: 10, Duration: 30 * time.Second, Event: "deltas"},
	"overload":       {OfCapacity: 2, Batch: 100, Timeout: 250 * time.Millisecond, MaxInFlight: 4096},
}

func names() string { return strings.Join(slices.Sorted(maps.Keys(ready)), ", ") }

// maxFile bounds a scenario's file.
const maxFile = 1 << 20

// find is a ready scenario, or that of a YAML file.
func find(name string) (Scenario, error) {
	s, ok := ready[name]
	if !ok {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return s, fmt.Errorf("%w: %q is neither a scenario (%s) nor a file", flags.ErrUsage, name, names())
		}
		if err != nil {
			return s, err
		}
		defer func() { _ = f.Close() }()
		raw, err := io.ReadAll(io.LimitReader(f, maxFile))
		if err != nil {
			return s, err
		}
		d := yaml.NewDecoder(bytes.NewReader(raw))
		d.KnownFields(true)
		if err := d.Decode(&s); err != nil {
			return s, fmt.Errorf("scenario %s: %w", name, err)
		}
	}
	s.Model = cmp.Or(s.Model, "movies")
	s.Signature = cmp.Or(s.Signature, tfserving.DefaultSignature)
	s.Rate = cmp.Or(s.Rate, 100)
	s.Arrivals = cmp.Or(s.Arrivals, "poisson")
	s.Duration = cmp.Or(s.Duration, 10*time.Second)
	s.Batch = cmp.Or(s.Batch, 1)
	s.MaxID = cmp.Or(s.MaxID, 1000)
	s.Requests = cmp.Or(s.Requests, 64)
	s.Seed = cmp.Or(s.Seed, 1)
	s.Timeout = cmp.Or(s.Timeout, time.Second)
	s.MaxInFlight = cmp.Or(s.MaxInFlight, 256)
	s.Connections = cmp.Or(s.Connections, 2)
	s.Protocol = cmp.Or(s.Protocol, tensorflow)
	s.Shards = cmp.Or(s.Shards, 2)
	s.Replicas = cmp.Or(s.Replicas, 2)
	return s, nil
}

// changes are flags that count before what the scenario says.
type changes struct {
	said Scenario
	fs   *pflag.FlagSet
}

func (c *changes) register(fs *pflag.FlagSet) {
	c.fs = fs
	fs.StringVar(&c.said.Model, "model", "", "`model` that is asked")
	fs.Float64Var(&c.said.Rate, "rate", 0, "`calls` per second")
	fs.StringVar(&c.said.Arrivals, "arrivals", "", "poisson, or even intervals")
	fs.DurationVar(&c.said.Duration, "duration", 0, "time that the load lasts")
	fs.IntVar(&c.said.Batch, "batch", 0, "samples of a call")
	fs.Uint64Var(&c.said.Seed, "seed", 0, "of what is drawn")
	fs.DurationVar(&c.said.Timeout, "timeout", 0, "time that a call may take")
	fs.IntVar(&c.said.Connections, "connections", 0, "connections, used in turns")
	fs.StringVar(&c.said.Protocol, "protocol", "", strings.Join(protocols, ", ")+": TensorFlow Serving's gRPC, or the open inference protocol over gRPC or HTTP")
	fs.IntVar(&c.said.Shards, "shards", 0, "serving shards of the server that is started where no --target is given")
	fs.IntVar(&c.said.Replicas, "replicas", 0, "replicas of each of them")
}

// apply changes a scenario as the flags say, and checks it.
func (c *changes) apply(s *Scenario) error {
	for name, set := range map[string]func(){
		"model": func() { s.Model = c.said.Model }, "rate": func() { s.Rate = c.said.Rate }, "arrivals": func() { s.Arrivals = c.said.Arrivals },
		"duration": func() { s.Duration = c.said.Duration }, "batch": func() { s.Batch = c.said.Batch }, "seed": func() { s.Seed = c.said.Seed },
		"timeout": func() { s.Timeout = c.said.Timeout }, "connections": func() { s.Connections = c.said.Connections },
		"protocol": func() { s.Protocol = c.said.Protocol }, "shards": func() { s.Shards = c.said.Shards }, "replicas": func() { s.Replicas = c.said.Replicas },
	} {
		if c.fs.Changed(name) {
			set()
		}
	}
	if c.fs.Changed("rate") {
		s.OfCapacity = 0
	}
	return s.validate()
}

// validate joins every complaint.
func (s *Scenario) validate() error {
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{flags.ErrUsage}, args...)...))
	}
	if s.Arrivals != "poisson" && s.Arrivals != "even" {
		complain("arrivals %q are neither poisson nor even", s.Arrivals)
	}
	if !(s.Rate > 0 && s.Rate <= 1e6) || s.Duration <= 0 || s.Timeout <= 0 || s.Warmup < 0 {
		complain("the rate (%v, at most a million), duration (%v) and timeout (%v) must be positive, and the warm-up not negative", s.Rate, s.Duration, s.Timeout)
	}
	for name, n := range map[string]int{"batch": s.Batch, "requests": s.Requests, "max_in_flight": s.MaxInFlight, "connections": s.Connections} {
		if n < 1 || n > 1<<16 {
			complain("%s is %d; want 1 to %d", name, n, 1<<16)
		}
	}
	if !slices.Contains(protocols, s.Protocol) {
		complain("the protocol %q is none of %s", s.Protocol, strings.Join(protocols, ", "))
	}
	if s.Skew != 0 && !(s.Skew > 1 && s.Skew <= 16) || s.OfCapacity < 0 || s.OfCapacity > 100 {
		complain("skew is %v and of_capacity %v; want an exponent above 1, to 16, and a multiple to 100", s.Skew, s.OfCapacity)
	}
	if s.Shards < 1 || s.Shards > 64 || s.Replicas < 1 || s.Replicas > 16 {
		complain("%d shards of %d replicas; want 1 to 64 of 1 to 16", s.Shards, s.Replicas)
	}
	if s.Event != "" && (cluster.Disturbances[s.Event] == nil || s.Replicas < 2) {
		complain("the event %q with %d replicas; want one of %s, and 2 or more", s.Event, s.Replicas, strings.Join(slices.Sorted(maps.Keys(cluster.Disturbances)), ", "))
	}
	if s.MaxID < 1 {
		complain("max_id is %d; want 1 or more", s.MaxID)
	}
	return errors.Join(errs...)
}
