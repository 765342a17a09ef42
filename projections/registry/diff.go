package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Diff compares two states as Replay prints them, one line per leaf that differs:
//
//	models.movie.load.version: 1 -> 2
//	models.movie.spec: - -> {"name":"movie"}
//
// A leaf that only one side has shows "-" on the other. Equal states give "".
func Diff(a, b []byte) string {
	var out strings.Builder
	av, aerr := parse(a)
	bv, berr := parse(b)
	if aerr != nil || berr != nil {
		if !bytes.Equal(a, b) {
			fmt.Fprintf(&out, "not comparable as JSON: %v; %v\n", aerr, berr)
		}
		return out.String()
	}
	diff(&out, "", av, bv)
	return out.String()
}

// absent stands for a key that is not there, which null is not.
type absent struct{}

func parse(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // sequences and session ids do not fit a float
	err = d.Decode(&v)
	return v, err
}

func diff(out *strings.Builder, path string, a, b any) {
	switch av := a.(type) {
	case map[string]any:
		if bv, ok := b.(map[string]any); ok {
			keys := maps.Clone(av)
			maps.Copy(keys, bv)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				diff(out, join(path, k), pick(av, k), pick(bv, k))
			}
			return
		}
	case []any:
		if bv, ok := b.([]any); ok {
			for i := range max(len(av), len(bv)) {
				diff(out, fmt.Sprintf("%s[%d]", path, i), item(av, i), item(bv, i))
			}
			return
		}
	}
	if x, y := show(a), show(b); x != y {
		fmt.Fprintf(out, "%s: %s -> %s\n", path, x, y)
	}
}

// join quotes keys in which a dot would mislead.
func join(path, key string) string {
	if key == "" || strings.ContainsAny(key, ". \"[]") {
		key = fmt.Sprintf("%q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func pick(m map[string]any, k string) any {
	if v, ok := m[k]; ok {
		return v
	}
	return absent{}
}

func item(s []any, i int) any {
	if i < len(s) {
		return s[i]
	}
	return absent{}
}

func show(v any) string {
	if _, ok := v.(absent); ok {
		return "-"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}
