package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
)

// composed loads the compose file as docker compose does.
func composed(t *testing.T) *types.Project { return composedWith(t, types.Mapping{}) }

// composedWith is composed where the shell or .env says more.
func composedWith(t *testing.T, env types.Mapping) *types.Project {
	t.Helper()
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: "compose", ConfigFiles: []types.ConfigFile{{Filename: "compose/compose.yaml"}}, Environment: env,
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestCompose holds what stands in the compose file; TestCommandLines has its command lines.
func TestCompose(t *testing.T) {
	project := composed(t)
	roles := 0
	for name, s := range project.Services {
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to other machines", name, p.Published)
			}
		}
		if !strings.HasPrefix(s.Image, "monolith:") {
			continue
		}
		roles++
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.Environment["MONOLITH_NATS"] == nil {
			t.Errorf("%s: read only %v, without %v, environment %v", name, s.ReadOnly, s.CapDrop, s.Environment)
		}
		for other := range s.DependsOn {
			if _, ok := project.Services[other]; !ok {
				t.Errorf("%s waits for %s, which is not there", name, other)
			}
		}
	}
	if roles != 15 {
		t.Errorf("%d roles", roles)
	}
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(project.Configs["nats"].Content), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &server.Options{CheckConfig: true}
	if err := o.ProcessConfigFile(path); err != nil || !o.JetStream || !o.SyncAlways {
		t.Errorf("NATS: JetStream %v, synced %v, %v", o.JetStream, o.SyncAlways, err)
	}
}

// A collector that the environment of docker compose names is told by every role, and by default none.
func TestComposeTelemetry(t *testing.T) {
	env := types.Mapping{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4317", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=x"}
	for name, s := range composedWith(t, maps.Clone(env)).Services { // the loader adds the project's name
		for key, want := range env {
			if got := s.Environment[key]; strings.HasPrefix(s.Image, "monolith:") && (got == nil || *got != want) {
				t.Errorf("%s: %s is not %q", name, key, want)
			}
		}
	}
	for name, s := range composed(t).Services {
		for key := range env {
			if got := s.Environment[key]; got != nil && *got != "" {
				t.Errorf("%s: %s is %q by default", name, key, *got)
			}
		}
	}
}
