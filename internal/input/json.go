package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/input/jsontext"
)

// readJSON finds the declared fields of one JSON object.
func (d *Decoder) readJSON(record []byte) error {
	if d.object(record) {
		return nil
	}
	return d.refusal(record)
}

// object says whether the record is one JSON object, or null, no key of which stands there
// twice.
func (d *Decoder) object(b []byte) bool {
	i := jsontext.Space(b, 0)
	if i == len(b) {
		return false
	}
	if b[i] != '{' {
		end := jsontext.Literal(b, i, "null") // which encoding/json takes for an object without fields
		return end >= 0 && jsontext.Space(b, end) == len(b)
	}
	i = jsontext.Space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return jsontext.Space(b, i+1) == len(b)
	}
	once := true
	for pos := 0; i < len(b) && b[i] == '"'; pos++ {
		if next := d.usualMember(pos, b, i); next > 0 {
			if i = jsontext.Space(b, next); i == len(b) {
				return false
			}
			if b[i] == ',' {
				i = jsontext.Space(b, i+1)
				continue
			}
			return b[i] == '}' && jsontext.Space(b, i+1) == len(b) && once && distinct(d.strange)
		}
		end, plain := jsontext.StringEnd(b, i)
		if end < 0 {
			return false
		}
		key := b[i+1 : end-1]
		if !plain {
			key = d.decoded(key)
		}
		if i = jsontext.Colon(b, end); i < 0 {
			return false
		}
		begin := i
		if i = d.json.Skip(b, i); i < 0 {
			return false
		}
		once = d.member(pos, key, b[begin:i]) && once
		if i = jsontext.Space(b, i); i == len(b) {
			return false
		}
		switch b[i] {
		case ',':
			i = jsontext.Space(b, i+1)
		case '}':
			return jsontext.Space(b, i+1) == len(b) && once && distinct(d.strange)
		default:
			return false
		}
	}
	return false
}

// member notes a key and its value. It is false for a declared field that was there before.
func (d *Decoder) member(pos int, key, raw []byte) bool {
	at := d.find(pos, key)
	if at < 0 {
		d.strange = append(d.strange, key)
		return true
	}
	v := &d.found[at]
	if v.kind != absent {
		return false
	}
	v.raw, v.kind = raw, kindOf(raw)
	return true
}

// distinct says whether no key stands there twice. It may change their order.
func distinct(keys [][]byte) bool {
	const few = 12 // a search of each in those before it takes less time than to sort them
	if len(keys) <= few {
		for i, k := range keys {
			for _, other := range keys[:i] {
				if bytes.Equal(k, other) {
					return false
				}
			}
		}
		return true
	}
	slices.SortFunc(keys, bytes.Compare)
	for i := range keys[1:] {
		if bytes.Equal(keys[i], keys[i+1]) {
			return false
		}
	}
	return true
}

// refusal says why a record is no JSON object in which each key stands once, in the words of
// encoding/json where the record breaks its rules.
func (d *Decoder) refusal(record []byte) error {
	if len(bytes.TrimSpace(record)) == 0 {
		return errEmpty
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		return fmt.Errorf("the record is not one JSON object: %w", err)
	}
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(record))
	for _, err := dec.Token(); err == nil && dec.More(); {
		var key json.Token
		if key, err = dec.Token(); err != nil {
			break
		}
		name, _ := key.(string)
		if seen[name] {
			return fmt.Errorf("field %q stands there twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		err = dec.Decode(&value)
	}
	return errors.New("a field stands there twice")
}

var errEmpty = errors.New("the record is empty")
