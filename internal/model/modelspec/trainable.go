package modelspec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

const (
	// MaxVariableBytes bounds one dense variable in training: a delta carries it whole.
	MaxVariableBytes = 896 << 10
	// MaxStepBytes bounds what a step sends a shard: it must fit a frame, with room for
	// the rest of the message.
	MaxStepBytes = rowwire.MaxFrame / 2
)

// StepBytes is the most that a step of batch records sends one shard: ids, the gradients
// of their rows, and those of all dense variables.
func StepBytes(spec *model.ModelSpec, batch int) int {
	size := 0
	for _, v := range Variables(spec) {
		size += v.Size
	}
	return 8*batch*len(spec.GetFeatures()) + 4*batch*InputSize(spec) + 4*size
}

// Trainable returns every complaint about spec that keeps a parameter-server shard or a
// trainer from taking it, joined, or nil.
func Trainable(spec *model.ModelSpec) error {
	if err := Validate(spec); err != nil {
		return err
	}
	var errs []error
	for _, v := range Variables(spec) {
		if 4*v.Size > MaxVariableBytes {
			errs = append(errs, fmt.Errorf("variable %s of shape %v has %d bytes, a delta carries %d: make its layer smaller, or put a narrow one before it", v.Name, v.Shape, 4*v.Size, MaxVariableBytes))
		}
	}
	if n := StepBytes(spec, 1); n > MaxStepBytes {
		errs = append(errs, fmt.Errorf("a step of one record takes %d bytes with all dense variables, %d are sent at once: declare smaller layers, or fewer", n, MaxStepBytes))
	}
	return errors.Join(errs...)
}

// Text is spec as one line of JSON, the same in every build.
func Text(spec *model.ModelSpec) ([]byte, error) {
	loose, err := protojson.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer // protojson's white space differs between builds
	if err := json.Compact(&text, loose); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// Hash identifies a declaration: the SHA-256 of its Text. A spec that cannot be written as
// text has none.
func Hash(spec *model.ModelSpec) string {
	text, err := Text(spec)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
