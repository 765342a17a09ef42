package input

import (
	"fmt"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// value is what a record holds in a declared field. It points into the record.
type value struct {
	kind  kind
	count int    // of what an Example's feature lists; the first is kept
	raw   []byte // a JSON value as it is written, or the bytes of an Example's
	bits  uint64 // an integer or a float64
}

type kind uint8

const (
	absent  kind = iota
	text         // raw, to be read as digits
	quoted       // raw, a JSON string
	null         // JSON's
	listed       // an Example's feature of no kind
	blob         // raw, of an Example
	float        // bits, of an Example
	integer      // bits, of an Example
)

// written is a field's value as text, for those that are any; the error says that there is none.
func (d *Decoder) written(at int) ([]byte, error) {
	v := &d.found[at]
	switch {
	case v.kind == absent, v.kind == null, v.kind >= listed && v.count == 0:
		return nil, fmt.Errorf("field %q is missing", d.names[at])
	case v.count > 1:
		return nil, fmt.Errorf("field %q has %d values, one is read", d.names[at], v.count)
	case v.kind == quoted:
		inner := v.raw[1 : len(v.raw)-1]
		if _, plain := stringEnd(v.raw, 0); plain {
			return inner, nil
		}
		return d.decoded(inner), nil
	}
	return v.raw, nil
}

// decoded is the string that stands between quotes, as long as the record is read.
func (d *Decoder) decoded(s []byte) []byte {
	begin := len(d.text)
	d.text = unescape(d.text, s)
	return d.text[begin:]
}

// whole reads a field as a whole number. ok is false where it is another value, or one beyond
// an int64; err says that there is none.
func (d *Decoder) whole(at int) (n int64, ok bool, err error) {
	s, err := d.written(at)
	if err != nil {
		return 0, false, err
	}
	switch v := &d.found[at]; v.kind {
	case integer:
		return int64(v.bits), true, nil
	case float:
		return 0, false, nil
	}
	if n, ok := digits(s); ok {
		return n, true, nil
	}
	n, err = strconv.ParseInt(string(s), 10, 64)
	return n, err == nil, nil
}

// digits reads up to 18 of them, which is what nearly every id is.
func digits(s []byte) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 18 {
		return 0, false
	}
	for _, c := range s {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = 10*n + int64(c)
	}
	return n, true
}

func (d *Decoder) id(at int) (int64, error) {
	id, ok, err := d.whole(at)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("field %q is %s, not a whole number", d.names[at], d.found[at].shown())
	}
	if id < 0 || id > modelspec.MaxID {
		return 0, fmt.Errorf("field %q is %d, outside 0 to 2^48-1", d.names[at], id)
	}
	return id, nil
}

func (d *Decoder) seconds(at int) error {
	n, ok, err := d.whole(at)
	if err == nil && (!ok || n < 0 || n > math.MaxUint32) {
		err = fmt.Errorf("field %q is %s, not in whole seconds since 1970", d.names[at], d.found[at].shown())
	}
	return err
}

func (d *Decoder) number(at int) (f float64, err error) {
	s, err := d.written(at)
	if err != nil {
		return 0, err
	}
	switch v := &d.found[at]; v.kind {
	case integer:
		return float64(int64(v.bits)), nil
	case float:
		f = math.Float64frombits(v.bits)
	default:
		f, err = strconv.ParseFloat(string(s), 64)
	}
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("field %q is %s, not a number", d.names[at], d.found[at].shown())
	}
	return f, nil
}

// shown is the value as a sentence quotes it.
func (v *value) shown() string {
	switch v.kind {
	case integer:
		return strconv.FormatInt(int64(v.bits), 10)
	case float:
		return fmt.Sprintf("the float %v", math.Float64frombits(v.bits))
	case blob:
		return fmt.Sprintf("%.40q", v.raw)
	}
	return fmt.Sprintf("%.40s", v.raw)
}
