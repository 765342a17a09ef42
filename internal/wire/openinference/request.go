package openinference

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// BinaryHeader is the HTTP header that says how many bytes of a body are JSON; the tensors'
// bytes follow in their order.
const BinaryHeader = "Inference-Header-Content-Length"

// Request is one inference request.
type Request struct {
	ID      string
	Inputs  map[string]*tfserving.TensorProto
	Outputs []string // that are asked for; none: all
	// Binary says of each output whether it is wanted as bytes.
	Binary func(output string) bool
}

type tensorJSON struct {
	Name       string          `json:"name"`
	Shape      []int64         `json:"shape"`
	Datatype   string          `json:"datatype"`
	Parameters parameters      `json:"parameters"`
	Data       json.RawMessage `json:"data"`
}

type parameters struct {
	BinaryDataSize   *int64 `json:"binary_data_size"`
	BinaryData       *bool  `json:"binary_data"`
	BinaryDataOutput bool   `json:"binary_data_output"`
}

// Decode reads a request whose first header bytes are JSON, all of it where header is "". The body
// must be bounded by the caller. Errors are sentences for the sender.
func Decode(body io.Reader, header string) (Request, error) {
	all, err := io.ReadAll(body)
	if err != nil {
		return Request{}, err
	}
	text, raw := all, []byte(nil)
	if header != "" {
		n, err := strconv.Atoi(header)
		if err != nil || n < 0 || n > len(all) {
			return Request{}, fmt.Errorf("%s is %q, and the body has %d bytes: send how many of them are JSON", BinaryHeader, header, len(all))
		}
		text, raw = all[:n], all[n:]
	}
	var q struct {
		ID         string       `json:"id"`
		Parameters parameters   `json:"parameters"`
		Inputs     []tensorJSON `json:"inputs"`
		Outputs    []tensorJSON `json:"outputs"`
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return Request{}, fmt.Errorf("the request is no JSON of the open inference protocol: %w", err)
	}
	r := Request{ID: q.ID, Inputs: map[string]*tfserving.TensorProto{}}
	binary := map[string]bool{}
	for _, o := range q.Outputs {
		r.Outputs = append(r.Outputs, o.Name)
		binary[o.Name] = q.Parameters.BinaryDataOutput
		if asked := o.Parameters.BinaryData; asked != nil {
			binary[o.Name] = *asked
		}
	}
	r.Binary = func(output string) bool {
		if len(q.Outputs) == 0 {
			return q.Parameters.BinaryDataOutput
		}
		return binary[output]
	}
	for _, in := range q.Inputs {
		if r.Inputs[in.Name] != nil {
			return r, fmt.Errorf("input %q is there twice; send it once", in.Name)
		}
		if r.Inputs[in.Name], raw, err = in.tensor(raw); err != nil {
			return r, fmt.Errorf("input %q: %w", in.Name, err)
		}
	}
	if len(raw) > 0 {
		return r, fmt.Errorf("%d bytes stand behind those of the inputs; say whose they are with binary_data_size", len(raw))
	}
	return r, nil
}
