// Package models has the ready models of the guide to models, as files.
package models

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names are those of the ready models, in order.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil // it is compiled in
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
}

// Text is the spec of a ready model.
func Text(name string) ([]byte, error) {
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("there is no ready model %q: name one of %s", name, strings.Join(Names(), ", "))
	}
	return text, nil
}
