package modelserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/rows"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// The signatures by which the original's entry asks a shard for rows, and its training pushes them. The
// raw ones name no tables: theirs are all of the export, by name, and id_split says where each begins.
const (
	sigLookup    = "lookup"           // {table}: ids -> {table}: rows
	sigRawLookup = "raw_lookup"       // id, id_split -> flat_emb
	sigAssign    = "hashtable_assign" // {table}_id, {table}_value -> {table}_result: how many
	sigRawAssign = "raw_assign"       // id, id_split, flat_value -> result: 0; behind the name of all tables and a slash
)

const (
	maxPushed = maxMessage / 4 // numbers of one request
	rawID     = "id"
	rawSplit  = "id_split"
	rawValue  = "flat_value"
	rawRows   = "flat_emb"
	rawResult = "result"
)

// rowMethods answer Predict at a shard.
var rowMethods = map[string]func(*rows.Shard, map[string]*tfserving.TensorProto) (map[string]*tfserving.TensorProto, int, error){
	sigLookup: lookup, sigRawLookup: rawLookup, sigAssign: assign, sigRawAssign: rawAssign,
}

// rowSignature is the method of a signature, "" for one that is not about rows.
func rowSignature(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 && name[i+1:] == sigRawAssign {
		return sigRawAssign
	}
	if _, ok := rowMethods[name]; ok {
		return name
	}
	return ""
}

// predictRows answers a Predict at a shard's rows; ok is false where it is about no shard, or no rows.
func (s *Server) predictRows(c caller, req *apis.PredictRequest) (res *apis.PredictResponse, ok bool, err error) {
	spec := req.GetModelSpec()
	method := rowSignature(spec.GetSignatureName())
	if method == "" {
		return nil, false, nil
	}
	shard, err := s.servables.Shard(spec)
	if err != nil || shard == nil {
		return nil, false, nil // the way of all models says why
	}
	began, n := time.Now(), 0
	c.api = "Predict"
	defer func() { s.counted(c, spec, time.Since(began), n, err) }()
	out, n, err := rowMethods[method](shard, req.GetInputs())
	if err != nil {
		return nil, true, err
	}
	answered := tfserving.Spec(spec.GetName(), shard.Version)
	answered.SignatureName = spec.GetSignatureName()
	return &apis.PredictResponse{ModelSpec: answered, Outputs: out}, true, nil
}

// wrong is an input that cannot be taken.
func wrong(input string, err error) error {
	return status.Errorf(codes.InvalidArgument, "input %q: %v", input, err)
}

// ids reads an input of ids, which must be there.
func ids(in map[string]*tfserving.TensorProto, name string) ([]int64, error) {
	t, ok := in[name]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "the input %q is missing", name)
	}
	all, err := tfserving.Int64s(nil, t, rowwire.MaxIDs)
	if err != nil {
		return nil, wrong(name, err)
	}
	return all, nil
}

// values reads an input of numbers, which must be there.
func values(in map[string]*tfserving.TensorProto, name string) ([]float32, error) {
	t, ok := in[name]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "the input %q is missing", name)
	}
	all, err := tfserving.Floats(nil, t, maxPushed)
	if err != nil {
		return nil, wrong(name, err)
	}
	return all, nil
}

func lookup(m *rows.Shard, in map[string]*tfserving.TensorProto) (map[string]*tfserving.TensorProto, int, error) {
	var asked []rowwire.TableIDs
	n := 0
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if m.Dim(name) == 0 {
			return nil, 0, wrong(name, fmt.Errorf("there is no such table; the export has %v", m.Tables()))
		}
		of, err := ids(in, name)
		if err != nil {
			return nil, 0, err
		}
		asked, n = append(asked, rowwire.TableIDs{Table: name, IDs: of}), n+len(of)
	}
	found, err := m.Find(asked)
	if err != nil {
		return nil, 0, err
	}
	out := map[string]*tfserving.TensorProto{}
	for i, q := range asked {
		out[q.Table] = tfserving.NewFloat(found[i], int64(len(q.IDs)), int64(m.Dim(q.Table)))
	}
	return out, n, nil
}

// split cuts the ids of a raw request by table.
func split(m *rows.Shard, in map[string]*tfserving.TensorProto) (all []rowwire.TableIDs, n int, err error) {
	of, err := ids(in, rawID)
	if err != nil {
		return nil, 0, err
	}
	at, err := ids(in, rawSplit)
	if err != nil {
		return nil, 0, err
	}
	tables := m.Tables()
	if len(at) != len(tables)+1 || at[0] != 0 || at[len(at)-1] != int64(len(of)) || !slices.IsSorted(at) {
		return nil, 0, wrong(rawSplit, fmt.Errorf("it has %d numbers; for the tables %v and %d ids it needs %d, from 0 up to %d", len(at), tables, len(of), len(tables)+1, len(of)))
	}
	for i, name := range tables {
		all = append(all, rowwire.TableIDs{Table: name, IDs: of[at[i]:at[i+1]]})
	}
	return all, len(of), nil
}

