package tfserving

import (
	"errors"
	"fmt"
	"io"
	"slices"
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
	d := &predictDecoder{tokens: newTokens(body), inputs: inputs, limit: limit, instead: -1}
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
	instead int // the input that is given instead of the others, -1: none is
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
	err = d.members(func(key []byte) (err error) {
		switch key := string(key); key {
		case "signature_name":
			p.Signature, err = d.signature()
			return err
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
		columns[i].limit = d.most(d.inputs[i])
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
			if named = object; !named && d.several() {
				return fmt.Errorf("'instances' holds bare values, but the signature has %d inputs; name them: {%s}", len(d.inputs), names(d.inputs))
			}
		}
		switch {
		case object != named:
			return fmt.Errorf("instance %d is of another kind than instance 0", n)
		case named:
			err = d.instance(n, columns)
		default:
			if err = d.given(&columns[0], t, 0); err != nil {
				return fmt.Errorf("instance %d, input %q: %w", n, d.inputs[0].Name, err)
			}
		}
		if err != nil {
			return err
		}
	}
	if n == 0 {
		return errors.New("'instances' has no elements")
	}
	for i, in := range d.inputs {
		if columns[i].instances > 0 {
			columns[i].tensors(p.Inputs, in, []int64{int64(n)})
		}
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
	for i, in := range d.inputs {
		switch c := &columns[i]; {
		case c.instances > n, d.instead >= 0 && i != d.instead && c.instances == 0, in.Instead && i != d.instead, in.Optional && !in.List && c.instances == 0:
		case in.Optional && in.List:
			c.end(0)
		default:
			return fmt.Errorf("instance %d lacks the input %q", n, in.Name)
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
	if columns[i].instances < n {
		return fmt.Errorf("instance %d has the input %q, which instance 0 lacks", n, d.inputs[i].Name)
	}
	if err := d.given(&columns[i], t, i); err != nil {
		return fmt.Errorf("instance %d, input %q: %w", n, d.inputs[i].Name, err)
	}
	return nil
}

// most is how many values an input may have.
func (d *predictDecoder) most(in Input) int {
	if in.List {
		return maxListed * d.limit
	}
	return max(in.Dim, 1) * d.limit
}

// several says whether an input has to be named.
func (d *predictDecoder) several() bool {
	n := 0
	for _, in := range d.inputs {
		if !in.Instead {
			n++
		}
	}
	return n != 1
}

// given reads what one row has for input i.
func (d *predictDecoder) given(c *column, t token, i int) error {
	in := &d.inputs[i]
	if in.Instead {
		d.instead = i
	}
	if in.List {
		return d.listed(c, t, in.Dtype)
	}
	err := d.value(c, t, in.Dtype)
	c.instance()
	return err
}

// listed reads the ids of one row: one, or a list of any number.
func (d *predictDecoder) listed(c *column, t token, dtype types_go_proto.DataType) error {
	if t.kind != '[' {
		c.end(-1)
		return d.leaf(c, t, dtype)
	}
	n := 0
	for ; d.more(); n++ {
		t, err := d.token()
		if err != nil {
			return err
		}
		if err := d.leaf(c, t, dtype); err != nil {
			return err
		}
	}
	c.end(n)
	_, err := d.token()
	return err
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
		if d.several() {
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
		if p.Inputs[in.Name] == nil && d.instead < 0 && !in.Optional && !in.Instead {
			return fmt.Errorf("missing named input %q in 'inputs' object", in.Name)
		}
	}
	return nil
}

// tensor reads one whole column that begins with t.
func (d *predictDecoder) tensor(p *PredictJSON, in Input, t token) error {
	c := column{limit: d.most(in)}
	if in.Instead {
		d.instead = d.input([]byte(in.Name))
	}
	if in.List {
		if t.kind != '[' {
			return fmt.Errorf("input %q: a column is a list with one element a row", in.Name)
		}
		for n := 0; d.more(); n++ {
			if n == d.limit {
				return fmt.Errorf("input %q: more than %d elements; send a smaller batch", in.Name, d.limit)
			}
			t, err := d.token()
			if err != nil {
				return err
			}
			if err := d.listed(&c, t, in.Dtype); err != nil {
				return fmt.Errorf("input %q, row %d: %w", in.Name, n, err)
			}
		}
		c.tensors(p.Inputs, in, []int64{int64(c.instances)})
		_, err := d.token()
		return err
	}
	if err := d.value(&c, t, in.Dtype); err != nil {
		return fmt.Errorf("input %q: %w", in.Name, err)
	}
	c.tensors(p.Inputs, in, nil)
	return nil
}

func names(inputs []Input) string {
	all := make([]string, len(inputs))
	for i, in := range inputs {
		all[i] = in.Name
	}
	return strings.Join(all, ", ")
}
