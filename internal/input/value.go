package input

import (
	"fmt"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/internal/input/jsontext"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// value is what a record holds in a declared field. It points into the record.
type value struct {
	kind  kind
	first int    // of what an Example's feature lists, in the decoder's items; alone: it lists number, and nothing is there
	count int    // of those
	raw   []byte // a JSON value as it is written

	number int64 // that raw is, a whole one of up to 18 digits; 0: nobody looked. Or the bits of a number that is alone
}

// item is one value of an Example's list.
type item struct {
	raw  []byte
	bits uint64 // an integer or a float64
}

// alone is the place of a number that is all that a feature lists.
const alone = -1

// nthOf is the nth of what v lists.
func (d *Decoder) nthOf(v *value, n int) item {
	if v.first == alone {
		return item{bits: uint64(v.number)}
	}
	return d.items[v.first+n]
}

type kind uint8

const (
	absent  kind = iota
	text         // raw, to be read as digits
	quoted       // raw, a JSON string
	null         // JSON's
	array        // raw, JSON's
	listed       // an Example's feature of no kind
	blob         // raw, of an Example
	float        // bits, of an Example
	integer      // bits, of an Example
	fid          // bits, a feature id of version 2, of Monolith's formats
	lists        // of lists, which nobody reads
)

// kindOf is that of a JSON value.
func kindOf(raw []byte) kind {
	switch raw[0] {
	case '"':
		return quoted
	case 'n':
		return null
	case '[':
		return array
	}
	return text
}

// element is one value: of a field that has one, or of a list.
type element struct {
	kind kind
	item
}

// values goes through those of a field.
type values struct {
	element
	d     *Decoder
	at    int
	count int // so far
	rest  int // offset of what comes next in a JSON array
}

func (d *Decoder) values(at int) values { return values{d: d, at: at} }

// next reads one more. A null in a list is a value of its own, which no reader takes.
func (it *values) next() bool {
	v := &it.d.found[it.at]
	switch v.kind {
	case absent, null:
		return false
	case text, quoted:
		if it.count == 1 {
			return false
		}
		it.element = element{v.kind, item{raw: v.raw}}
	case array:
		i := jsontext.Space(v.raw, max(it.rest, 1)) // behind a bracket or a value; the array is well written
		if v.raw[i] == ',' {
			i = jsontext.Space(v.raw, i+1)
		}
		if v.raw[i] == ']' {
			return false
		}
		it.rest = it.d.json.Skip(v.raw, i)
		it.element = element{kindOf(v.raw[i:]), item{raw: v.raw[i:it.rest]}}
	case lists:
		it.element = element{kind: lists}
		it.count++
		return it.count == 1
	default:
		if it.count == v.count {
			return false
		}
		it.element = element{v.kind, it.d.nthOf(v, it.count)}
	}
	it.count++
	return true
}

// what names the value in a sentence.
func (it *values) what() string {
	if v := &it.d.found[it.at]; v.kind == array || v.count > 1 {
		return fmt.Sprintf("field %q, value %d,", it.d.names[it.at], it.count)
	}
	return fmt.Sprintf("field %q", it.d.names[it.at])
}

func (d *Decoder) missing(at int) error { return fmt.Errorf("field %q is missing", d.names[at]) }

// none says whether a record has no value in a field.
func (d *Decoder) none(at int) bool {
	it := d.values(at)
	return !it.next()
}

// single is the value of a field that has one.
func (d *Decoder) single(at int) (element, error) {
	v := &d.found[at]
	switch {
	case v.kind == array:
		return element{text, item{raw: v.raw}}, nil // which is no number
	case v.count > 1:
		return element{}, fmt.Errorf("field %q has %d values, one is read", d.names[at], v.count)
	}
	it := d.values(at)
	if !it.next() {
		return element{}, d.missing(at)
	}
	return it.element, nil
}

// written is a value as text, for those that are any.
func (d *Decoder) written(e *element) []byte {
	if e.kind == quoted {
		inner := e.raw[1 : len(e.raw)-1]
		if _, plain := jsontext.StringEnd(e.raw, 0); plain {
			return inner
		}
		return d.decoded(inner)
	}
	return e.raw
}

// decoded is the string that stands between quotes, as long as the record is read.
func (d *Decoder) decoded(s []byte) []byte {
	begin := len(d.text)
	d.text = jsontext.Unescape(d.text, s)
	return d.text[begin:]
}

// bytes are what a value's hash is of: of a string those it holds, of a whole number its digits.
func (d *Decoder) bytes(e *element) ([]byte, bool) {
	switch e.kind {
	case quoted, blob:
		return d.written(e), true
	case integer:
		begin := len(d.text)
		d.text = strconv.AppendInt(d.text, int64(e.bits), 10)
		return d.text[begin:], true
	case text:
		_, whole := d.whole(e)
		return e.raw, whole
	}
	return nil, false
}

// whole reads a value as a whole number. ok is false where it is another value, or one beyond
// an int64.
func (d *Decoder) whole(e *element) (n int64, ok bool) {
	switch e.kind {
	case integer:
		return int64(e.bits), true
	case float, array, null, fid, lists:
		return 0, false
	}
	s := d.written(e)
	if n, ok := digits(s); ok {
		return n, true
	}
	n, err := strconv.ParseInt(string(s), 10, 64)
	return n, err == nil
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

func (d *Decoder) seconds(at int) error {
	e, err := d.single(at)
	if err != nil {
		return err
	}
	if n, ok := d.whole(&e); !ok || n < 0 || n > math.MaxUint32 {
		return fmt.Errorf("field %q is %s, not in whole seconds since 1970", d.names[at], e.shown())
	}
	return nil
}

// number reads a field of one number.
func (d *Decoder) number(at int) (float64, error) {
	if v := &d.found[at]; v.kind == float && v.first == alone {
		if f := math.Float64frombits(uint64(v.number)); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	}
	e, err := d.single(at)
	if err != nil {
		return 0, err
	}
	f, ok := d.finite(&e)
	if !ok {
		return 0, fmt.Errorf("field %q is %s, not a number", d.names[at], e.shown())
	}
	return f, nil
}

// finite reads a value as a number.
func (d *Decoder) finite(e *element) (f float64, ok bool) {
	switch e.kind {
	case integer:
		return float64(int64(e.bits)), true
	case float:
		f = math.Float64frombits(e.bits)
	case array, null, fid, lists:
		return 0, false
	default:
		var err error
		if f, err = strconv.ParseFloat(string(d.written(e)), 64); err != nil {
			return 0, false
		}
	}
	return f, !math.IsNaN(f) && !math.IsInf(f, 0)
}

// shown is the value as a sentence quotes it.
func (e *element) shown() string {
	switch e.kind {
	case integer:
		return strconv.FormatInt(int64(e.bits), 10)
	case float:
		return fmt.Sprintf("the float %v", math.Float64frombits(e.bits))
	case fid:
		return fmt.Sprintf("the feature id %d, of slot %d", int64(e.bits), modelspec.SlotOf(int64(e.bits)))
	case lists:
		return "a list of lists"
	case blob:
		return fmt.Sprintf("%.40q", e.raw)
	}
	return fmt.Sprintf("%.40s", e.raw)
}
