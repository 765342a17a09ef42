package openinference

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// ParseVersion reads the version of a gRPC request: 0 where none is named.
func ParseVersion(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("the version %q is none; send a whole number, or nothing for the newest", s)
	}
	return v, nil
}

// FromProto reads a request as it comes over gRPC. Who sends bytes is answered in bytes.
func FromProto(m *inferencepb.ModelInferRequest) (Request, error) {
	r := Request{ID: m.GetId(), Inputs: make(map[string]*tfserving.TensorProto, len(m.GetInputs()))}
	raw := m.GetRawInputContents()
	r.Binary = func(string) bool { return len(raw) > 0 }
	if len(raw) > 0 && len(raw) != len(m.GetInputs()) {
		return r, fmt.Errorf("%d raw_input_contents came for %d inputs; send one for each, or contents", len(raw), len(m.GetInputs()))
	}
	for _, o := range m.GetOutputs() {
		r.Outputs = append(r.Outputs, o.GetName())
	}
	for i, in := range m.GetInputs() {
		if r.Inputs[in.GetName()] != nil {
			return r, fmt.Errorf("input %q is there twice; send it once", in.GetName())
		}
		t, err := shaped(in.GetDatatype(), in.GetShape(), func(v *values, width int) error {
			switch {
			case len(raw) == 0:
				return v.readContents(in.GetContents())
			case in.GetContents() != nil:
				return errors.New("it has contents beside raw_input_contents; send one of them")
			}
			return v.readBytes(raw[i], width)
		})
		if err != nil {
			return r, fmt.Errorf("input %q: %w", in.GetName(), err)
		}
		r.Inputs[in.GetName()] = t
	}
	return r, nil
}

// readContents takes the elements from the field of their datatype.
func (v *values) readContents(c *inferencepb.InferTensorContents) error {
	field := ""
	switch v.datatype {
	case "INT8", "INT16", "INT32":
		field = "int_contents"
		for _, i := range c.GetIntContents() {
			v.ints = append(v.ints, int64(i))
		}
	case "INT64":
		field, v.ints = "int64_contents", c.GetInt64Contents()
	case "UINT8", "UINT16", "UINT32":
		field = "uint_contents"
		for _, u := range c.GetUintContents() {
			v.ints = append(v.ints, int64(u))
		}
	case "UINT64":
		field = "uint64_contents"
		for _, u := range c.GetUint64Contents() {
			if err := v.addUnsigned(u); err != nil {
				return err
			}
		}
	case number:
		field, v.floats = "fp32_contents", c.GetFp32Contents()
	case double:
		field = "fp64_contents"
		for _, f := range c.GetFp64Contents() {
			v.floats = append(v.floats, float32(f))
		}
	case texts:
		field, v.texts = "bytes_contents", c.GetBytesContents()
	}
	all := len(c.GetBoolContents()) + len(c.GetIntContents()) + len(c.GetInt64Contents()) + len(c.GetUintContents()) +
		len(c.GetUint64Contents()) + len(c.GetFp32Contents()) + len(c.GetFp64Contents()) + len(c.GetBytesContents())
	if all != v.len() {
		return fmt.Errorf("%d of its elements are not those of %s; put all of them in %s", all-v.len(), v.datatype, field)
	}
	return nil
}

// Proto is an answer as it goes over gRPC: its outputs are all bytes or none.
func (a Answer) Proto() *inferencepb.ModelInferResponse {
	m := &inferencepb.ModelInferResponse{ModelName: a.Model, ModelVersion: strconv.FormatInt(a.Version, 10), Id: a.ID}
	for _, o := range a.Outputs {
		out := &inferencepb.ModelInferResponse_InferOutputTensor{Name: o.Name, Datatype: number, Shape: []int64{int64(len(o.Values))}}
		if o.Binary {
			m.RawOutputContents = append(m.RawOutputContents, appendBytes(nil, o.Values))
		} else {
			out.Contents = &inferencepb.InferTensorContents{Fp32Contents: o.Values}
		}
		m.Outputs = append(m.Outputs, out)
	}
	return m
}

// Proto is what the server says of itself over gRPC.
func (s Server) Proto() *inferencepb.ServerMetadataResponse {
	return &inferencepb.ServerMetadataResponse{Name: s.Name, Version: s.Version, Extensions: s.Extensions}
}

// Proto is what the model says of itself over gRPC.
func (m Model) Proto() *inferencepb.ModelMetadataResponse {
	return &inferencepb.ModelMetadataResponse{Name: m.Name, Versions: m.Versions, Platform: m.Platform, Inputs: tensors(m.Inputs), Outputs: tensors(m.Outputs)}
}

func tensors(all []Tensor) (list []*inferencepb.ModelMetadataResponse_TensorMetadata) {
	for _, t := range all {
		list = append(list, &inferencepb.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape})
	}
	return list
}
