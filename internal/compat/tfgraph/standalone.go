package tfgraph

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/kernels/table"
)

// Model is all that a model's scores come from.
type Model struct {
	Spec   *model.ModelSpec
	Dense  map[string]checkpoint.Variable
	Tables map[string][]table.Row
}

// indexed is a table in the graph: the places of its ids, and its rows, behind which stands one of zeros.
type indexed struct {
	index, rows tensor
	count       int64
}

// builder is a SavedModel being made.
type builder struct {
	graph
	n       tensor // the number of samples
	tables  map[string]indexed
	filled  []tensor // what fills the tables' indexes, once variables are restored
	saves   []tensorbundle.Tensor
	handles []tensor
	kinds   []types_go_proto.DataType
}

func itoa(i int) string { return strconv.Itoa(i) }

// Write writes m as a SavedModel in the folder dir, which must not exist: its layers in TensorFlow's stock operations,
// its rows and variables in a bundle beside them. Signature serving_default takes each feature's ids as int64
// [n k], -1 where a sample has fewer, and each float as [n dim], and gives each task's score, [n]. Ids are those within the
// feature's slot; what is hashed elsewhere, texts and crossed features, comes as its hash.
func Write(dir string, m *Model) error {
	if _, err := os.Lstat(dir); err == nil {
		return &fs.PathError{Op: "create", Path: dir, Err: fs.ErrExist}
	}
	b := &builder{tables: map[string]indexed{}}
	meta, err := b.model(m)
	if err != nil {
		return err
	}
	data, err := b.saved(meta)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(dir), ".tmp-"+filepath.Base(dir))
	if err := os.RemoveAll(tmp); err != nil { // of one that broke off
		return err
	}
	if err := durable.MkdirAll(filepath.Join(tmp, "variables"), 0o755); err != nil {
		return err
	}
	if err := tensorbundle.Write(filepath.Join(tmp, "variables", "variables"), b.saves); err != nil {
		return err
	}
	err = durable.Replace(filepath.Join(tmp, FileName), 0o644, func(f *os.File) error { _, err := f.Write(data); return err })
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// model adds all of it.
func (b *builder) model(m *Model) (*for_core_protos_go_proto.MetaGraphDef, error) {
	compiled, err := modelspec.Compile(m.Spec)
	if err != nil {
		return nil, err
	}
	for _, t := range m.Spec.GetTables() {
		if err := b.table(m.Spec, t.GetName(), m.Tables[t.GetName()]); err != nil {
			return nil, err
		}
	}
	inputs := map[string]*for_core_protos_go_proto.TensorInfo{}
	features, ids := map[string]looked{}, map[string]tensor{}
	for _, f := range m.Spec.GetFeatures() {
		in := b.input("ids/"+f.GetName(), int64s, -1, -1)
		ids[f.GetName()], inputs[f.GetName()] = in, info(in, int64s, -1, -1)
		if b.n == "" {
			b.n = b.rows(in, int64s)
		}
	}
	for _, f := range m.Spec.GetFeatures() {
		features[f.GetName()] = b.feature(f, ids[f.GetName()])
	}
	in := b.outputs(compiled, features)
	for _, name := range compiled.Sequences {
		in = append(in, features[name].lengths)
	}
	for _, f := range m.Spec.GetFloats() {
		dim := int64(max(f.GetDim(), 1))
		x := b.input("floats/"+f.GetName(), float32s, -1, dim)
		in, inputs[f.GetName()] = append(in, x), info(x, float32s, -1, dim)
	}
	weights, err := b.weights(compiled, m.Dense)
	if err != nil {
		return nil, err
	}
	scores, err := b.lower(compiled.Serve, in, weights, b.n)
	if err != nil {
		return nil, err
	}
	outputs := map[string]*for_core_protos_go_proto.TensorInfo{}
	for i, t := range compiled.Tasks {
		outputs[t.Name] = info(b.reshape(scores[i]), float32s, -1)
	}
	return b.meta(inputs, outputs)
}

// meta is what loaders look for: the signature, how variables are restored, and what runs after that.
func (b *builder) meta(inputs, outputs map[string]*for_core_protos_go_proto.TensorInfo) (*for_core_protos_go_proto.MetaGraphDef, error) {
	var done []tensor
	for _, t := range b.filled {
		done = append(done, "^"+t)
	}
	begin := b.add("fill_tables", "NoOp", nil, done...)
	return &for_core_protos_go_proto.MetaGraphDef{
		SaverDef:     b.saver(),
		SignatureDef: map[string]*for_core_protos_go_proto.SignatureDef{"serving_default": signature(inputs, outputs)},
		CollectionDef: map[string]*for_core_protos_go_proto.CollectionDef{"saved_model_main_op": {Kind: &for_core_protos_go_proto.CollectionDef_NodeList_{
			NodeList: &for_core_protos_go_proto.CollectionDef_NodeList{Value: []string{string(begin)}}}}},
	}, nil
}

// table adds one's rows, as serving keeps them, and the index of its ids.
func (b *builder) table(spec *model.ModelSpec, name string, rows []table.Row) error {
	cfg, err := modelspec.TableConfig(spec, name, true)
	if err != nil {
		return err
	}
	cfg.MaxRows, cfg.MaxBytes = 0, 0
	t, err := table.New(cfg)
	if err != nil {
		return err
	}
	bare, ids := make([]table.Row, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		r.Slots, r.Tag = nil, 0
		bare[i], ids[i] = r, r.ID
	}
	if err := t.Restore(bare); err != nil {
		return err
	}
	values := make([]float32, (len(ids)+1)*t.Dim()) // the last row is that of ids without one
	if _, err := t.Lookup(ids, values[:len(ids)*t.Dim()], nil); err != nil {
		return err
	}
	count := int64(len(ids))
	at := indexed{count: count}
	at.rows = b.variable(tensorbundle.Tensor{Name: "tables/" + name + "/rows", Shape: []int64{count + 1, int64(t.Dim())}, Floats: values})
	keys := b.read(b.variable(tensorbundle.Tensor{Name: "tables/" + name + "/ids", Shape: []int64{count}, Ints: ids}), int64s)
	at.index = b.add("tables/"+name+"/index", "HashTableV2", attrs{"key_dtype": of(int64s), "value_dtype": of(int64s), "shared_name": text("tables/" + name + "/index"), "container": text(""), "use_node_name_sharing": truth(false)})
	places := b.add("tables/"+name+"/places", "Range", attrs{"Tidx": of(int64s)}, b.long(0), b.long(count), b.long(1))
	b.filled = append(b.filled, b.add("tables/"+name+"/fill", "LookupTableImportV2", attrs{"Tin": of(int64s), "Tout": of(int64s)}, at.index, keys, places))
	b.tables[name] = at
	return nil
}

// weights adds the dense variables, in the order of the model's.
func (b *builder) weights(m *modelspec.Model, dense map[string]checkpoint.Variable) (all []tensor, err error) {
	for _, v := range m.Variables {
		have, ok := dense[v.Name]
		if !ok || len(have.Values) != v.Size {
			return nil, fmt.Errorf("the checkpoint lacks variable %q of %d numbers", v.Name, v.Size)
		}
		shape := make([]int64, len(v.Shape))
		for i, d := range v.Shape {
			shape[i] = int64(d)
		}
		all = append(all, b.read(b.variable(tensorbundle.Tensor{Name: "dense/" + v.Name, Shape: shape, Floats: have.Values}), float32s))
	}
	return all, nil
}
