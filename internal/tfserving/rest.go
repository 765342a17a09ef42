package tfserving

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// MaxBody is the most bytes of a REST request that are read.
const MaxBody = 8 << 20

// Input is one input of a signature, in its order; the JSON form leaves its type to it.
type Input struct {
	Name  string
	Dtype types_go_proto.DataType // DT_INT64 or DT_FLOAT
}

// RESTRequest is what a request line asks for.
type RESTRequest struct {
	Model   string
	Version int64  // 0: the newest
	Verb    string // "predict", ...; empty for a status
}

// refusal is one of the original's own sentences, word for word.
type refusal string

func (r refusal) Error() string { return string(r) }

// ParsePath reads /v1/models/{model}[/versions/{version}][:{verb}]. A model's name may
// hold a colon, as sub-models' do.
func ParsePath(path string) (RESTRequest, error) {
	malformed := refusal("Malformed request: " + path)
	rest, ok := strings.CutPrefix(path, "/v1/models/")
	if !ok {
		return RESTRequest{}, malformed
	}
	var r RESTRequest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		switch verb := rest[i+1:]; verb {
		case "predict", "classify", "regress":
			r.Verb, rest = verb, rest[:i]
		}
	}
	name, version, versioned := strings.Cut(rest, "/versions/")
	if versioned {
		v, err := strconv.ParseInt(version, 10, 64)
		if err != nil || v < 1 {
			return RESTRequest{}, malformed
		}
		r.Version = v
	}
	if name == "" || len(name) > MaxName || strings.Contains(name, "/") {
		return RESTRequest{}, malformed
	}
	r.Model = name
	return r, nil
}

// PredictJSON is a Predict request as JSON: the rows of "instances", or the columns of
// "inputs".
type PredictJSON struct {
	Signature string
	Columnar  bool
	Inputs    map[string]*TensorProto
}

// DecodePredict reads a :predict body for a signature with those inputs. At most limit
// elements are taken per input. Every error is the sender's (INVALID_ARGUMENT).
func DecodePredict(body []byte, inputs []Input, limit int) (PredictJSON, error) {
	var doc struct {
		Signature *string         `json:"signature_name"`
		Instances json.RawMessage `json:"instances"`
		Inputs    json.RawMessage `json:"inputs"`
	}
	if len(body) > MaxBody {
		return PredictJSON{}, fmt.Errorf("the body has %d bytes, at most %d are taken; send a smaller batch", len(body), MaxBody)
	}
	if err := decodeOne(body, &doc); err != nil {
		return PredictJSON{}, fmt.Errorf("%w%w", refusal("JSON Parse error: "), err)
	}
	p := PredictJSON{Inputs: make(map[string]*TensorProto, len(inputs))}
	if doc.Signature != nil {
		p.Signature = *doc.Signature
	}
	switch {
	case doc.Instances != nil && doc.Inputs != nil:
		return PredictJSON{}, refusal("Not formatted correctly, expected only one of 'instances' and 'inputs' keys")
	case doc.Instances != nil:
		return p, p.rows(doc.Instances, inputs, limit)
	case doc.Inputs != nil:
		p.Columnar = true
		return p, p.columns(doc.Inputs, inputs, limit)
	}
	return PredictJSON{}, refusal("Missing 'inputs' or 'instances' key")
}

func decodeOne(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// rows reads the list of instances: objects with one member per input, or bare values
// where the signature has one input.
func (p *PredictJSON) rows(raw json.RawMessage, inputs []Input, limit int) error {
	var list []any
	if err := decodeOne(raw, &list); err != nil {
		return refusal("Expecting 'instances' value to be a list/array")
	}
	if len(list) == 0 {
		return errors.New("'instances' has no elements")
	}
	if len(list) > limit {
		return fmt.Errorf("'instances' has %d elements, at most %d are taken; send a smaller batch", len(list), limit)
	}
	_, named := list[0].(map[string]any)
	if !named && len(inputs) != 1 {
		return fmt.Errorf("'instances' holds bare values, but the signature has %d inputs; name them: {%s}", len(inputs), names(inputs))
	}
	for _, in := range inputs {
		t := column{limit: limit}
		for i, instance := range list {
			value := instance
			if object, ok := instance.(map[string]any); ok != named {
				return fmt.Errorf("instance %d is of another kind than instance 0", i)
			} else if named {
				if value, ok = object[in.Name]; !ok {
					return fmt.Errorf("instance %d lacks the input %q", i, in.Name)
				}
				if len(object) != len(inputs) {
					return fmt.Errorf("instance %d has %d inputs, the signature has %d: {%s}", i, len(object), len(inputs), names(inputs))
				}
			}
			t.depth = 0
			if err := t.add(value, in.Dtype); err != nil {
				return fmt.Errorf("instance %d, input %q: %w", i, in.Name, err)
			}
			if i == 0 {
				t.fixed = true
			}
		}
		p.Inputs[in.Name] = t.tensor(in.Dtype, []int64{int64(len(list))})
	}
	return nil
}

// columns reads an object with one tensor per input, or the bare tensor of the only one.
func (p *PredictJSON) columns(raw json.RawMessage, inputs []Input, limit int) error {
	var value any
	if err := decodeOne(raw, &value); err != nil {
		return fmt.Errorf("'inputs': %w", err)
	}
	object, named := value.(map[string]any)
	if !named {
		if len(inputs) != 1 {
			return fmt.Errorf("'inputs' is a plain value/list, but the signature has %d inputs; name them: {%s}", len(inputs), names(inputs))
		}
		object = map[string]any{inputs[0].Name: value}
	}
	for name := range object {
		if !slices.ContainsFunc(inputs, func(in Input) bool { return in.Name == name }) {
			return fmt.Errorf("input %q is none of the signature's: {%s}", name, names(inputs))
		}
	}
	for _, in := range inputs {
		value, ok := object[in.Name]
		if !ok {
			return fmt.Errorf("missing named input %q in 'inputs' object", in.Name)
		}
		t := column{limit: limit}
		if err := t.add(value, in.Dtype); err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
		p.Inputs[in.Name] = t.tensor(in.Dtype, nil)
	}
	return nil
}

func names(inputs []Input) string {
	var b strings.Builder
	for i, in := range inputs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(in.Name)
	}
	return b.String()
}

