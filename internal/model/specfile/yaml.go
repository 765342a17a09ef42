// Package specfile reads a declared model from YAML or JSON, and says in which line what is wrong
// with it stands.
package specfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// MaxBytes bounds a spec's text.
const MaxBytes = 1 << 20

// Parse reads one ModelSpec, its fields named as in spec.proto or in lowerCamelCase,
// normalizes and validates it. JSON is YAML. Unknown and repeated keys are refused; errors say in
// which line they are.
//
// An element of a list in whose texts a range as {1..26} stands is as many elements, with the
// numbers in its place; all ranges of an element count alike.
func Parse(data []byte) (*model.ModelSpec, error) { return parse(data, nil) }

// parse is Parse of a spec whose lists may stand in files, which list reads.
func parse(data []byte, list func(path string) ([]string, error)) (*model.ModelSpec, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("model spec of %d bytes: %d are allowed", len(data), MaxBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := dec.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("model spec is empty: declare a model")
	} else if err != nil {
		return nil, fmt.Errorf("read model spec: %w", err)
	}
	// Into maps once: this refuses repeated keys, and anchors that would fill the memory.
	var tree map[string]any
	if err := document.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read model spec: %w", err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("model spec has a second document behind the first: one file declares one model")
	}
	if tree == nil {
		return nil, errors.New("model spec is empty: declare a model")
	}
	j := &lines{of: map[string]int{}, list: list}
	if err := j.value(document.Content[0], "", ""); err != nil {
		return nil, fmt.Errorf("read model spec: %w", err)
	}
	spec := &model.ModelSpec{}
	if err := protojson.Unmarshal(j.text.Bytes(), spec); err != nil {
		return nil, fmt.Errorf("read model spec: %w", j.inYAML(err))
	}
	spec = modelspec.Normalize(spec)
	if all := modelspec.Complaints(spec); len(all) > 0 {
		for i, err := range all {
			all[i] = j.locate(err)
		}
		return nil, fmt.Errorf("model spec is not valid: %w", errors.Join(all...))
	}
	return spec, nil
}

// maxJSON bounds what a spec's ranges and anchors become.
const maxJSON = 8 << 20

// lines writes YAML as JSON, a value on each line, and remembers whose line that was.
type lines struct {
	text bytes.Buffer
	yaml []int          // by line of text
	of   map[string]int // by path, as "layers[2].units"
	list func(path string) ([]string, error)
}

func (j *lines) put(s string, line int) error {
	j.text.WriteString(s)
	j.text.WriteByte('\n')
	if j.yaml = append(j.yaml, line); j.text.Len() > maxJSON {
		return fmt.Errorf("line %d: with its ranges and anchors it has more than %d bytes: declare less", line, maxJSON)
	}
	return nil
}

// value writes a node, with before in front of it.
func (j *lines) value(n *yaml.Node, path, before string) error {
	line := n.Line
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if _, there := j.of[path]; !there && path != "" {
		j.of[path] = line
	}
	switch n.Kind {
	case yaml.MappingNode:
		return j.mapping(n, path, before, line)
	case yaml.SequenceNode:
		return j.sequence(n, path, before, line)
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("line %d: %w: keys are text, numbers are finite", line, err)
	}
	return j.put(before+string(text), line)
}

func (j *lines) mapping(n *yaml.Node, path, before string, line int) error {
	if err := j.put(before+"{", line); err != nil {
		return err
	}
	comma, seen := "", map[string]bool{}
	var pairs func(n *yaml.Node) error
	pairs = func(n *yaml.Node) error {
		var merged []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Tag == "!!merge" {
				merged = append(merged, value)
				continue
			}
			for key.Kind == yaml.AliasNode {
				key = key.Alias
			}
			if seen[key.Value] {
				continue // a merged mapping does not override
			}
			seen[key.Value] = true
			name, err := json.Marshal(key.Value)
			if err != nil {
				return err
			}
			inner := strings.TrimPrefix(path+"."+snake(key.Value), ".")
			j.of[inner] = n.Content[i].Line
			if j.list != nil && listed.MatchString(inner) {
				if err := j.values(value, comma); err != nil {
					return err
				}
				comma = ","
				continue
			}
			if err := j.value(value, inner, comma+string(name)+": "); err != nil {
				return err
			}
			comma = ","
		}
		for _, m := range merged {
			for m.Kind == yaml.AliasNode {
				m = m.Alias
			}
			of := []*yaml.Node{m}
			if m.Kind == yaml.SequenceNode {
				of = m.Content
			}
			for _, m := range of {
				for m.Kind == yaml.AliasNode {
					m = m.Alias
				}
				if err := pairs(m); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := pairs(n); err != nil {
		return err
	}
	return j.put("}", line)
}

func (j *lines) sequence(n *yaml.Node, path, before string, line int) error {
	if err := j.put(before+"[", line); err != nil {
		return err
	}
	comma, at := "", 0
	for _, element := range n.Content {
		count, err := copies(element)
		if err != nil {
			return err
		}
		for i := range max(count, 1) {
			c := element
			if count > 0 {
				c = numbered(element, i) // one at a time: put bounds them
			}
			if err := j.value(c, fmt.Sprintf("%s[%d]", path, at), comma); err != nil {
				return err
			}
			comma, at = ",", at+1
		}
	}
	return j.put("]", line)
}

// locate says in which line what err is about stands: its element, or the list that this is in.
func (j *lines) locate(err error) error {
	var e *modelspec.ElementError
	if !errors.As(err, &e) {
		return err
	}
	for path := e.Path; path != ""; {
		if line := j.of[path]; line > 0 {
			return fmt.Errorf("line %d: %w", line, err)
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return err
}

var jsonLine = regexp.MustCompile(`\(line (\d+):\d+\)`)

// inYAML is protojson's error with the line of the YAML.
func (j *lines) inYAML(err error) error {
	// What else protojson says in front, "proto:" and a space of one kind or another, is no help.
	text := strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto:"))
	line := 0
	if m := jsonLine.FindStringSubmatch(text); m != nil {
		if n, _ := strconv.Atoi(m[1]); n > 0 && n <= len(j.yaml) {
			line = j.yaml[n-1]
		}
	}
	if line == 0 {
		return errors.New(text)
	}
	return fmt.Errorf("line %d: %s", line, strings.TrimPrefix(strings.TrimSpace(jsonLine.ReplaceAllString(text, "")), ": "))
}

// snake is a key as spec.proto has it.
func snake(key string) string {
	var b strings.Builder
	for _, c := range key {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}
