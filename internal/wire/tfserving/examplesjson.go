package tfserving

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// ExamplesJSON is a Classify or Regress request as JSON: serialized tf.train.Examples, and the
// features that all of them have in common.
type ExamplesJSON struct {
	Signature string
	Context   []byte // a serialized tf.train.Example; nil: none was given
	Examples  [][]byte
}

// DecodeExamples reads a :classify or :regress body as it arrives, with at most limit examples.
// Every error is the sender's (INVALID_ARGUMENT), unless reading failed.
func DecodeExamples(body io.Reader, limit int) (ExamplesJSON, error) {
	d := &predictDecoder{tokens: newTokens(body), limit: limit}
	p, err := d.examples()
	if err != nil {
		return ExamplesJSON{}, err
	}
	if _, err := d.next(); !errors.Is(err, io.EOF) {
		return ExamplesJSON{}, d.broken(errors.New("more than one JSON value"))
	}
	return p, nil
}

// maxMerged bounds the bytes of examples once each has the context's features.
const maxMerged = 64 << 20

// WithContext gives each example the features of the context that it lacks.
func WithContext(context []byte, examples [][]byte) ([][]byte, error) {
	if len(context) == 0 {
		return examples, nil
	}
	size := len(context) * len(examples)
	for _, e := range examples {
		size += len(e)
	}
	if size > maxMerged {
		return nil, fmt.Errorf("with the context in each, %d examples have more than %d MiB; send a smaller batch", len(examples), maxMerged>>20)
	}
	merged := make([][]byte, len(examples))
	for i, e := range examples { // of one name, the feature that stands last counts
		merged[i] = append(append(make([]byte, 0, len(context)+len(e)), context...), e...)
	}
	return merged, nil
}

func (d *predictDecoder) examples() (p ExamplesJSON, err error) {
	t, err := d.token()
	if err != nil {
		return p, err
	}
	if t.kind != '{' {
		return p, d.broken(errors.New("the body is no object"))
	}
	given := false
	err = d.members(func(key []byte) (err error) {
		switch string(key) {
		case "signature_name":
			p.Signature, err = d.signature()
			return err
		case "context":
			if p.Context != nil {
				return errors.New("'context' is given twice")
			}
			p.Context, err = d.example("'context'")
			return err
		case "examples":
			if given {
				return errors.New("'examples' is given twice")
			}
			given = true
			p.Examples, err = d.listOfExamples()
			return err
		}
		return d.skip(0)
	})
	if err == nil && !given {
		err = errors.New("the key 'examples' is missing; it is a list of objects, with a value or a list of values by feature")
	}
	return p, err
}

// signature reads the value of signature_name.
func (d *predictDecoder) signature() (string, error) {
	t, err := d.token()
	if err != nil {
		return "", err
	}
	if t.kind != '"' && t.kind != 'n' {
		return "", d.broken(errors.New("'signature_name' is no string"))
	}
	return string(t.text), nil
}

func (d *predictDecoder) listOfExamples() (all [][]byte, err error) {
	t, err := d.token()
	if err != nil {
		return nil, err
	}
	if t.kind != '[' {
		return nil, errors.New("'examples' is no list; it has one object for each example")
	}
	for d.more() {
		if len(all) == d.limit {
			return nil, fmt.Errorf("'examples' has more than %d elements; send a smaller batch", d.limit)
		}
		e, err := d.example(fmt.Sprintf("example %d", len(all)))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, errors.New("'examples' has no elements; send at least one")
	}
	_, err = d.token()
	return all, err
}

// The fields of tf.train's messages, each in the one above it.
const (
	exampleFeatures = 1
	featuresEntry   = 1
	entryKey        = 1
	entryValue      = 2
	bytesList       = 1
	floatList       = 2
	int64List       = 3
	listValue       = 1
)