// column gathers nested lists into one tensor. The first value (fixed is then set) or
// the first list at each depth decides the shape; what differs is ragged.
type column struct {
	limit  int
	ints   []int64
	floats []float32
	shape  []int64
	depth  int
	fixed  bool
	leaf   bool // a number was seen: the rank is known
}

func (c *column) add(v any, dtype types_go_proto.DataType) error {
	switch v := v.(type) {
	case []any:
		if c.depth >= MaxRank-1 { // one more is the batch's
			return fmt.Errorf("lists nest deeper than %d", MaxRank-1)
		}
		switch {
		case c.depth < len(c.shape):
			if c.shape[c.depth] != int64(len(v)) {
				return fmt.Errorf("ragged: a list has %d elements where another one has %d", len(v), c.shape[c.depth])
			}
		case c.fixed || c.leaf:
			return errors.New("ragged: a list where another one has a number")
		default:
			c.shape = append(c.shape, int64(len(v)))
		}
		c.depth++
		for _, e := range v {
			if err := c.add(e, dtype); err != nil {
				return err
			}
		}
		c.depth--
		return nil
	case json.Number:
		if c.depth != len(c.shape) {
			return errors.New("ragged: a number where another one has a list")
		}
		c.leaf = true
		if len(c.ints)+len(c.floats) >= c.limit {
			return fmt.Errorf("more than %d elements; send a smaller batch", c.limit)
		}
		if dtype == types_go_proto.DataType_DT_INT64 {
			n, err := strconv.ParseInt(v.String(), 10, 64)
			if err != nil {
				return refusal(fmt.Sprintf("JSON Value: %s is not of expected type: int64", v))
			}
			c.ints = append(c.ints, n)
			return nil
		}
		f, err := strconv.ParseFloat(v.String(), 32)
		if err != nil {
			return refusal(fmt.Sprintf("JSON Value: %s is not of expected type: float", v))
		}
		c.floats = append(c.floats, float32(f))
		return nil
	}
	return refusal(fmt.Sprintf("JSON Value: %s is not a number or a list of numbers", describe(v)))
}

func describe(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > 80 {
		return fmt.Sprintf("of type %T", v)
	}
	return string(b)
}

func (c *column) tensor(dtype types_go_proto.DataType, batch []int64) *TensorProto {
	shape := append(batch, c.shape...)
	t := &TensorProto{Dtype: dtype, TensorShape: shapeOf(0, shape), Int64Val: c.ints, FloatVal: c.floats}
	if len(shape) == 0 { // a scalar, which shapeOf cannot say
		t.TensorShape.Dim = nil
	}
	return t
}

// EncodePredict writes the answer of one output per row, in the layout of the original:
// "predictions" for rows, "outputs" for columns. A score that is no number has no JSON.
func EncodePredict(columnar bool, scores []float32) ([]byte, error) {
	key := "predictions"
	if columnar {
		key = "outputs"
	}
	b := append(make([]byte, 0, 40+12*len(scores)), "{\n    \""+key+"\": ["...)
	for i, s := range scores {
		if f := float64(s); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("output of row %d is %v, which JSON cannot hold; the model's weights are broken", i, s)
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendDecimal(b, s)
	}
	return append(b, "\n    ]\n}"...), nil
}

// appendDecimal writes the shortest decimal that reads back as v, always with a point
// or an exponent, so that it stays a float.
func appendDecimal(b []byte, v float32) []byte {
	at := len(b)
	b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
	if !bytes.ContainsAny(b[at:], ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// EncodeStatus writes a model's status as the original's REST API does.
func EncodeStatus(r *apis.GetModelStatusResponse) []byte {
	type statusJSON struct {
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
	}
	type versionJSON struct {
		Version string     `json:"version"`
		State   string     `json:"state"`
		Status  statusJSON `json:"status"`
	}
	doc := struct {
		Versions []versionJSON `json:"model_version_status"`
	}{Versions: []versionJSON{}}
	for _, v := range r.GetModelVersionStatus() {
		doc.Versions = append(doc.Versions, versionJSON{
			Version: strconv.FormatInt(v.GetVersion(), 10),
			State:   v.GetState().String(),
			Status:  statusJSON{Code: v.GetStatus().GetErrorCode().String(), Message: v.GetStatus().GetErrorMessage()},
		})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	_ = e.Encode(doc) // strings only: it cannot fail
	return b.Bytes()
}

// EncodeError writes the body of every refusal.
func EncodeError(message string) []byte {
	var b bytes.Buffer
	b.WriteString(`{ "error": `)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(message) // a string: it cannot fail
	b.Truncate(b.Len() - 1)
	b.WriteString(" }")
	return b.Bytes()
}

// HTTPStatus is the status code under which the original answers a gRPC code.
func HTTPStatus(c codes.Code) int {
	switch c {
	case codes.OK:
		return http.StatusOK
	case codes.InvalidArgument, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.FailedPrecondition:
		return http.StatusPreconditionFailed
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusRequestTimeout
	}
	return http.StatusInternalServerError
}
