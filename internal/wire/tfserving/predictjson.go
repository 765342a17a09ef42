package tfserving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// PredictJSON is a Predict request as JSON: the rows of "instances", or the columns of
// "inputs".
type PredictJSON struct {
	Signature string
	Columnar  bool
	Inputs    map[string]*TensorProto
}

// Bounds of what is read only to be forgotten.
const (
	maxSkipped     = 10000 // tokens of members that mean nothing
	maxSkippedDeep = 64
)

// DecodePredict reads a :predict body for a signature with those inputs, as it arrives: no
// more of it is in memory than the numbers taken, at most limit per input, and a buffer.
// Every error is the sender's (INVALID_ARGUMENT), unless reading failed.
func DecodePredict(body io.Reader, inputs []Input, limit int) (PredictJSON, error) {
	d := &predictDecoder{tokens: newTokens(body), inputs: inputs, limit: limit}
	p, err := d.document()
	if err != nil {
		return PredictJSON{}, err
	}
	if _, err := d.next(); !errors.Is(err, io.EOF) {
		return PredictJSON{}, d.broken(errors.New("more than one JSON value"))
	}
	return p, nil
}

type predictDecoder struct {
	*tokens
	inputs  []Input
	limit   int
	skipped int // tokens
	guess   int // the input that the next key names, if rows are alike
}

// broken is what cannot be read as JSON, or not at all.
func (d *predictDecoder) broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w%w, at byte %d", refusal("JSON Parse error: "), err, d.offset())
}

func (d *predictDecoder) token() (token, error) {
	t, err := d.next()
	if err != nil {
		return token{}, d.broken(err)
	}
	return t, nil
}

// members reads an object whose opening brace has been read, key by key.
func (d *predictDecoder) members(member func(key []byte) error) error {
	for d.more() {
		t, err := d.token()
		if err != nil {
			return err
		}
		if err := member(t.text); err != nil {
			return err
		}
	}
	_, err := d.token()
	return err
}

func (d *predictDecoder) document() (p PredictJSON, err error) {
	t, err := d.token()
	if err != nil {
		return p, err
	}
	if t.kind != '{' {
		return p, d.broken(errors.New("the body is no object"))
	}
	given := false
	err = d.members(func(key []byte) error {
		switch key := string(key); key {
		case "signature_name":
			t, err := d.token()
			if err != nil {
				return err
			}
			if t.kind != '"' && t.kind != 'n' {
				return d.broken(errors.New("'signature_name' is no string"))
			}
			p.Signature = string(t.text)
			return nil
		case "instances", "inputs":
			if given {
				return refusal("Not formatted correctly, expected only one of 'instances' and 'inputs' keys")
			}
			given = true
			p.Inputs = make(map[string]*TensorProto, len(d.inputs))
			if key == "instances" {
				return d.rows(&p)
			}
			p.Columnar = true
			return d.columns(&p)
		}
		return d.skip(0)
	})
	if err == nil && !given {
		err = refusal("Missing 'inputs' or 'instances' key")
	}
	return p, err
}

// skip reads one value and forgets it.
func (d *predictDecoder) skip(depth int) error {
	if d.skipped++; d.skipped > maxSkipped {
		return fmt.Errorf("the body has too much besides 'signature_name', 'instances' and 'inputs'; leave it out")
	}
	t, err := d.token()
	if err != nil {
		return err
	}
	if t.kind == '{' || t.kind == '[' {
		if depth == maxSkippedDeep {
			return fmt.Errorf("values nest deeper than %d", maxSkippedDeep)
		}
		for d.more() {
			if t.kind == '{' {
				if _, err := d.token(); err != nil {
					return err
				}
			}
			if err := d.skip(depth + 1); err != nil {
				return err
			}
		}
		_, err = d.token()
	}
	return err
}

// rows reads the list of instances: objects with one member per input, or bare values
// where the signature has one input.
func (d *predictDecoder) rows(p *PredictJSON) error {
	t, err := d.token()
	if err != nil {
		return err
	}
	if t.kind != '[' {
		return refusal("Expecting 'instances' value to be a list/array")
	}
	columns := make([]column, len(d.inputs))
	for i := range columns {
		columns[i].limit = d.limit
	}
	n, named := 0, false
	for ; d.more(); n++ {
		if n == d.limit {
			return fmt.Errorf("'instances' has more than %d elements, at most %d are taken; send a smaller batch", d.limit, d.limit)
		}
		t, err := d.token()
		if err != nil {
			return err
		}
		object := t.kind == '{'
		if n == 0 {
			if named = object; !named && len(d.inputs) != 1 {
				return fmt.Errorf("'instances' holds bare values, but the signature has %d inputs; name them: {%s}", len(d.inputs), names(d.inputs))
			}
		}
		switch {
		case object != named:
			return fmt.Errorf("instance %d is of another kind than instance 0", n)
		case named:
			err = d.instance(n, columns)
		default:
			if err = d.value(&columns[0], t, d.inputs[0].Dtype); err != nil {
				return fmt.Errorf("instance %d, input %q: %w", n, d.inputs[0].Name, err)
			}
			columns[0].instance()
		}
		if err != nil {
			return err
		}
	}
	if n == 0 {
		return errors.New("'instances' has no elements")
	}
	for i, in := range d.inputs {
		p.Inputs[in.Name] = columns[i].tensor(in.Dtype, []int64{int64(n)})
	}
	_, err = d.token()
	return err
}

