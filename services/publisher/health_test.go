package publisher_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/publisher"
)

// A loaded model that nobody has room for is a state of the role until it is planned.
func TestPlansThatCannotBeMadeAreAProblem(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	env := controltest.Env(b)
	env.Health = health.New()
	s, err := publisher.New(publisher.Config{Debounce: time.Millisecond, Recheck: 20 * time.Millisecond}, env)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	until := func(what string, is func(string) bool) {
		t.Helper()
		wait.Seen(t, what, func() (string, bool) { s := env.Health.Summary(); return s, is(s) })
	}
	store(t, b, load("m", dir, 1, 1, 1))
	until("no plan", func(s string) bool {
		return strings.HasPrefix(s, "plans: model m has none: no live container can take")
	})
	store(t, b, up("any", "", -1))
	until("a plan", func(s string) bool { return s == "" })
}

// Heartbeats become facts many times a second: they cost a look each, but not more than
// some a second.
func TestLooksAreFew(t *testing.T) {
	b := mem.New()
	env := controltest.Env(b)
	reg := prometheus.NewRegistry()
	env.Metrics = reg
	s, err := publisher.New(publisher.Config{Debounce: time.Millisecond}, env)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	looks := func() (n int) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "monolith_publisher_looks_total" {
				n = int(f.GetMetric()[0].GetCounter().GetValue())
			}
		}
		return n
	}
	const many = 2000
	began, before := time.Now(), looks()
	for i := range many {
		store(t, b, bus.Draft{Subject: events.Join(controltest.BZID, "container", "c"), Event: &container.Event{Body: &container.Event_Reported{
			Reported: &container.Reported{Container: &container.Container{Id: "c", Kind: "training", Job: "j", ServerType: "ps", Index: int32(i)}}}}})
	}
	wait.For(t, "a look", func() bool { return looks() > before })
	got := looks() - before // counted before the time is taken, so that what comes meanwhile is allowed
	if most := 2*int(time.Since(began)/(20*time.Millisecond)) + 10; got > most {
		t.Errorf("%d looks at %d events, at most %d are allowed", got, many, most)
	}
}
