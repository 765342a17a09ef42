package servables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/tfgraph"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// target is what the plan says about a model: how many serving shards its rows are
// spread over (0: as many as were exported) and whose deltas keep it fresh.
type target struct {
	planned bool
	numPS   int
	job     string
}

// servable is a sub-model as read from one export, with what it takes to keep it
// fresh. Exactly one of entry and ps is set.
type servable struct {
	entry *entry.Model
	ps    *rows.Shard
	// leave ends the use of the rowSet that ps shares with other versions.
	leave func()
	// others is how many use it besides the first; negative: nobody does any more.
	others atomic.Int64
	// own are an entry's shards that were read with it: it needs nobody else.
	own []*servable

	job       string // of the export
	shards    uint32 // training shards of the export
	syncSeq   uint64 // everything up to here is contained, for all shards read
	contained map[uint32]uint64
	epochs    map[uint32]uint64
	steps     map[uint32]uint64
	dropped   map[string]int // rows that are not finite, by table
}

// recorded is the fact of export n of the job, if g was read from the files that it tells
// of: an attempt at n of which no fact was written may lie there instead.
func recorded(j lineage.Job, n int64, g *servable) *training.ModelExported {
	var fact *training.ModelExported
	for _, e := range j.Exports {
		if e.V.GetVersion() == n {
			fact = e.V
		}
	}
	if fact == nil || g.entry != nil && g.syncSeq != fact.GetSyncSeq() {
		return nil
	}
	if g.entry != nil {
		return fact
	}
	cut := map[uint32]*training.ShardFile{}
	for _, c := range j.Checkpoints {
		if c.V.GetId() == n {
			for _, f := range c.V.GetShards() {
				cut[f.GetShard()] = f
			}
		}
	}
	for k, seq := range g.contained {
		if f := cut[k]; f == nil || f.GetSyncSeq() != seq || f.GetEpoch() != g.epochs[k] || f.GetStep() != g.steps[k] {
			return nil
		}
	}
	return fact
}

// loadError is why a version could not be loaded, with the code its status shows.
type loadError struct {
	code codes.Code
	err  error
}

func (e *loadError) Error() string { return e.err.Error() }
func (e *loadError) Unwrap() error { return e.err }

func failed(err error) *loadError {
	var l *loadError
	switch {
	case errors.As(err, &l):
		return l
	case errors.Is(err, fs.ErrNotExist):
		return &loadError{codes.NotFound, err}
	case errors.Is(err, checkpoint.ErrCorrupt):
		return &loadError{codes.DataLoss, err}
	}
	return &loadError{codes.Internal, err}
}

// ofTensorFlow is why an export cannot be read from dir: where TensorFlow's SavedModel lies in place of one, that.
func ofTensorFlow(dir string, err error) error {
	if _, none := os.Stat(filepath.Join(dir, tfgraph.FileName)); none != nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &loadError{codes.Unimplemented, fmt.Errorf("%s holds a SavedModel and no export of Monolith's: export it with this monolith, or %s", dir, byTensorFlow)}
}

