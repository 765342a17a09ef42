package tfserving

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// MaxBody is the most bytes of a REST request that are read.
const MaxBody = 8 << 20

// Input is one input of a signature, in its order; the JSON form leaves its type to it.
type Input struct {
	Name     string
	Dtype    types_go_proto.DataType // DT_INT64, DT_FLOAT or DT_STRING
	Dim      int                     // numbers of a row, if that is fixed
	List     bool                    // a row may have any number of values: it is a value or a list of them
	Optional bool                    // rows may lack it, of a List any of them, else all of them
	Instead  bool                    // where it is given, the others are not
}

// SplitsSuffix makes the name of the input with the row splits of a ragged one.
const SplitsSuffix = "/row_splits"

// RESTRequest is what a request line asks for.
type RESTRequest struct {
	Model    string
	Version  int64  // 0: the newest
	Label    string // of a version; empty: none is named
	Verb     string // "predict", ...; empty for a status
	Metadata bool   // the signature instead of the status
}

// refusal is one of the original's own sentences, word for word.
type refusal string

func (r refusal) Error() string { return string(r) }

// ParsePath reads /v1/models/{model}[/versions/{version}|/labels/{label}][/metadata|:{verb}].
// A model's name may hold a colon, as sub-models' do.
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
	if r.Verb == "" {
		rest, r.Metadata = strings.CutSuffix(rest, "/metadata")
	}
	name, version, versioned := strings.Cut(rest, "/versions/")
	label, labelled := "", false
	if !versioned {
		if name, label, labelled = strings.Cut(rest, "/labels/"); labelled && (label == "" || len(label) > MaxName || strings.Contains(label, "/")) {
			return RESTRequest{}, malformed
		}
		r.Label = label
	}
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

// EncodePredict writes an answer of one number per row and output, in the layout of the original:
// "predictions" for rows, "outputs" for columns, the only output without its name. A score that is no
// number has no JSON.
func EncodePredict(columnar bool, outputs map[string]*TensorProto) ([]byte, error) {
	names := slices.Sorted(maps.Keys(outputs))
	rows := 0
	for _, name := range names {
		rows = len(outputs[name].GetFloatVal())
		for i, s := range outputs[name].GetFloatVal() {
			if f := float64(s); math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("output %s of row %d is %v, which JSON cannot hold; the model's weights are broken", name, i, s)
			}
		}
	}
	b := make([]byte, 0, 40+(12*len(names)+len(names)*16*min(len(names)-1, 1))*rows)
	key := "predictions"
	if columnar {
		key = "outputs"
	}
	b = append(append(append(b, "{\n    \""...), key...), "\": "...)
	switch {
	case len(names) == 1:
		b = appendColumn(b, outputs[names[0]].GetFloatVal(), "\n    ]")
	case columnar:
		b = append(b, "{\n"...)
		for i, name := range names {
			if i > 0 {
				b = append(b, ",\n"...)
			}
			b = append(appendName(append(b, "        "...), name), ": "...)
			b = appendColumn(b, outputs[name].GetFloatVal(), "\n        ]")
		}
		b = append(b, "\n    }"...)
	default:
		b = append(b, '[')
		for row := range rows {
			if row > 0 {
				b = append(b, ", "...)
			}
			b = append(b, "\n        {\n"...)
			for i, name := range names {
				if i > 0 {
					b = append(b, ",\n"...)
				}
				b = append(appendName(append(b, "            "...), name), ": "...)
				b = appendDecimal(b, outputs[name].GetFloatVal()[row])
			}
			b = append(b, "\n        }"...)
		}
		b = append(b, "\n    ]"...)
	}
	return append(b, "\n}"...), nil
}

func appendColumn(b []byte, values []float32, end string) []byte {
	b = append(b, '[')
	for i, s := range values {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendDecimal(b, s)
	}
	return append(b, end...)
}

func appendName(b []byte, name string) []byte {
	quoted, _ := json.Marshal(name) // a string: it cannot fail
	return append(b, quoted...)
}

// appendDecimal writes the shortest decimal that reads back as v, always with a point
// or an exponent, so that it stays a float.
func appendDecimal(b []byte, v float32) []byte {
	at := len(b)
	b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
	for _, c := range b[at:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...)
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

// EncodeMetadata writes a model's signatures as the original's REST API does.
func EncodeMetadata(r *apis.GetModelMetadataResponse) ([]byte, error) {
	o := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	spec, err := o.Marshal(r.GetModelSpec())
	if err != nil {
		return nil, err
	}
	var defs apis.SignatureDefMap
	if err := r.GetMetadata()["signature_def"].UnmarshalTo(&defs); err != nil {
		return nil, err
	}
	signatures, err := o.Marshal(&defs)
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(map[string]any{
		"model_spec": json.RawMessage(spec),
		"metadata":   map[string]json.RawMessage{"signature_def": signatures},
	}, "", " ")
	return append(b, '\n'), err
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
