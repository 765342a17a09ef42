package modelspec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

const (
	// MaxStepBytes bounds what one message of a step brings a shard: it must fit a frame,
	// with room for the rest of the message.
	MaxStepBytes = rowwire.MaxFrame / 2
	// MaxStagedBytes bounds what a shard keeps of a step that comes in several parts, and so
	// the gradients of all the bands that live on one shard.
	MaxStagedBytes = 64 << 20
)

// StepBytes is the most that the rows of a step of batch records take on their way to one
// shard: ids, and the gradients of their rows.
func StepBytes(spec *model.ModelSpec, batch int) int {
	bytes := 0
	for _, f := range spec.GetFeatures() {
		bytes += VocabularyOf(f).Rows() * (8 + 4*int(Table(spec, f.GetTable()).GetDim()))
	}
	return batch * bytes
}

// Trainable returns every complaint about spec that keeps a parameter-server shard or a
// trainer from taking it, joined, or nil.
func Trainable(spec *model.ModelSpec) error {
	if err := Validate(spec); err != nil {
		return err
	}
	if n := StepBytes(spec, 1); n > MaxStepBytes {
		return fmt.Errorf("a step of one record takes %d bytes, %d are sent at once: declare smaller tables, or fewer features", n, MaxStepBytes)
	}
	return nil
}

// Spread refuses a number of shards on which the bands of some shard are more than a shard
// takes in one step.
func Spread(variables []Variable, shards int) error {
	bytes := make([]int, shards)
	for _, b := range Bands(variables) {
		bytes[b.Shard(shards)] += 4 * b.Size
	}
	const room = MaxStagedBytes - MaxStepBytes // the rest is for rows
	if most := slices.Max(bytes); most > room {
		all := 0
		for _, n := range bytes {
			all += n
		}
		return fmt.Errorf("the dense variables take %d bytes on one of %d shards, %d are taken in one step: train with %d shards or more", most, shards, room, all/room+1)
	}
	return nil
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
