package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestOverlays builds each overlay, and holds that it is what the chart renders with the values
// beside it: who installs with kubectl -k gets what helm gives.
func TestOverlays(t *testing.T) {
	folders, err := filepath.Glob("k8s/overlays/*")
	if err != nil || len(folders) != 3 {
		t.Fatalf("overlays: %v, %v", folders, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
			if err != nil {
				t.Fatal(err)
			}
			text, err := built.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			all, err := split(string(text))
			if err != nil {
				t.Fatal(err)
			}
			values, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, want := map[string]string{}, map[string]string{}
			for _, m := range all {
				if _, err := typed(m); err != nil {
					t.Error(err)
				}
				got[m.id()] = string(m.yaml)
			}
			if !strings.Contains(got["Namespace/monolith"], "pod-security.kubernetes.io/enforce: restricted") {
				t.Error("the namespace does not enforce restricted pods")
			}
			delete(got, "Namespace/monolith")
			for _, m := range rendering(t, string(values)) {
				want[m.id()] = string(m.yaml)
			}
			compare(t, got, want)
		})
	}
}

// compare tells the first line in which an object differs.
func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for id, w := range want {
		g, ok := got[id]
		if !ok {
			t.Errorf("%s is missing", id)
			continue
		}
		gs, ws := lines(g), lines(w)
		for i := range max(len(gs), len(ws)) {
			if i >= len(gs) || i >= len(ws) || gs[i] != ws[i] {
				t.Errorf("%s, line %d:\n got %s\nwant %s", id, i+1, at(gs, i), at(ws, i))
				break
			}
		}
	}
	for id := range got {
		if want[id] == "" {
			t.Errorf("%s is too much", id)
		}
	}
}

// lines of an object but those that say how it was installed.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.Contains(line, "checksum/config:") || strings.TrimSpace(line) == "namespace: monolith"
	})
}

func at(lines []string, i int) string {
	if i >= len(lines) {
		return "its end"
	}
	return strings.Join(lines[max(0, i-2):min(len(lines), i+3)], "\n     ")
}
