package modelserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const outputName = "score"

// scratch is the memory of one Predict, used again by the next of its model.
type scratch struct {
	batch  *runtime.Batch
	column []int64
	shards []shardScratch
}

// find resolves a model spec to what may answer it, newest first: only the version that
// is asked for, if one is.
func (x *index) find(spec *apis.ModelSpec) ([]*servable, error) {
	if spec.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "Missing ModelSpec: name the model")
	}
	if _, ok := spec.GetVersionChoice().(*apis.ModelSpec_VersionLabel); ok {
		return nil, status.Errorf(codes.InvalidArgument, "Unrecognized servable version label: %s", spec.GetVersionLabel())
	}
	want := spec.GetVersion().GetValue()
	versions, _ := alias(x.models, spec.GetName())
	if want == 0 && len(versions) > 0 {
		return versions, nil
	}
	for i, g := range versions {
		if g.number() == want {
			return versions[i : i+1], nil
		}
	}
	return nil, x.missing(spec.GetName(), want)
}

// missing tells what is unknown, in the original's words, from what cannot answer now.
func (x *index) missing(name string, want int64) error {
	absent, known := alias(x.absent, name)
	if !known && x.expects != nil && x.expects(name) {
		return status.Errorf(codes.Unavailable, "model %s is to be served here, but this server has not been told to load it yet", name)
	}
	if why, ok := absent[want]; known && want > 0 && ok {
		return status.Errorf(codes.Unavailable, "version %d of model %s does not answer: %s", want, name, why)
	}
	if !known || want > 0 {
		return status.Error(codes.NotFound, notFound(name, want))
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(absent))) {
		return status.Errorf(codes.Unavailable, "model %s does not answer: version %d is %s", name, n, absent[n])
	}
	return status.Errorf(codes.Unavailable, "model %s does not answer: no version of it has been found yet", name)
}

func (g *servable) number() int64 {
	if g.entry != nil {
		return g.entry.version
	}
	return g.ps.version
}

// entries is find for what can predict, those first whose rows every shard has.
func (x *index) entries(spec *apis.ModelSpec) ([]*entryModel, error) {
	found, err := x.find(spec)
	if err != nil {
		return nil, err
	}
	if found[0].entry == nil {
		return nil, status.Errorf(codes.Unimplemented, "model %s holds embedding rows, which the row protocol serves; send Predict to %s:entry", spec.GetName(), found[0].ps.model)
	}
	if sig := spec.GetSignatureName(); sig != "" && sig != tfserving.DefaultSignature {
		return nil, status.Errorf(codes.InvalidArgument, "Serving signature name: %q not found in signature def; it has %q", sig, tfserving.DefaultSignature)
	}
	entries := make([]*entryModel, 0, len(found))
	for _, settled := range []bool{true, false} { // one whose rows are not everywhere is asked last
		for _, g := range found {
			if g.entry.settled.Load() == settled && len(entries) < len(found) {
				entries = append(entries, g.entry)
			}
		}
	}
	if len(entries) == 0 { // each was settled in between
		entries = append(entries, found[0].entry)
	}
	return entries, nil
}

// answer scores a batch by the newest version that can: while a version is switched, the
// rows of the new one may not be everywhere yet, and those of the old one are not mixed
// in.
func (s *Server) answer(ctx context.Context, versions []*entryModel, inputs map[string]*tfserving.TensorProto, rec *recorder) (m *entryModel, scores []float32, err error) {
	for _, m = range versions {
		scores, err = s.score(ctx, m, inputs, rec)
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			break
		}
	}
	return m, scores, err
}

// score answers a batch: ids to rows to scores, which are a fresh slice. With rec, what the
// answer stood on is handed to it before the scratch is given back.
func (s *Server) score(ctx context.Context, m *entryModel, inputs map[string]*tfserving.TensorProto, rec *recorder) ([]float32, error) {
	sc := m.scratches.Get().(*scratch)
	defer m.scratches.Put(sc)
	if err := sc.load(m, inputs, s.cfg.MaxBatch); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := sc.batch.Seal(); err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.model, err)
	}
	for k := range sc.shards {
		sc.shards[k].split(m, uint32(k), sc.batch.Blocks(k), rec != nil)
	}
	if err := s.lookup(ctx, m, sc); err != nil {
		return nil, err
	}
	w := m.params.Load()
	lane := m.lanes.Get().(*runtime.Lane)
	byTask, err := m.engine.Score(lane, sc.batch, w, [][]float32{make([]float32, 0, sc.batch.Len())})
	m.lanes.Put(lane)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.model, err)
	}
	scores := byTask[0]
	if rec != nil {
		rec.take(m, sc, w.Version, scores)
	}
	return scores, nil
}

// load makes a batch of the input tensors; all must have the same number of rows.
func (sc *scratch) load(m *entryModel, inputs map[string]*tfserving.TensorProto, limit int) error {
	if len(inputs) != len(m.features) {
		return fmt.Errorf("input size does not match signature: %d inputs {%s}, the signature has %d: {%s}",
			len(inputs), strings.Join(slices.Sorted(maps.Keys(inputs)), ", "), len(m.features), m.inputNames())
	}
	n := -1
	sc.batch.Reset()
	for i := range m.features {
		f := &m.features[i]
		t, ok := inputs[f.name]
		if !ok {
			return fmt.Errorf("input %q is missing; the signature has {%s}", f.name, m.inputNames())
		}
		rows, err := tfserving.Rows(t, limit)
		if err != nil {
			return fmt.Errorf("input %q: %w", f.name, err)
		}
		if n < 0 {
			n = rows
		}
		if sc.column, err = tfserving.Int64s(sc.column[:0], t, limit); err != nil {
			return fmt.Errorf("input %q: %w", f.name, err)
		}
		if rows != n || len(sc.column) != n || len(t.GetTensorShape().GetDim()) > 2 {
			return fmt.Errorf("input %q has %d rows of %d ids in all, and %d dimensions; want one id for each of %d rows: shape [n] or [n, 1]", f.name, rows, len(sc.column), len(t.GetTensorShape().GetDim()), n)
		}
		for row, id := range sc.column {
			if id < 0 || id > modelspec.MaxID {
				return fmt.Errorf("input %q, row %d: id %d is outside 0 to 2^48-1; hash ids to 48 bits as the training records do", f.name, row, id)
			}
			sc.column[row] = modelspec.FID(f.slot, id)
		}
		if err := sc.batch.Column(f.index, sc.column, nil); err != nil {
			return fmt.Errorf("input %q: %w", f.name, err)
		}
	}
	if n == 0 {
		return errors.New("the batch is empty; send at least one row")
	}
	return nil
}

func (m *entryModel) inputNames() string {
	names := make([]string, len(m.features))
	for i, f := range m.features {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}