func rawLookup(m *rows.Shard, in map[string]*tfserving.TensorProto) (map[string]*tfserving.TensorProto, int, error) {
	asked, n, err := split(m, in)
	if err != nil {
		return nil, 0, err
	}
	found, err := m.Find(asked)
	if err != nil {
		return nil, 0, err
	}
	return map[string]*tfserving.TensorProto{rawRows: tfserving.NewFloat(slices.Concat(found...))}, n, nil
}

func assign(m *rows.Shard, in map[string]*tfserving.TensorProto) (map[string]*tfserving.TensorProto, int, error) {
	var pushed []rows.TableRows
	out := map[string]*tfserving.TensorProto{}
	n := 0
	for _, input := range slices.Sorted(maps.Keys(in)) {
		name, ok := strings.CutSuffix(input, "_id")
		if !ok {
			if table, ok := strings.CutSuffix(input, "_value"); !ok || in[table+"_id"] == nil {
				return nil, 0, wrong(input, fmt.Errorf("inputs are {table}_id and {table}_value, for the tables %v", m.Tables()))
			}
			continue
		}
		r := rows.TableRows{Table: name}
		var err error
		if r.IDs, err = ids(in, input); err != nil {
			return nil, 0, err
		}
		if r.Values, err = values(in, name+"_value"); err != nil {
			return nil, 0, err
		}
		pushed, n = append(pushed, r), n+len(r.IDs)
		out[name+"_result"] = scalar(int32(len(r.IDs)))
	}
	return out, n, m.Assign(pushed, time.Now())
}

func rawAssign(m *rows.Shard, in map[string]*tfserving.TensorProto) (map[string]*tfserving.TensorProto, int, error) {
	of, n, err := split(m, in)
	if err != nil {
		return nil, 0, err
	}
	flat, err := values(in, rawValue)
	if err != nil {
		return nil, 0, err
	}
	var pushed []rows.TableRows
	at := 0
	for _, t := range of {
		end := at + len(t.IDs)*m.Dim(t.Table)
		if end > len(flat) {
			return nil, 0, wrong(rawValue, fmt.Errorf("it has %d numbers, fewer than the rows of %d ids", len(flat), n))
		}
		pushed, at = append(pushed, rows.TableRows{Table: t.Table, IDs: t.IDs, Values: flat[at:end]}), end
	}
	if at != len(flat) {
		return nil, 0, wrong(rawValue, fmt.Errorf("it has %d numbers, and the rows of %d ids have %d", len(flat), n, at))
	}
	return map[string]*tfserving.TensorProto{rawResult: scalar(0)}, n, m.Assign(pushed, time.Now())
}

// scalar is one whole number.
func scalar(n int32) *tfserving.TensorProto {
	return &tfserving.TensorProto{Dtype: types_go_proto.DataType_DT_INT32, TensorShape: &tensor_shape_go_proto.TensorShapeProto{}, IntVal: []int32{n}}
}

// rowSignatures are what may be asked of a shard.
func rowSignatures(m *rows.Shard) map[string]*for_core_protos_go_proto.SignatureDef {
	const whole, float, count = types_go_proto.DataType_DT_INT64, types_go_proto.DataType_DT_FLOAT, types_go_proto.DataType_DT_INT32
	def := func() *for_core_protos_go_proto.SignatureDef {
		return &for_core_protos_go_proto.SignatureDef{MethodName: tfserving.MethodPredict, Inputs: tensors{}, Outputs: tensors{}}
	}
	find, push, rawFind, rawPush := def(), def(), def(), def()
	for _, name := range m.Tables() {
		dim := int64(m.Dim(name))
		find.Inputs[name], find.Outputs[name] = tensorInfo(name, whole), tensorInfo(name, float, dim)
		push.Inputs[name+"_id"], push.Inputs[name+"_value"] = tensorInfo(name+"_id", whole), tensorInfo(name+"_value", float, dim)
		push.Outputs[name+"_result"] = tensorInfo(name+"_result", count)
	}
	for _, raw := range []*for_core_protos_go_proto.SignatureDef{rawFind, rawPush} {
		raw.Inputs[rawID], raw.Inputs[rawSplit] = tensorInfo(rawID, whole), tensorInfo(rawSplit, whole)
	}
	rawFind.Outputs[rawRows] = tensorInfo(rawRows, float)
	rawPush.Inputs[rawValue], rawPush.Outputs[rawResult] = tensorInfo(rawValue, float), tensorInfo(rawResult, count)
	return map[string]*for_core_protos_go_proto.SignatureDef{sigLookup: find, sigRawLookup: rawFind, sigAssign: push, sigRawAssign: rawPush}
}
