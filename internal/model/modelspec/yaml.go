package modelspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/events/model"
)

// MaxYAML bounds a spec's text, in bytes.
const MaxYAML = 1 << 20

// ParseYAML reads one ModelSpec, its fields named as in spec.proto or in lowerCamelCase,
// and validates it. JSON is YAML. Unknown and repeated keys are refused.
func ParseYAML(data []byte) (*model.ModelSpec, error) {
	if len(data) > MaxYAML {
		return nil, fmt.Errorf("model spec of %d bytes: %d are allowed", len(data), MaxYAML)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var tree map[string]any
	if err := dec.Decode(&tree); errors.Is(err, io.EOF) {
		return nil, errors.New("model spec is empty: declare a model")
	} else if err != nil {
		return nil, fmt.Errorf("read model spec: %w", err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("model spec has a second document behind the first: one file declares one model")
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("read model spec: %w: keys are text, numbers are finite", err)
	}
	spec := &model.ModelSpec{}
	if err := protojson.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("read model spec: %w", err)
	}
	if err := Validate(spec); err != nil {
		return nil, fmt.Errorf("model spec is not valid: %w", err)
	}
	return spec, nil
}
