package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// manifest is one object as the chart renders it.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`

	yaml []byte
}

func (m manifest) id() string { return m.Kind + "/" + m.Metadata.Name }

// render is what helm template prints: the objects of a release in the namespace monolith,
// sorted, of the chart below dir with the values given.
func render(dir, release, values string) ([]manifest, error) {
	chart, err := loader.Load(filepath.Join(dir, "helm", "monolith"))
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: release, Namespace: "monolith", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var out []manifest
	for path, text := range texts {
		if filepath.Ext(path) != ".yaml" {
			continue
		}
		objects, err := split(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, objects...)
	}
	slices.SortFunc(out, func(a, b manifest) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return out, nil
}

// split takes a stream of YAML documents apart; empty ones are left out.
func split(text string) (all []manifest, err error) {
	for _, doc := range strings.Split("\n"+text, "\n---") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc+"\n"), &object); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, doc)
		}
		if len(object) == 0 {
			continue
		}
		// Written anew, with sorted keys: a comment or a blank of the template is no change.
		raw, err := yaml.Marshal(object)
		if err != nil {
			return nil, err
		}
		m := manifest{yaml: raw}
		if err := yaml.Unmarshal(raw, &m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