// example reads an object of features, and writes it as a tf.train.Example.
func (d *predictDecoder) example(what string) ([]byte, error) {
	t, err := d.token()
	if err != nil {
		return nil, err
	}
	if t.kind != '{' {
		return nil, fmt.Errorf("%s is no object; it has a value or a list of values by feature", what)
	}
	var features []byte
	seen := map[string]bool{}
	err = d.members(func(key []byte) error {
		name := string(key)
		if seen[name] {
			return fmt.Errorf("%s has the feature %q twice", what, name)
		}
		seen[name] = true
		var f featureValues
		if err := d.feature(&f); err != nil {
			return fmt.Errorf("%s, feature %q: %w", what, name, err)
		}
		var entry []byte
		entry = protowire.AppendString(protowire.AppendTag(entry, entryKey, protowire.BytesType), name)
		entry = protowire.AppendBytes(protowire.AppendTag(entry, entryValue, protowire.BytesType), f.encode())
		features = protowire.AppendBytes(protowire.AppendTag(features, featuresEntry, protowire.BytesType), entry)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, exampleFeatures, protowire.BytesType), features), nil
}

// featureValues are those of one feature, which has one kind of them.
type featureValues struct {
	ints    []int64
	floats  []float32
	strings [][]byte
}

// feature reads a value, or a list of them.
func (d *predictDecoder) feature(f *featureValues) error {
	t, err := d.token()
	if err != nil {
		return err
	}
	if t.kind != '[' {
		return d.featureValue(f, t)
	}
	for d.more() {
		if t, err = d.token(); err != nil {
			return err
		}
		if err := d.featureValue(f, t); err != nil {
			return err
		}
	}
	_, err = d.token()
	return err
}

func (d *predictDecoder) featureValue(f *featureValues, t token) (err error) {
	switch t.kind {
	case 0:
		err = f.number(t.text)
	case 't':
		f.ints = append(f.ints, 1)
	case 'f':
		f.ints = append(f.ints, 0)
	case '"':
		f.strings = append(f.strings, bytes.Clone(t.text))
	case '{':
		var text []byte
		text, err = d.base64()
		f.strings = append(f.strings, text)
	case '[':
		return errors.New("a list within a list; a feature has one list of values")
	default:
		return fmt.Errorf("%s is no value; leave the feature out, or give a number or a string", describe(t))
	}
	if err == nil && len(f.strings) > 0 && len(f.ints)+len(f.floats) > 0 {
		err = errors.New("it has numbers and strings; give values of one kind")
	}
	return err
}

// number adds one: with a point or an exponent it is a float, and so are then all others.
func (f *featureValues) number(text []byte) error {
	if bytes.ContainsAny(text, ".eE") || len(f.floats) > 0 {
		v, err := strconv.ParseFloat(string(text), 32)
		if err != nil {
			return fmt.Errorf("%s is no float", short(string(text)))
		}
		for _, n := range f.ints {
			f.floats = append(f.floats, float32(n))
		}
		f.ints, f.floats = nil, append(f.floats, float32(v))
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is no int64; send it as a string if it is to be hashed", short(string(text)))
	}
	f.ints = append(f.ints, n)
	return nil
}

// encode writes a tf.train.Feature; without values it has no kind.
func (f *featureValues) encode() []byte {
	var list []byte
	kind := protowire.Number(0)
	switch {
	case len(f.strings) > 0:
		kind = bytesList
		for _, s := range f.strings {
			list = protowire.AppendBytes(protowire.AppendTag(list, listValue, protowire.BytesType), s)
		}
	case len(f.floats) > 0:
		kind = floatList
		list = protowire.AppendVarint(protowire.AppendTag(list, listValue, protowire.BytesType), uint64(4*len(f.floats)))
		for _, v := range f.floats {
			list = protowire.AppendFixed32(list, math.Float32bits(v))
		}
	case len(f.ints) > 0:
		kind = int64List
		var packed []byte
		for _, n := range f.ints {
			packed = protowire.AppendVarint(packed, uint64(n))
		}
		list = protowire.AppendBytes(protowire.AppendTag(list, listValue, protowire.BytesType), packed)
	default:
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, kind, protowire.BytesType), list)
}
