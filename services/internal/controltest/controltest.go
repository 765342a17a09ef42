// Package controltest is what tests of the control plane's roles share: a role that runs
// for one test, exports to load, containers that beat, and facts to wait for.
package controltest

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
)

// BZID is the namespace of every test.
const BZID = "test"

// Patience bounds every wait of a test.
const Patience = wait.Patience

// Env gives a role the bus b and metrics of its own.
func Env(b bus.Bus) services.Env {
	return services.Env{
		BZID: BZID, Bus: b, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer("test"),
	}
}

// Start runs r until the test ends or stop is called, and waits until it is ready. A
// role that fails fails the test.
func Start(t testing.TB, r services.Role) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%T ended with %v", r, err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-r.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("%T ended before it was ready: %v", r, err)
	case <-time.After(Patience):
		t.Fatalf("%T is not ready", r)
	}
	return stop
}

// Call asks a command; an answer is expected at once.
func Call(t testing.TB, b bus.Bus, command, payload string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	reply, err := b.Commands().Call(ctx, BZID, command, []byte(payload))
	return string(reply), err
}

// MustCall is Call for commands that are not refused.
func MustCall(t testing.TB, b bus.Bus, command, payload string) string {
	t.Helper()
	reply, err := Call(t, b, command, payload)
	if err != nil {
		t.Fatalf("%s %s: %v", command, payload, err)
	}
	return reply
}

// Beat sends one heartbeat.
func Beat(t testing.TB, b bus.Bus, hb *replica.Heartbeat) {
	t.Helper()
	body, err := events.Marshal(hb)
	if err != nil {
		t.Fatal(err)
	}
	MustCall(t, b, "pulse.registry.heartbeat", string(body))
}

// Publish stores a bare event, as `nats pub` would.
func Publish(t testing.TB, b *mem.Bus, subject events.Subject, data string) uint64 {
	t.Helper()
	seq, err := b.Publish(context.Background(), string(subject), nil, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// Next returns the first event at or behind from for which is holds.
func Next(t testing.TB, b bus.Bus, from uint64, is func(events.Recorded) bool) (found events.Recorded) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := b.Log().Follow(ctx, from, 0, func(r events.Recorded) error {
		if is(r) {
			found = r
			cancel()
			return context.Canceled
		}
		return nil
	})
	if found.Seq == 0 {
		t.Fatalf("no such event from sequence %d: %v\n%s", from, err, Story(t, b))
	}
	return found
}

// All returns the log so far.
func All(t testing.TB, b bus.Bus) (all []events.Recorded) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	last, err := b.Log().Last(ctx)
	if err != nil || last == 0 {
		return nil
	}
	if err := b.Log().Follow(ctx, 1, last, func(r events.Recorded) error { all = append(all, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// Story is the log as text, for failures.
func Story(t testing.TB, b bus.Bus) (text string) {
	t.Helper()
	for _, r := range All(t, b) {
		text += strconv.FormatUint(r.Seq, 10) + " " + string(r.Subject) + " " + string(r.Data) + "\n"
	}
	return text
}

// Count is how many events of the log is holds for.
func Count(t testing.TB, b bus.Bus, is func(events.Recorded) bool) (n int) {
	t.Helper()
	for _, r := range All(t, b) {
		if is(r) {
			n++
		}
	}
	return n
}

// Of matches events whose type is one of types, such as loadAccepted.
func Of(types ...string) func(events.Recorded) bool {
	return func(r events.Recorded) bool {
		for _, typ := range types {
			if r.Err == nil && r.Header.Type == typ {
				return true
			}
		}
		return false
	}
}

// Letter waits for a dead letter about the event at seq.
func Letter(t testing.TB, b bus.Bus, seq uint64) bus.Parked {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		all, err := b.DeadLetters().List(ctx)
		if err != nil {
			t.Fatalf("no letter about sequence %d: %v", seq, err)
		}
		for _, l := range all {
			if l.StreamSeq == seq {
				return l
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no letter about sequence %d\n%s", seq, Story(t, b))
		case <-time.After(time.Millisecond):
		}
	}
}

// Spec is the movie ranking model under a name.
func Spec(name string) *model.ModelSpec {
	spec := proto.CloneOf(modelspec.MovieRanking())
	spec.Name = name
	return spec
}

// Export writes an exported_models folder with the given versions of shards ps folders
// and an entry, all of them empty but real.
func Export(t testing.TB, dir string, spec *model.ModelSpec, shards int, versions ...int64) string {
	t.Helper()
	for _, v := range versions {
		version := strconv.FormatInt(v, 10)
		e := &checkpoint.Entry{Spec: spec, Version: v, Job: spec.GetName(), Shards: uint32(shards), Dense: map[string]checkpoint.Variable{}}
		if err := checkpoint.WriteEntry(filepath.Join(dir, "entry", version), e); err != nil {
			t.Fatal(err)
		}
		for i := range shards {
			s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: spec.GetName(), Checkpoint: v, Shard: uint32(i), Shards: uint32(shards)},
				Dense: map[string]checkpoint.Variable{"bias": {Shape: []uint32{2}, Values: []float32{float32(v), float32(i)}}}}
			if _, err := checkpoint.WriteShard(filepath.Join(dir, "ps_"+strconv.Itoa(i), version), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