// exportDirs names the places where shard j of an export may lie: beside the sub-model
// itself, ".../ps_1/7" next to ".../ps_0/7", since model-sync copies the folders of a
// version side by side; and below the plan's model directory, for shards that were
// exported but not copied here because no serving shard bears their number.
func exportDirs(basePath string, version int64, modelDir string, j int) []string {
	v := strconv.FormatInt(version, 10)
	sub := "ps_" + strconv.Itoa(j)
	dirs := []string{filepath.Join(filepath.Dir(basePath), sub, v)}
	if modelDir != "" {
		if d := filepath.Join(modelDir, sub, v); d != dirs[0] {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

func firstDir(dirs []string) (string, bool) {
	for _, d := range dirs {
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			return d, true
		}
	}
	return "", false
}

// reads bounds what is read from exports, at once by bytes of their files, and in a second.
type reads struct {
	limit int64
	sem   *semaphore.Weighted
	pace  *rate.Limiter // nil: as fast as the files come

	rowSets rowSets
}

// newReads bounds them by limit bytes at once and perSecond in a second, 0: any number.
func newReads(limit, perSecond int64) *reads {
	r := &reads{limit: limit, sem: semaphore.NewWeighted(limit)}
	if perSecond > 0 {
		r.pace = rate.NewLimiter(rate.Limit(perSecond), int(min(max(perSecond/20, 1), 1<<20)))
	}
	return r
}

// reader reads export files no faster than all loads together may.
func (r *reads) reader(ctx context.Context) checkpoint.Reader {
	if r.pace == nil {
		return checkpoint.Reader{}
	}
	return checkpoint.Reader{Through: func(f io.Reader) io.Reader { return paced{ctx, f, r.pace} }}
}

type paced struct {
	ctx  context.Context
	from io.Reader
	pace *rate.Limiter
}

func (p paced) Read(b []byte) (int, error) {
	n, err := p.from.Read(b[:min(len(b), p.pace.Burst())])
	if n > 0 {
		if late := p.pace.WaitN(p.ctx, n); late != nil {
			return 0, late
		}
	}
	return n, err
}

// take waits until the files of dir may be read. One folder alone always may.
func (r *reads) take(ctx context.Context, dir string) (done func(), err error) {
	size, err := checkpoint.DirSize(dir)
	if err != nil {
		return nil, err
	}
	size = min(max(size, 1), r.limit)
	if err := r.sem.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return func() { r.sem.Release(size) }, nil
}

// loadEntry reads an entry export.
func (r *reads) loadEntry(ctx context.Context, name, basePath string, version int64, t target) (*servable, error) {
	dir := filepath.Join(basePath, strconv.FormatInt(version, 10))
	done, err := r.take(ctx, dir)
	if err != nil {
		return nil, failed(err)
	}
	e, err := r.reader(ctx).Entry(dir)
	done()
	if err != nil {
		return nil, failed(ofTensorFlow(dir, err))
	}
	shards := t.numPS
	if shards == 0 {
		shards = int(e.Shards)
	}
	if shards < 1 || e.Shards > rows.MaxShards {
		return nil, &loadError{codes.InvalidArgument, fmt.Errorf("the export of %s names %d training shards; it must be at least 1 and at most %d", name, e.Shards, rows.MaxShards)}
	}
	m, err := entry.New(name, version, shards, e)
	if err != nil {
		return nil, &loadError{codes.InvalidArgument, err}
	}
	return &servable{entry: m, job: e.Job, shards: e.Shards, syncSeq: e.SyncSeq,
		contained: map[uint32]uint64{}, epochs: map[uint32]uint64{}}, nil
}

// loadPS reads the rows of one serving shard: its own export where as many shards were
// exported as are served, or else every export that can hold one of its ids. An id is
// in export j and on serving shard i when id = j mod exported = i mod served, which is
// possible iff i and j agree modulo their greatest common divisor.
func (r *reads) loadPS(ctx context.Context, name, basePath string, shard int, version int64, modelDir string, t target) (*servable, error) {
	find := func(j int) (string, error) {
		dirs := exportDirs(basePath, version, modelDir, j)
		if dir, ok := firstDir(dirs); ok {
			return dir, nil
		}
		return "", fmt.Errorf("shard %d of version %d is in none of %s: %w", j, version, strings.Join(dirs, ", "), fs.ErrNotExist)
	}
	first := filepath.Join(basePath, strconv.FormatInt(version, 10))
	if _, ok := firstDir([]string{first}); !ok {
		var err error
		if first, err = find(0); err != nil {
			return nil, failed(err)
		}
	}
	manifest, err := checkpoint.ReadManifest(first)
	if err != nil {
		return nil, failed(ofTensorFlow(first, err))
	}
	exported, served := int(manifest.Shards), t.numPS
	if served == 0 {
		served = exported
	}
	if exported < 1 || exported > rows.MaxShards || shard >= served {
		return nil, &loadError{codes.InvalidArgument, fmt.Errorf("%s: shard %d of %d served cannot be made of %d exported shards", name, shard, served, exported)}
	}
	set, leave := r.rowSets.enter(sharing{name, manifest.Job, shard, served})
	if err := set.turn.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	defer set.turn.Release(1)
	g := &servable{
		leave: leave,
		ps:    &rows.Shard{Shared: &set.tables, Model: name, Version: version, Job: manifest.Job, Shard: shard, Shards: served},
		job:   manifest.Job, shards: manifest.Shards, syncSeq: math.MaxUint64,
		contained: map[uint32]uint64{}, epochs: map[uint32]uint64{}, steps: map[uint32]uint64{}, dropped: map[string]int{},
	}
	if err := r.fill(ctx, g, first, int(manifest.Shard), exported, find); err != nil {
		g.release()
		return nil, failed(err)
	}
	return g, nil
}

// fill reads into g all exported shards that may have rows of it, of which first holds one.
func (r *reads) fill(ctx context.Context, g *servable, first string, is, exported int, find func(j int) (string, error)) (err error) {
	shard, served := g.ps.Shard, g.ps.Shards
	step := gcd(exported, served)
	for j := shard % step; j < exported; j += step {
		if exported == served && j != shard {
			continue
		}
		dir := first
		if is != j {
			if dir, err = find(j); err != nil {
				return err
			}
		}
		done, err := r.take(ctx, dir)
		if err != nil {
			return err
		}
		err = g.add(r.reader(ctx), dir, j, exported)
		done()
		if err != nil {
			return fmt.Errorf("read %s: %w", dir, err)
		}
	}
	return g.ps.Whole()
}

// add reads one exported shard into g.
func (g *servable) add(r checkpoint.Reader, dir string, j, exported int) error {
	begin := func(s *checkpoint.Shard) error {
		if int(s.Manifest.Shard) != j || int(s.Manifest.Shards) != exported {
			return &loadError{codes.InvalidArgument, fmt.Errorf("it holds shard %d of %d, not %d of %d; copy the export again", s.Manifest.Shard, s.Manifest.Shards, j, exported)}
		}
		for _, info := range s.Manifest.Tables {
			if err := g.ps.Declare(s.Spec, info.Name, info.Dim); err != nil {
				return err
			}
		}
		return nil
	}
	s, err := r.Shard(dir, begin, func(info *checkpoint.TableInfo, some []table.Row) error {
		n, err := g.ps.Add(info.Name, some)
		if n > 0 {
			g.dropped[info.Name] += n
		}
		return err
	})
	if err != nil {
		return err
	}
	g.contained[s.Manifest.Shard] = s.Manifest.SyncSeq
	g.epochs[s.Manifest.Shard] = s.Manifest.Epoch
	g.steps[s.Manifest.Shard] = s.Manifest.Step
	g.syncSeq = min(g.syncSeq, s.Manifest.SyncSeq)
	g.ps.Reached(s.Manifest.Step)
	return nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
