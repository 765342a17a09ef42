package tfserving

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// column gathers nested lists into one tensor. The first value (fixed is then set) or
// the first list at each depth decides the shape; what differs is ragged.
type column struct {
	limit     int
	ints      []int64
	floats    []float32
	strings   [][]byte
	splits    []int64 // of a List's rows, but the first
	each      int     // a List's rows have so many values each, or -1: one that is no list
	ragged    bool    // they differ
	shape     []int64 // -1: of a list that has not ended
	depth     int
	instances int  // read whole
	fixed     bool // one was: the shape is known
	leaf      bool // a number was seen: the rank is known
}

// instance notes that one row's value has been read.
func (c *column) instance() {
	c.depth, c.fixed = 0, true
	c.instances++
}

// end notes that one row of a List has been read, with n values, or -1: one without a list.
func (c *column) end(n int) {
	if c.instances == 0 {
		c.each = n
	}
	c.ragged = c.ragged || n != c.each
	last := int64(0)
	if len(c.splits) > 0 {
		last = c.splits[len(c.splits)-1]
	}
	if n < 0 {
		n = 1
	}
	c.splits = append(c.splits, last+int64(n))
	c.instances++
}

// maxListed is how many values the rows of a List may have, for each row that is allowed.
const maxListed = 64

// leaf adds one value of a List.
func (d *predictDecoder) leaf(c *column, t token, dtype types_go_proto.DataType) error {
	if t.kind != 0 && (dtype != types_go_proto.DataType_DT_STRING || t.kind != '"' && t.kind != '{') {
		return refusal("JSON Value: " + describe(t) + " is not a number or a list of numbers")
	}
	if len(c.ints)+len(c.strings) >= c.limit {
		return fmt.Errorf("more than %d elements; send a smaller batch", c.limit)
	}
	return d.plain(c, t, dtype)
}

// plain adds a number or a string.
func (d *predictDecoder) plain(c *column, t token, dtype types_go_proto.DataType) error {
	switch t.kind {
	case 0:
		return c.number(t.text, dtype)
	case '{':
		text, err := d.base64()
		c.strings = append(c.strings, text)
		return err
	}
	c.strings = append(c.strings, bytes.Clone(t.text))
	return nil
}

// base64 reads the rest of {"b64": "..."}, which is how JSON writes bytes.
func (d *predictDecoder) base64() (text []byte, err error) {
	n := 0
	err = d.members(func(key []byte) error {
		if n++; n > 1 || string(key) != "b64" {
			return refusal("JSON Value: an object is not a string; bytes are written as {\"b64\": ...}")
		}
		t, err := d.token()
		if err != nil {
			return err
		}
		if t.kind != '"' {
			return refusal("JSON Value: " + describe(t) + " is not base64")
		}
		if text, err = base64.StdEncoding.AppendDecode(nil, t.text); err != nil {
			return refusal("JSON Value: the string of b64 is not base64")
		}
		return nil
	})
	if err == nil && n == 0 {
		err = refusal("JSON Value: an object is not a string; bytes are written as {\"b64\": ...}")
	}
	return text, err
}

// value adds one value that begins with t: a number, or a list of them.
func (d *predictDecoder) value(c *column, t token, dtype types_go_proto.DataType) error {
	switch t.kind {
	case 0:
		return c.number(t.text, dtype)
	case '[':
		return d.list(c, dtype)
	case '{', '"':
		if dtype == types_go_proto.DataType_DT_STRING {
			if c.depth != len(c.shape) || len(c.strings) >= c.limit {
				return fmt.Errorf("ragged, or more than %d elements", c.limit)
			}
			c.leaf = true
			return d.plain(c, t, dtype)
		}
		if t.kind == '{' {
			return refusal("JSON Value: an object is not a number or a list of numbers")
		}
	}
	return refusal(fmt.Sprintf("JSON Value: %s is not a number or a list of numbers", describe(t)))
}