// instance reads the members of one row, behind its opening brace.
func (d *predictDecoder) instance(n int, columns []column) error {
	for d.more() {
		key, err := d.token()
		if err != nil {
			return err
		}
		if err := d.cell(n, key.text, columns); err != nil {
			return err
		}
	}
	if _, err := d.token(); err != nil {
		return err
	}
	for i := range columns {
		if columns[i].instances <= n {
			return fmt.Errorf("instance %d lacks the input %q", n, d.inputs[i].Name)
		}
	}
	return nil
}

// cell reads what row n has for an input.
func (d *predictDecoder) cell(n int, key []byte, columns []column) error {
	i := d.input(key)
	if i < 0 {
		return fmt.Errorf("instance %d has the input %q, which is none of the signature's: {%s}", n, key, names(d.inputs))
	}
	if columns[i].instances > n {
		return fmt.Errorf("instance %d has the input %q twice", n, key)
	}
	t, err := d.token()
	if err != nil {
		return err
	}
	if err := d.value(&columns[i], t, d.inputs[i].Dtype); err != nil {
		return fmt.Errorf("instance %d, input %q: %w", n, d.inputs[i].Name, err)
	}
	columns[i].instance()
	return nil
}

// input is the one of that name, -1 if there is none. Rows name them in the same order, mostly.
func (d *predictDecoder) input(name []byte) int {
	if d.guess == len(d.inputs) {
		d.guess = 0
	}
	if d.guess < len(d.inputs) && d.inputs[d.guess].Name == string(name) {
		d.guess++
		return d.guess - 1
	}
	i := slices.IndexFunc(d.inputs, func(in Input) bool { return in.Name == string(name) })
	d.guess = i + 1
	return i
}

// columns reads an object with one tensor per input, or the bare tensor of the only one.
func (d *predictDecoder) columns(p *PredictJSON) error {
	t, err := d.token()
	if err != nil {
		return err
	}
	if t.kind != '{' {
		if len(d.inputs) != 1 {
			return fmt.Errorf("'inputs' is a plain value/list, but the signature has %d inputs; name them: {%s}", len(d.inputs), names(d.inputs))
		}
		return d.tensor(p, d.inputs[0], t)
	}
	err = d.members(func(key []byte) error {
		i := d.input(key)
		if i < 0 {
			return fmt.Errorf("input %q is none of the signature's: {%s}", key, names(d.inputs))
		}
		if p.Inputs[d.inputs[i].Name] != nil {
			return fmt.Errorf("input %q comes twice", key)
		}
		t, err := d.token()
		if err != nil {
			return err
		}
		return d.tensor(p, d.inputs[i], t)
	})
	if err != nil {
		return err
	}
	for _, in := range d.inputs {
		if p.Inputs[in.Name] == nil {
			return fmt.Errorf("missing named input %q in 'inputs' object", in.Name)
		}
	}
	return nil
}

// tensor reads one whole column that begins with t.
func (d *predictDecoder) tensor(p *PredictJSON, in Input, t token) error {
	c := column{limit: d.limit}
	if err := d.value(&c, t, in.Dtype); err != nil {
		return fmt.Errorf("input %q: %w", in.Name, err)
	}
	p.Inputs[in.Name] = c.tensor(in.Dtype, nil)
	return nil
}

func names(inputs []Input) string {
	all := make([]string, len(inputs))
	for i, in := range inputs {
		all[i] = in.Name
	}
	return strings.Join(all, ", ")
}

// column gathers nested lists into one tensor. The first value (fixed is then set) or
// the first list at each depth decides the shape; what differs is ragged.
type column struct {
	limit     int
	ints      []int64
	floats    []float32
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

// value adds one value that begins with t: a number, or a list of them.
func (d *predictDecoder) value(c *column, t token, dtype types_go_proto.DataType) error {
	switch t.kind {
	case 0:
		return c.number(t.text, dtype)
	case '[':
		return d.list(c, dtype)
	case '{':
		return refusal("JSON Value: an object is not a number or a list of numbers")
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

func (c *column) tensor(dtype types_go_proto.DataType, batch []int64) *TensorProto {
	shape := append(batch, c.shape...)
	t := &TensorProto{Dtype: dtype, TensorShape: shapeOf(0, shape), Int64Val: c.ints, FloatVal: c.floats}
	if len(shape) == 0 { // a scalar, which shapeOf cannot say
		t.TensorShape.Dim = nil
	}
	return t
}
