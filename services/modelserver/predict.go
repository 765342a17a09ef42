package modelserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/dense"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const outputName = "score"

// scratch is the memory of one Predict, used again by the next.
type scratch struct {
	ws     dense.Workspace
	x      []float32
	column []int64
	fids   []int64           // feature-major: feature f, row r at f*n+r
	at     []int32           // of the same element: place in its shard's id list of its table
	seen   []map[int64]int32 // per table: feature id -> at
	shards []shardScratch
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

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

// score answers a batch: ids to rows to tower to sigmoid. The scores are a fresh slice.
// With rec, what the answer stood on is handed to it before the scratch is given back.
func (s *Server) score(ctx context.Context, m *entryModel, inputs map[string]*tfserving.TensorProto, rec *recorder) ([]float32, error) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	n, err := sc.read(m, inputs, s.cfg.MaxBatch)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	sc.group(m, n, rec != nil)
	if err := s.lookup(ctx, m, sc); err != nil {
		return nil, err
	}
	sc.gather(m, n)
	p := m.params.Load()
	tower, err := p.frozen()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.model, err)
	}
	logits, err := tower.Forward(sc.x, n, &sc.ws)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.model, err)
	}
	scores := make([]float32, n)
	for i, z := range logits {
		scores[i] = dense.Sigmoid(z)
	}
	if rec != nil {
		rec.take(m, sc, n, p.seq, scores)
	}
	return scores, nil
}

// read turns the input tensors into feature ids; all must have the same number of rows.
func (sc *scratch) read(m *entryModel, inputs map[string]*tfserving.TensorProto, limit int) (n int, err error) {
	if len(inputs) != len(m.features) {
		return 0, fmt.Errorf("input size does not match signature: %d inputs {%s}, the signature has %d: {%s}",
			len(inputs), strings.Join(slices.Sorted(maps.Keys(inputs)), ", "), len(m.features), m.inputNames())
	}
	n = -1
	sc.fids = sc.fids[:0]
	for i := range m.features {
		f := &m.features[i]
		t, ok := inputs[f.name]
		if !ok {
			return 0, fmt.Errorf("input %q is missing; the signature has {%s}", f.name, m.inputNames())
		}
		rows, err := tfserving.Rows(t, limit)
		if err != nil {
			return 0, fmt.Errorf("input %q: %w", f.name, err)
		}
		if n < 0 {
			n = rows
		}
		if sc.column, err = tfserving.Int64s(sc.column[:0], t, limit); err != nil {
			return 0, fmt.Errorf("input %q: %w", f.name, err)
		}
		if rows != n || len(sc.column) != n || len(t.GetTensorShape().GetDim()) > 2 {
			return 0, fmt.Errorf("input %q has %d rows of %d ids in all, and %d dimensions; want one id for each of %d rows: shape [n] or [n, 1]", f.name, rows, len(sc.column), len(t.GetTensorShape().GetDim()), n)
		}
		for row, id := range sc.column {
			if id < 0 || id > modelspec.MaxID {
				return 0, fmt.Errorf("input %q, row %d: id %d is outside 0 to 2^48-1; hash ids to 48 bits as the training records do", f.name, row, id)
			}
			sc.fids = append(sc.fids, modelspec.FID(f.slot, id))
		}
	}
	if n == 0 {
		return 0, errors.New("the batch is empty; send at least one row")
	}
	return n, nil
}

func (m *entryModel) inputNames() string {
	names := make([]string, len(m.features))
	for i, f := range m.features {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}
