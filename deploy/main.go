// Command deploy renders the Helm chart into the manifests that Kustomize builds on: run it in its
// folder after a change to the chart.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// monitored are the values of what is rendered beside the base, for clusters with Prometheus's
// operator and Grafana.
const monitored = "metrics: {serviceMonitor: true, rules: true, dashboard: true}"

const header = "# Rendered from deploy/helm/monolith by `go run .` in deploy; change the chart instead.\n"

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

// write renders all files below dir.
func write(dir string) error {
	files, err := rendered(dir)
	if err != nil {
		return err
	}
	for path, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, path), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rendered are the committed renderings: the chart as it is, and what it adds for monitoring.
func rendered(dir string) (map[string][]byte, error) {
	base, err := render(dir, "monolith", "")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, m := range base {
		known[m.id()] = true
	}
	all, err := render(dir, "monolith", monitored)
	if err != nil {
		return nil, err
	}
	var added []manifest
	for _, m := range all {
		if !known[m.id()] {
			added = append(added, m)
		}
	}
	return map[string][]byte{"k8s/base/monolith.yaml": join(base), "k8s/monitoring/monolith.yaml": join(added)}, nil
}

func join(all []manifest) []byte {
	raw := []byte(header)
	for _, m := range all {
		raw = append(append(raw, "---\n"...), m.yaml...)
	}
	return raw
}
