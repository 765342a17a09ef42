package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	core "k8s.io/api/core/v1"
)

// TestNATSConfiguration reads the server's configuration as the server does.
func TestNATSConfiguration(t *testing.T) {
	t.Setenv("MY_POD_NAME", "monolith-nats-1")
	for values, routes := range map[string]int{"": 3, "nats: {replicas: 5}": 5, "nats: {replicas: 1}": 0} {
		_, others := workloads(t, rendering(t, values))
		found := false
		for _, o := range others {
			c, ok := o.(*core.ConfigMap)
			if !ok || c.Data["nats.conf"] == "" {
				continue
			}
			found = true
			path := filepath.Join(t.TempDir(), "nats.conf")
			if err := os.WriteFile(path, []byte(c.Data["nats.conf"]), 0o600); err != nil {
				t.Fatal(err)
			}
			o := &server.Options{CheckConfig: true} // unknown fields are errors
			if err := o.ProcessConfigFile(path); err != nil {
				t.Fatal(err)
			}
			if !o.JetStream || !o.SyncAlways || o.StoreDir != "/data" || o.ServerName != "monolith-nats-1" || o.Port != 4222 || o.HTTPPort != 8222 {
				t.Errorf("%q: JetStream %v, synced %v, in %s, named %s", values, o.JetStream, o.SyncAlways, o.StoreDir, o.ServerName)
			}
			if len(o.Routes) != routes || (routes > 0) != (o.Cluster.Name == "monolith-nats" && o.Cluster.Port == 6222) {
				t.Errorf("%q: %d routes in the cluster %q", values, len(o.Routes), o.Cluster.Name)
			}
		}
		if !found {
			t.Errorf("%q: no configuration of NATS", values)
		}
	}
}
