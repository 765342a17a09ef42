package role_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelsync"
	"github.com/monolith-go/monolith/services/portal"
	"github.com/monolith-go/monolith/services/publisher"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// TestRolesStart starts every role that answers or parks events of the log: on a new log,
// and once more with its snapshot behind a log that was trimmed, with something among the
// dead letters that is none. Each time it parks what is not its own.
func TestRolesStart(t *testing.T) {
	for context, role := range map[string]func(snapshots string, env services.Env) (services.Role, error){
		"publish": func(snapshots string, env services.Env) (services.Role, error) {
			return publisher.New(publisher.Config{SnapshotDir: snapshots}, env)
		},
		"model": func(snapshots string, env services.Env) (services.Role, error) {
			return portal.New(portal.Config{SnapshotDir: snapshots}, env)
		},
		"replica": func(snapshots string, env services.Env) (services.Role, error) {
			return replicaregistry.New(replicaregistry.Config{SnapshotDir: snapshots}, env)
		},
		"sync": func(snapshots string, env services.Env) (services.Role, error) {
			return modelsync.New(modelsync.Config{Host: "h", Dir: filepath.Join(snapshots, "copies"), SnapshotDir: snapshots}, env)
		},
	} {
		t.Run(context, func(t *testing.T) {
			server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			b, err := jetstream.Connect(t.Context(), jetstream.Config{Server: server, BZID: controltest.BZID})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			nc, err := nats.Connect(server.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			publish := func(subject string) (seq uint64) {
				t.Helper()
				var ack struct{ Seq uint64 }
				reply, err := nc.Request(subject, []byte("hello"), 5e9)
				if err == nil {
					err = json.Unmarshal(reply.Data, &ack)
				}
				if err != nil || ack.Seq == 0 {
					t.Fatalf("publish on %s: %v", subject, err)
				}
				return ack.Seq
			}
			snapshots := t.TempDir()
			run := func() {
				t.Helper()
				r, err := role(snapshots, controltest.Env(b))
				if err != nil {
					t.Fatal(err)
				}
				stop := controltest.Start(t, r)
				controltest.Letter(t, b, publish(string(events.Join(controltest.BZID, context, "m").Request())))
				stop()
			}
			for i := range 50 {
				_, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "container", "c"), Expect: bus.Any,
					Event: &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: int64(i)}}}})
				if err != nil {
					t.Fatal(err)
				}
			}
			run()
			if err := b.Log().(bus.Trimmer).Trim(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			publish("mdlq." + controltest.BZID + ".note")
			run()
		})
	}
}
