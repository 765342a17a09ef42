package controltest_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelserver"
	"github.com/monolith-go/monolith/services/portal"
	"github.com/monolith-go/monolith/services/replicaregistry"
	"github.com/monolith-go/monolith/services/tfssupervisor"
)

// builtIn starts the built-in model server within the test.
func builtIn(t *testing.T, b *mem.Bus, container string) tfssupervisor.Launcher {
	return tfssupervisor.LauncherFunc(func(context.Context) (tfssupervisor.Server, error) {
		s, err := modelserver.New(modelserver.Config{Container: container, Frozen: true, PollInterval: 50 * time.Millisecond}, controltest.Env(b))
		if err != nil {
			return tfssupervisor.Server{}, err
		}
		stop := controltest.Start(t, s)
		ended := make(chan struct{})
		end := func() {
			stop()
			select {
			case <-ended:
			default:
				close(ended)
			}
		}
		return tfssupervisor.Server{GRPCAddr: s.GRPCAddr(), HTTPAddr: s.HTTPAddr(), RowsAddr: s.RowsAddr(), PID: 1,
			Wait: func() error { <-ended; return nil }, Kill: end, Stop: end}, nil
	})
}

// Layouts and saved models that kazoo writes into a real ensemble, as the original's agent_controller does, are followed by
// our agents, whose bindings stand in that ensemble.
func TestOracleKazooLayout(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	exports := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("movies"), 2, 7)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	run := func(r services.Role, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		controltest.Start(t, r)
	}
	run(portal.New(portal.Config{}, controltest.Env(b)))
	run(replicaregistry.New(replicaregistry.Config{Lease: time.Minute, ZKListen: "127.0.0.1:0",
		Mirror: replicaregistry.ZKMirror{Servers: []string{ensemble.Addr}, Bridge: true, Session: time.Minute}}, controltest.Env(b)))
	for _, container := range []string{"even", "odd"} {
		run(tfssupervisor.New(tfssupervisor.Config{Container: container, Layout: "l1", LayoutFilters: []string{map[string]string{
			"even": "ps_{i}; i % 2 == 0", "odd": "ps_{i}; i % 2 == 1"}[container]}, Poll: 20 * time.Millisecond,
			Getenv: func(string) string { return "" }}, controltest.Env(b), builtIn(t, b, container)))
	}

	kazoo := oracle.Run(t, exec.CommandContext(t.Context(), oracle.Python(t), "testdata/kazoo_layout.py", ensemble.Addr, exports)) // it knows only the ensemble
	does := func(command string) string {
		t.Helper()
		kazoo.Say(t, command)
		return kazoo.Line(t)
	}
	bound := func(what string, subs ...string) {
		t.Helper()
		wait.Seen(t, what, func() (string, bool) {
			said := does("bindings")
			var names []string
			for _, sub := range subs {
				names = append(names, fmt.Sprintf("%q", sub))
			}
			return said, said == fmt.Sprintf(`{"bindings": [%s]}`, strings.Join(names, ", "))
		})
	}
	for _, line := range []string{"declare ps_0 latest", "declare ps_1 latest_once", "publish ps_0"} {
		does(line)
	}
	bound("the first shard is served", "ps_0")
	does("publish ps_1")
	bound("both shards are served", "ps_0", "ps_1")
	does("unpublish ps_0")
	bound("the first shard is taken back", "ps_1")

	info := controltest.MustCall(t, b, "portal.bzidInfo", "")
	if !strings.Contains(info, `"movies:ps_1"`) || strings.Contains(info, `"movies:ps_0"`) {
		t.Errorf("the layout is not what kazoo wrote:\n%s", info)
	}
	declared := []string{}
	for _, r := range controltest.All(t, b) {
		if controltest.Of("savedModelsDeclared", "entriesAdded", "entriesRemoved")(r) {
			declared = append(declared, string(r.Header.Type))
		}
	}
	if slices.Contains(declared, "") || len(declared) != 5 {
		t.Errorf("facts %v, want two declarations, two entries, one removal", declared)
	}
}
