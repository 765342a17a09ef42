package entry

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/rows"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// splitsSuffix makes the name of the input with the row splits of another one, whose tensor is
// then the values of a ragged tensor.
const splitsSuffix = tfserving.SplitsSuffix

// maxValues is the most ids or numbers of one input.
const maxValues = 1 << 20

// feature is a declared feature that requests give.
type feature struct {
	index int // in the spec
	name  string
	slot  uint32
	table string
	spec  *model.Feature
}

// number is a declared float.
type number struct {
	name string
	dim  int
	spec *model.Float
}

// declare resolves what requests may give: all but crossed features, which follow from others.
func (m *Model) declare(spec *model.ModelSpec) {
	for i, f := range spec.GetFeatures() {
		if len(f.GetCross()) > 0 {
			continue
		}
		m.features = append(m.features, feature{index: i, name: f.GetName(), slot: f.GetSlot(), table: f.GetTable(), spec: f})
		in := tfserving.Input{Name: f.GetName(), Dtype: types_go_proto.DataType_DT_INT64, List: true, Optional: f.GetMissing() != model.Feature_REJECT}
		if f.GetIds() == model.Feature_HASH {
			in.Dtype = types_go_proto.DataType_DT_STRING
		}
		m.inputs = append(m.inputs, in)
	}
	for _, f := range spec.GetFloats() {
		dim := int(max(f.GetDim(), 1))
		m.floats = append(m.floats, number{f.GetName(), dim, f})
		m.inputs = append(m.inputs, tfserving.Input{Name: f.GetName(), Dtype: types_go_proto.DataType_DT_FLOAT, Dim: dim, Optional: f.GetMissing() != model.Feature_REJECT})
	}
	m.rest = m.inputs
	for _, r := range recordInputs {
		if !m.takes(r.name) {
			m.rest = append(slices.Clip(m.rest), tfserving.Input{Name: r.name, Dtype: types_go_proto.DataType_DT_STRING, Instead: true})
		}
	}
	for _, t := range m.engine.Tasks() {
		m.outputs = append(m.outputs, t.Name)
	}
}

// load makes a batch of the input tensors, or of the records instead of them. All tensors must have
// the same number of rows, or one that stands for every row.
func (sc *scratch) load(m *Model, in Input, limit int) error {
	sc.batch.Reset()
	if in.Examples != nil {
		return sc.records(m, &recordInputs[0], in.Examples, limit)
	}
	inputs := in.Tensors
	for i := range recordInputs {
		r := &recordInputs[i]
		if t, ok := inputs[r.name]; ok && !m.takes(r.name) {
			if len(inputs) > 1 {
				return fmt.Errorf("input %q stands for all others, and came with %d more; send it alone", r.name, len(inputs)-1)
			}
			return sc.recordTensor(m, r, t, limit)
		}
	}
	if err := m.known(inputs); err != nil {
		return err
	}
	n := -1
	for i := range m.inputs {
		t, ok := inputs[m.inputs[i].Name]
		if !ok {
			continue
		}
		splits := inputs[m.inputs[i].Name+splitsSuffix]
		rows, err := rowsOf(t, splits, limit)
		if err != nil {
			return fmt.Errorf("input %q: %w", m.inputs[i].Name, err)
		}
		if n < 0 || n == 1 {
			n, sc.counted = rows, m.inputs[i].Name
		}
		if rows != n && rows != 1 {
			return fmt.Errorf("input %q has %d rows, input %q has %d; give each the same number, or one for all", m.inputs[i].Name, rows, sc.counted, n)
		}
	}
	if n <= 0 {
		return errors.New("the batch is empty; send at least one row")
	}
	for i := range m.features {
		f := &m.features[i]
		if err := sc.ids(f, inputs[f.name], inputs[f.name+splitsSuffix], n, limit); err != nil {
			return fmt.Errorf("input %q%w", f.name, err)
		}
		if err := sc.batch.Column(f.index, sc.column, sc.splits); err != nil {
			return fmt.Errorf("input %q: %w", f.name, err)
		}
	}
	for i := range m.floats {
		f := &m.floats[i]
		if err := sc.numbers(f, inputs[f.name], n); err != nil {
			return fmt.Errorf("input %q: %w", f.name, err)
		}
		if err := sc.batch.FloatColumn(i, sc.values); err != nil {
			return fmt.Errorf("input %q: %w", f.name, err)
		}
	}
	return nil
}

// takes says whether the signature has an input of that name.
func (m *Model) takes(name string) bool {
	return slices.ContainsFunc(m.inputs, func(in tfserving.Input) bool { return in.Name == name })
}