func (d *predictDecoder) list(c *column, dtype types_go_proto.DataType) error {
	if c.depth >= MaxRank-1 { // one more is the batch's
		return fmt.Errorf("lists nest deeper than %d", MaxRank-1)
	}
	level := c.depth
	if level == len(c.shape) {
		if c.fixed || c.leaf {
			return errors.New("ragged: a list where another one has a number")
		}
		c.shape = append(c.shape, -1)
	}
	c.depth++
	n := int64(0)
	for ; d.more(); n++ {
		switch want := c.shape[level]; {
		case n == int64(c.limit):
			return fmt.Errorf("more than %d elements; send a smaller batch", c.limit)
		case want >= 0 && n == want:
			return fmt.Errorf("ragged: a list has more elements than another one, which has %d", want)
		}
		t, err := d.token()
		if err != nil {
			return err
		}
		if err := d.value(c, t, dtype); err != nil {
			return err
		}
	}
	if _, err := d.token(); err != nil {
		return err
	}
	c.depth--
	if c.shape[level] < 0 {
		c.shape[level] = n
	}
	if c.shape[level] != n {
		return fmt.Errorf("ragged: a list has %d elements where another one has %d", n, c.shape[level])
	}
	return nil
}

func (c *column) number(v []byte, dtype types_go_proto.DataType) error {
	if c.depth != len(c.shape) {
		return errors.New("ragged: a number where another one has a list")
	}
	c.leaf = true
	if len(c.ints)+len(c.floats) >= c.limit {
		return fmt.Errorf("more than %d elements; send a smaller batch", c.limit)
	}
	if dtype == types_go_proto.DataType_DT_INT64 {
		n, ok := digits(v)
		if !ok {
			var err error
			if n, err = strconv.ParseInt(string(v), 10, 64); err != nil {
				return refusal(fmt.Sprintf("JSON Value: %s is not of expected type: int64", short(string(v))))
			}
		}
		c.ints = append(c.ints, n)
		return nil
	}
	if dtype == types_go_proto.DataType_DT_STRING { // an id that is hashed, as it is written
		c.strings = append(c.strings, bytes.Clone(v))
		return nil
	}
	f, err := strconv.ParseFloat(string(v), 32)
	if err != nil {
		return refusal(fmt.Sprintf("JSON Value: %s is not of expected type: float", short(string(v))))
	}
	c.floats = append(c.floats, float32(f))
	return nil
}

// describe writes a string, a truth value or null as JSON does.
func describe(t token) string {
	var v any
	switch t.kind {
	case '"':
		v = string(t.text)
	case 't', 'f':
		v = t.kind == 't'
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > 80 {
		return "a long string"
	}
	return string(b)
}

// digits reads up to 18 of them, which is what nearly every id is.
func digits(s []byte) (n int64, ok bool) {
	if len(s) > 18 {
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

// short keeps refusals small.
func short(number string) string {
	if len(number) > 80 {
		return number[:80] + "…"
	}
	return number
}

// tensors puts the input into all: one tensor, or for rows of different lengths the values and their
// row splits.
func (c *column) tensors(all map[string]*TensorProto, in Input, batch []int64) {
	shape := append(batch, c.shape...)
	switch {
	case in.List && (c.ragged || c.each == 0):
		all[in.Name+SplitsSuffix] = NewInt64(append([]int64{0}, c.splits...))
		shape = []int64{int64(len(c.ints) + len(c.strings))}
	case in.List && c.each > 0:
		shape = append(shape, int64(c.each))
	}
	t := &TensorProto{Dtype: in.Dtype, TensorShape: shapeOf(0, shape), Int64Val: c.ints, FloatVal: c.floats, StringVal: c.strings}
	if len(shape) == 0 { // a scalar, which shapeOf cannot say
		t.TensorShape.Dim = nil
	}
	all[in.Name] = t
}
