package embeddingtask

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// maxLine bounds a line of a vocabulary file.
const maxLine = 1 << 16

// ReadVocabulary reads a vocabulary file: a slot, a tab and the number of its distinct ids in each line. Lines
// whose first field is no number are headings.
func ReadVocabulary(r io.Reader) (map[uint32]uint64, error) {
	sizes := map[uint32]uint64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimRight(lines.Text(), "\r")
		if text == "" {
			continue
		}
		fields := strings.Split(text, "\t")
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d has %d fields: write a slot, a tab and a count", n, len(fields))
		}
		slot, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil && strings.Trim(fields[0], "0123456789") != "" {
			continue
		}
		if err != nil || slot > modelspec.MaxSlot {
			return nil, fmt.Errorf("line %d: slot %s is beyond %d", n, fields[0], modelspec.MaxSlot)
		}
		count, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q is no number of ids", n, fields[1])
		}
		sizes[uint32(slot)] = count
	}
	return sizes, lines.Err()
}

// size is by what the ids of a slot are bounded: one size for all slots, the slot's own, or its number in
// the vocabulary file, the first of these that is given. The offset is added to what the file says
// alone: where sizes are fixed the original takes ids modulo these as they are.
func (t *Task) size(slot uint32, file map[uint32]uint64) (uint64, bool, error) {
	if t.VocabSizePerSlot > 0 {
		return t.VocabSizePerSlot, true, nil
	}
	if n, ok := t.CustomVocabSizeMapping[slot]; ok {
		return n, true, nil
	}
	n, ok := file[slot]
	if !ok {
		return 0, false, nil
	}
	sum := int64(n) + t.VocabSizeOffset
	if n > modelspec.MaxID || sum < 1 {
		return 0, false, fmt.Errorf("slot %d: %d ids and the vocab_size_offset %d make no size", slot, n, t.VocabSizeOffset)
	}
	return uint64(sum), true, nil
}

// divisor splits a vocabulary that is too large into remainders and quotients; 0: it is not split.
func (t *Task) divisor(size uint64) uint64 {
	if !t.QRMultiHashing || size <= t.QRHashingThreshold {
		return 0
	}
	return size/t.QRCollisionRate + 1
}

// Bind gives the features of a declared model, by their slots, the vocabularies of the task, and lists
// the features that have none, whose tables grow as ids come. A feature that the declaration gives a
// vocabulary keeps it.
func (t *Task) Bind(spec *model.ModelSpec, file map[uint32]uint64) (_ *model.ModelSpec, unbounded []string, err error) {
	spec = proto.CloneOf(spec)
	for _, f := range spec.GetFeatures() {
		if f.GetVocabulary() != nil {
			continue
		}
		size, ok, err := t.size(f.GetSlot(), file)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			unbounded = append(unbounded, f.GetName())
			continue
		}
		f.Vocabulary = &model.Vocabulary{Size: size, Divisor: t.divisor(size)}
	}
	if err := modelspec.Validate(spec); err != nil {
		return nil, nil, fmt.Errorf("the model with the task's vocabularies is not valid: %w", err)
	}
	return spec, unbounded, nil
}