// known refuses inputs that the signature does not have, and the lack of those that it insists on.
func (m *Model) known(inputs map[string]*tfserving.TensorProto) error {
	given := 0
	for i := range m.inputs {
		in := &m.inputs[i]
		_, ok := inputs[in.Name]
		if ok {
			given++
		}
		if _, splits := inputs[in.Name+splitsSuffix]; splits && !m.takes(in.Name+splitsSuffix) {
			switch {
			case !ok:
				return fmt.Errorf("input %q comes without %q, its values", in.Name+splitsSuffix, in.Name)
			case !in.List:
				return fmt.Errorf("input %q has row splits, but its rows have %d numbers each", in.Name, in.Dim)
			}
			given++
		}
	}
	for i := range m.inputs {
		if in := &m.inputs[i]; !in.Optional && inputs[in.Name] == nil {
			if len(inputs) != len(m.inputs) {
				break // said below
			}
			return fmt.Errorf("input %q is missing; the signature has {%s}", in.Name, m.inputNames())
		}
	}
	missing := slices.ContainsFunc(m.inputs, func(in tfserving.Input) bool { return !in.Optional && inputs[in.Name] == nil })
	if given != len(inputs) || missing {
		return fmt.Errorf("input size does not match signature: %d inputs {%s}, the signature has %d: {%s}",
			len(inputs), strings.Join(slices.Sorted(maps.Keys(inputs)), ", "), len(m.inputs), m.inputNames())
	}
	return nil
}

// rowsOf is how many rows a tensor has, or the ragged one that it is the values of.
func rowsOf(t, splits *tfserving.TensorProto, limit int) (int, error) {
	if splits == nil {
		n, err := tfserving.Rows(t, maxValues)
		if err == nil && n > limit {
			err = fmt.Errorf("tensor has %d rows, at most %d are taken; send a smaller batch", n, limit)
		}
		return n, err
	}
	n, err := tfserving.Rows(splits, limit+1)
	if err == nil && n == 0 {
		err = errors.New("its row splits are empty; they begin with 0 and have one more for each row")
	}
	return n - 1, err
}

// ids reads the ids of a feature into column and splits, which is nil where each row has one. An
// error begins with what stands behind the name of the input.
func (sc *scratch) ids(f *feature, t, splits *tfserving.TensorProto, n, limit int) error {
	sc.column, sc.splits = sc.column[:0], nil
	if t == nil {
		sc.splits = sized(&sc.ends, n+1)
		clear(sc.splits)
		return sc.missing(f)
	}
	all := n
	n, err := rowsOf(t, splits, limit)
	if err == nil {
		err = sc.read(f, t)
	}
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	dims := t.GetTensorShape().GetDim()
	switch {
	case splits != nil:
		if len(dims) != 1 {
			return fmt.Errorf(" has row splits and %d dimensions; want values of shape [ids]", len(dims))
		}
		if sc.wide, err = tfserving.Int64s(sc.wide[:0], splits, n+1); err != nil {
			return fmt.Errorf(", row splits: %w", err)
		}
		if len(sc.wide) != n+1 {
			return fmt.Errorf(", row splits: %d of them, want %d", len(sc.wide), n+1)
		}
		sc.splits = sized(&sc.ends, n+1)
		for i, at := range sc.wide {
			if at < 0 || at > int64(len(sc.column)) || i > 0 && at < sc.wide[i-1] || i == 0 && at != 0 || i == n && at != int64(len(sc.column)) {
				return fmt.Errorf(", row splits: number %d is %d; they begin with 0, never fall, and end with %d, the number of values", i, at, len(sc.column))
			}
			sc.splits[i] = int32(at)
		}
	case len(dims) > 2:
		return fmt.Errorf(" has %d dimensions; want shape [n], [n, k], or values with %q", len(dims), f.name+splitsSuffix)
	case len(dims) == 2 && dims[1].GetSize() != 1:
		k := int(dims[1].GetSize())
		sc.splits = sized(&sc.ends, n+1)
		for i := range sc.splits {
			sc.splits[i] = int32(i * k)
		}
	}
	for row := range n {
		begin, end := row, row+1
		if sc.splits != nil {
			begin, end = int(sc.splits[row]), int(sc.splits[row+1])
		}
		for i, id := range sc.column[begin:end] {
			fid, err := f.fid(id)
			if err != nil {
				return fmt.Errorf(", row %d: %w", row, err)
			}
			sc.column[begin+i] = fid
		}
	}
	if err := sc.missing(f); err != nil {
		return err
	}
	return sc.repeat(n, all)
}

// repeat makes one row of column all rows.
func (sc *scratch) repeat(n, all int) error {
	if n == all {
		return nil
	}
	ids := len(sc.column)
	if ids*all > runtime.MaxBatchIDs {
		return fmt.Errorf(" has %d ids for each of %d rows, which are more than %d; send a smaller batch", ids, all, runtime.MaxBatchIDs)
	}
	sc.splits = nil
	if ids != 1 {
		sc.splits = sized(&sc.ends, all+1)
		for i := range sc.splits {
			sc.splits[i] = int32(i * ids)
		}
	}
	for range all - 1 {
		sc.column = append(sc.column, sc.column[:ids]...)
	}
	return nil
}

