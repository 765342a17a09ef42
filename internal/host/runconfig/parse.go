package runconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/events"
)

// maxFile bounds a run configuration, in bytes.
const maxFile = 1 << 20

var byName = func() map[string]key {
	all := make(map[string]key, len(keys))
	for _, k := range keys {
		all[k.name] = k
	}
	return all
}()

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(raw) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes, which is no run configuration", path, maxFile)
	}
	return raw, err
}

// Parse reads a file of keys and values, in YAML or JSON. Fields may stand below RunConfig or
// RunnerConfig, as in the original's code. None, null and an empty value are as if the key were not there.
// All complaints come joined, each with its line.
func Parse(raw []byte) (Values, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	v := Values{}
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return v, nil
	} else if err != nil {
		return nil, err
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("line %d: a second document begins: put all keys into one", more.Line), err)
	}
	return v, v.fields(doc.Content[0])
}

// sections are the classes whose fields may stand together.
var sections = map[string]bool{"RunConfig": true, "RunnerConfig": true}

func (v Values) fields(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: give keys with values, as in num_ps: 2", n.Line)
	}
	var errs []error
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		if sections[name] {
			errs = append(errs, v.fields(value))
			continue
		}
		if _, twice := v[name]; twice {
			errs = append(errs, fmt.Errorf("line %d: %s is given twice", n.Content[i].Line, name))
			continue
		}
		written, err := scalar(value)
		if err == nil {
			err = v.put(name, written, fromFile)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n.Content[i].Line, err))
		}
	}
	return errors.Join(errs...)
}

// scalar is a value as one text: a list becomes one with commas, an object its YAML.
func scalar(n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return "", errors.New("write the value out instead of naming an anchor")
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", nil
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		var list []string
		for _, x := range n.Content {
			if x.Kind != yaml.ScalarNode {
				return "", errors.New("a list must be of plain values")
			}
			list = append(list, x.Value)
		}
		return strings.Join(list, ","), nil
	}
	raw, err := yaml.Marshal(n)
	return strings.TrimSpace(string(raw)), err
}

func parseSets(sets []string) (Values, error) {
	v := Values{}
	var errs []error
	for _, s := range sets {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("--set %q must be key=value, as in --set num_ps=2", s))
			continue
		}
		if err := v.put(strings.TrimSpace(name), value, fromSet); err != nil {
			errs = append(errs, fmt.Errorf("--set %w", err))
		}
	}
	return v, errors.Join(errs...)
}

// put notes a value in the form that its kind has.
func (v Values) put(name, value, from string) error {
	k, ok := byName[name]
	if !ok {
		return fmt.Errorf("%s is no key of a run configuration: is %s meant?", name, nearest(name))
	}
	if value = strings.TrimSpace(value); value == "" || value == "None" {
		v[name] = given{from: from}
		return nil
	}
	if err := stateable(name, value); err != nil {
		return err
	}
	value, err := k.kind.normal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if name == "mode" || name == "discovery_type" || name == "server_type" {
		value = strings.ToLower(value[strings.LastIndex(value, ".")+1:]) // ServiceDiscoveryType.ZK is zk
	}
	v[name] = given{value, from}
	return nil
}

// stateable says why key=value cannot be a text of jobStarted.
func stateable(name, value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s is no UTF-8 text", name)
	}
	if most := events.MaxText - len(name) - len("="); len(value) > most {
		return fmt.Errorf("%s has %d bytes, at most %d are taken", name, len(value), most)
	}
	return nil
}

// normal checks a value that is there, and writes it as flags read it.
func (k kind) normal(value string) (string, error) {
	switch k {
	case truth:
		switch strings.ToLower(value) {
		case "true", "yes", "on", "1":
			return "true", nil
		case "false", "no", "off", "0":
			return "false", nil
		}
		return "", fmt.Errorf("%q is neither true nor false", value)
	case whole:
		n, err := strconv.ParseInt(strings.ReplaceAll(value, "_", ""), 10, 64)
		if err != nil {
			return "", fmt.Errorf("%q is no whole number", value)
		}
		return strconv.FormatInt(n, 10), nil
	case real:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return "", fmt.Errorf("%q is no number", value)
		}
	}
	return value, nil
}

// nearest is the key that takes the fewest edits to become of name; the first of several.
func nearest(name string) string {
	best, least := "", 1<<30
	for _, k := range keys {
		if d := edits(strings.ToLower(name), k.name); d < least {
			best, least = k.name, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two texts, in bytes.
func edits(a, b string) int {
	a = a[:min(len(a), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