// fid is the feature id of an id as it comes in.
func (f *feature) fid(id int64) (int64, error) {
	if f.spec.GetIds() == model.Feature_FID {
		if id < 0 || modelspec.SlotOf(id) != f.slot {
			return 0, fmt.Errorf("%d is a feature id of slot %d, the feature's is %d", id, modelspec.SlotOf(id), f.slot)
		}
		return id, nil
	}
	if f.spec.GetIds() == model.Feature_HASH { // 48 bits, of which the batch makes those of rows as of a record's
		return modelspec.FID(f.slot, id), nil
	}
	taken, ok := modelspec.VocabularyOf(f.spec).Take(id)
	if !ok {
		return 0, fmt.Errorf("id %d is outside 0 to 2^48-1; hash ids to 48 bits as the training records do", id)
	}
	return modelspec.FID(f.slot, taken), nil
}

// read appends the ids of a tensor to column as they come in, hashed where the feature says so.
func (sc *scratch) read(f *feature, t *tfserving.TensorProto) (err error) {
	hashed := f.spec.GetIds() == model.Feature_HASH
	if t.GetDtype() == types_go_proto.DataType_DT_STRING && hashed {
		sc.texts, err = tfserving.Strings(sc.texts[:0], t, maxValues)
		for _, text := range sc.texts {
			sc.column = append(sc.column, modelspec.HashID(text))
		}
		clear(sc.texts)
		return err
	}
	if sc.column, err = tfserving.Int64s(sc.column, t, maxValues); err != nil || !hashed {
		return err
	}
	var digits []byte
	for i, id := range sc.column { // as in a record, a number is its digits
		digits = strconv.AppendInt(digits[:0], id, 10)
		sc.column[i] = modelspec.HashID(digits)
	}
	return nil
}

// missing does for rows without an id what the feature says is to be done.
func (sc *scratch) missing(f *feature) error {
	if sc.splits == nil || f.spec.GetMissing() == model.Feature_EMPTY {
		return nil
	}
	given, made := sc.column, sc.filled[:0]
	begin := int32(0)
	for row, end := range sc.splits[1:] {
		if begin == end && f.spec.GetMissing() == model.Feature_REJECT {
			return fmt.Errorf(", row %d: it has no id; send at least one", row)
		}
		if begin == end {
			for _, id := range f.spec.GetDefaultIds() {
				made = append(made, modelspec.FID(f.slot, int64(id)))
			}
		}
		made = append(made, given[begin:end]...)
		begin, sc.splits[row+1] = end, int32(len(made))
	}
	sc.column, sc.filled = made, given
	return nil
}

// numbers reads the values of a float.
func (sc *scratch) numbers(f *number, t *tfserving.TensorProto, n int) (err error) {
	sc.values = sc.values[:0]
	if t == nil {
		for range n * f.dim {
			sc.values = append(sc.values, f.spec.GetDefault())
		}
		return nil
	}
	if sc.values, err = tfserving.Floats(sc.values, t, maxValues); err != nil {
		return err
	}
	dims := t.GetTensorShape().GetDim()
	if len(dims) > 0 && dims[0].GetSize() == 1 && len(sc.values) == f.dim { // for all rows
		for range n - 1 {
			sc.values = append(sc.values, sc.values[:f.dim]...)
		}
	}
	if len(dims) > 2 || len(sc.values) != n*f.dim {
		return fmt.Errorf("%d numbers in %d dimensions for %d rows; want shape [n, %d]", len(sc.values), len(dims), n, f.dim)
	}
	for i, v := range sc.values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("row %d holds %v, which is not a finite number", i/f.dim, v)
		}
	}
	return nil
}

func (m *Model) inputNames() string {
	names := make([]string, len(m.inputs))
	for i, in := range m.inputs {
		names[i] = in.Name
	}
	return strings.Join(names, ", ")
}

// sized makes *s n long, in its memory if that suffices.
func sized[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

// scratch is the memory of one Predict, used again by the next of its model.
type scratch struct {
	batch  *runtime.Batch
	lookup *rows.Lookup
	asked  *rows.Lookup // that of the batches that were looked up with this one, of which it was the nth
	nth    int
	scores [][]float32

	decoders [len(recordInputs)]*input.Decoder // nil before the first of the kind
	counted  string                            // an input whose rows were counted
	column   []int64                           // ids of a feature
	splits   []int32                           // of column; nil: each row has one
	ends     []int32                           // behind splits
	filled   []int64                           // column's spare
	wide     []int64
	values   []float32
	texts    [][]byte
}
