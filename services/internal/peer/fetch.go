package peer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/retry"
)

const (
	perSource = 2 // pieces that one source sends at a time
	maxMisses = 3 // in a row, after which a source is given up for this fetch
)

// Fetch brings the files of an offer into dir, of which an earlier fetch may have left a part. It
// returns once every file is there, has its checksum and is on disk; what is not whole stays
// for the next fetch of the same offer.
func (c *Client) Fetch(ctx context.Context, dir *os.Root, o Offer) (err error) {
	j := &job{client: c, offer: o, dir: dir, changed: make(chan struct{})}
	defer func() { err = errors.Join(err, j.close()) }()
	if err := j.open(ctx); err != nil {
		return err
	}
	ctx, j.stop = context.WithCancelCause(ctx)
	defer j.stop(nil)
	var workers sync.WaitGroup
	for _, s := range o.Sources {
		j.sources = append(j.sources, &source{Source: s})
	}
	for _, src := range j.sources {
		for range perSource {
			workers.Go(func() { j.work(ctx, src) })
		}
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if j.left > 0 {
		return fmt.Errorf("no source is left that sends %d of %d files: %w", j.left, len(j.files), errors.Join(j.errs...))
	}
	return j.finish()
}

// job is one fetch.
type job struct {
	client *Client
	offer  Offer
	dir    *os.Root
	stop   context.CancelCauseFunc // with an error of this host's

	mu      sync.Mutex // guards what follows
	files   []*file
	left    int // files that are not whole
	sources []*source
	errs    []error // of sources that were given up
	journal *os.File
	changed chan struct{} // closed and made anew when there may be something to do
}

type source struct {
	Source
	misses int // in a row
	gone   bool
}

type file struct {
	File
	index  int
	step   int64 // of its pieces
	f      *os.File
	pieces []piece
	have   int
	whole  bool
	round  int              // rises when the file is begun again
	from   map[*source]bool // who sent pieces of this round; nil is an earlier fetch
	only   *source          // who alone may send this round; nil: everybody
}

type piece struct {
	there   bool
	asked   []*source // who is sending it
	cancels []context.CancelFunc
}

// at is where piece i begins, and how long it is.
func (f *file) at(i int) (from, size int64) {
	from = int64(i) * f.step
	return from, min(f.step, f.Size-from)
}

// pieces is how many of step bytes make up size.
func pieces(size, step int64) int64 {
	n := size / step
	if size%step > 0 {
		n++
	}
	return n
}

// open makes the files, and takes over what an earlier fetch has written of them.
func (j *job) open(ctx context.Context) (err error) {
	step := j.client.conf.Piece
	for i, f := range j.offer.Files {
		if at := path.Dir(f.Name); at != "." {
			if err := j.dir.MkdirAll(filepath.FromSlash(at), 0o755); err != nil {
				return err
			}
		}
		x := &file{File: f, index: i, step: step, pieces: make([]piece, pieces(f.Size, step)), from: map[*source]bool{}}
		j.files, j.left = append(j.files, x), j.left+1
		if x.f, err = j.dir.OpenFile(filepath.FromSlash(f.Name), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
			return err
		}
		if err := x.f.Truncate(f.Size); err != nil {
			return err
		}
	}
	var records []record
	if j.journal, records, err = openJournal(j.dir); err != nil {
		return err
	}
	last := map[[2]uint32]uint32{} // of a file and piece, the newest sum
	for _, r := range records {
		if r.piece != forgotten {
			last[[2]uint32{r.file, r.piece}] = r.sum
			continue
		}
		for k := range last {
			if k[0] == r.file {
				delete(last, k)
			}
		}
	}
	buf := make([]byte, step)
	for k, sum := range last {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if int(k[0]) >= len(j.files) || int(k[1]) >= len(j.files[k[0]].pieces) {
			continue // of another build's pieces
		}
		f, i := j.files[k[0]], int(k[1])
		from, size := f.at(i)
		data := buf[:size]
		if _, err := f.f.ReadAt(data, from); err == nil && crc32.Checksum(data, castagnoli) == sum {
			f.pieces[i].there, f.have = true, f.have+1
			f.from[nil] = true
		}
	}
	for _, f := range j.files {
		if f.have == len(f.pieces) {
			if err := j.judge(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// close leaves nothing open; what is on disk stays.
func (j *job) close() (err error) {
	for _, f := range j.files {
		if f.f != nil {
			err = errors.Join(err, f.f.Close())
		}
	}
	if j.journal != nil {
		err = errors.Join(err, j.journal.Close())
	}
	return err
}

// work fetches pieces of one source until nothing is left to do for it.
func (j *job) work(ctx context.Context, src *source) {
	pauses := retry.New(j.client.conf.Pause, 50*j.client.conf.Pause)
	for {
		t, ok := j.take(ctx, src)
		if !ok {
			return
		}
		from, size := t.f.at(t.i)
		data, err := j.client.piece(t.ctx, src.Source, j.offer.ask, t.f.File, from, size)
		t.cancel()
		if err == nil {
			pauses.Reset()
			if err := j.put(ctx, src, t, data); err != nil {
				j.stop(err)
				return
			}
			continue
		}
		if j.miss(ctx, src, t, err) && pauses.Wait(ctx) != nil {
			return
		}
	}
}

// task is a piece that a source was asked for.
type task struct {
	f      *file
	i      int
	round  int
	ctx    context.Context
	cancel context.CancelFunc
}

// take finds what src can be asked for: a piece that nobody sends, else one that one other source
// is sending, which may be slow. It waits while there may be something later.
func (j *job) take(ctx context.Context, src *source) (t task, ok bool) {
	for {
		j.mu.Lock()
		if j.left == 0 || src.gone || ctx.Err() != nil {
			j.mu.Unlock()
			return t, false
		}
		for senders := range 2 {
			for _, f := range j.files {
				if f.whole || f.only != nil && f.only != src {
					continue
				}
				for i := range f.pieces {
					p := &f.pieces[i]
					if p.there || len(p.asked) != senders || slices.Contains(p.asked, src) {
						continue
					}
					t = task{f: f, i: i, round: f.round}
					t.ctx, t.cancel = context.WithCancel(ctx)
					p.asked, p.cancels = append(p.asked, src), append(p.cancels, t.cancel)
					j.mu.Unlock()
					return t, true
				}
			}
		}
		changed := j.changed
		j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// wake has all who wait look again. The caller holds j.mu.
func (j *job) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// release takes src off a piece. The caller holds j.mu.
func (t task) release(src *source) (p *piece, current bool) {
	p = &t.f.pieces[t.i]
	if t.round != t.f.round {
		return p, false
	}
	if i := slices.Index(p.asked, src); i >= 0 {
		p.asked, p.cancels = slices.Delete(p.asked, i, i+1), slices.Delete(p.cancels, i, i+1)
	}
	return p, true
}

// miss notes that src did not send a piece. It says whether src is to be asked again after a
// pause; a source whose piece came from another meanwhile did nothing wrong.
func (j *job) miss(ctx context.Context, src *source, t task, err error) (pause bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, current := t.release(src)
	defer j.wake()
	if !current || p.there || ctx.Err() != nil {
		return false
	}
	j.client.conf.Faults.WithLabelValues(unreachable).Inc()
	if src.misses++; src.misses >= maxMisses || errors.Is(err, ErrNotHere) {
		j.drop(src, err)
		return false
	}
	return true
}

// drop gives a source up. The caller holds j.mu.
func (j *job) drop(src *source, err error) {
	if src.gone {
		return
	}
	src.gone, j.errs = true, append(j.errs, err)
	j.client.conf.Log.Warn("a host is asked no more for what is fetched", "host", src.Host, "address", src.Address,
		"model", j.offer.ask.Model, "sub_model", j.offer.ask.Sub, "version", j.offer.ask.Version, "err", err)
	for _, f := range j.files {
		if f.only == src {
			f.only = nil
		}
	}
	j.wake()
}

// put writes a piece, unless another source was faster. Its error is one of this host's.
func (j *job) put(ctx context.Context, src *source, t task, data []byte) error {
	j.mu.Lock()
	p, current := t.release(src)
	src.misses = 0
	if !current || p.there {
		j.wake()
		j.mu.Unlock()
		return nil
	}
	from, _ := t.f.at(t.i)
	_, err := t.f.f.WriteAt(data, from)
	if err == nil {
		_, err = j.journal.Write(record{uint32(t.f.index), uint32(t.i), crc32.Checksum(data, castagnoli)}.append(nil))
	}
	if err != nil {
		j.mu.Unlock()
		return err
	}
	p.there, t.f.have, t.f.from[src] = true, t.f.have+1, true
	for _, cancel := range p.cancels {
		cancel()
	}
	full := t.f.have == len(t.f.pieces)
	j.wake()
	j.mu.Unlock()
	if j.client.conf.Gave != nil {
		j.client.conf.Gave(src.Source, int64(len(data)), t.f.index)
	}
	if full { // nobody else touches the file now
		return j.judge(ctx, t.f)
	}
	return nil
}

// judge compares a file that has all its pieces with its checksum. One that differs is begun again:
// if one source sent it all, without that one, else with one source alone, so that who sends what is
// not the file is found.
func (j *job) judge(ctx context.Context, f *file) error {
	sum, err := checkpoint.FileSum(ctx, j.dir.FS(), f.Name)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.wake()
	if sum == f.CRC32C {
		f.whole = true
		j.left--
		return nil
	}
	j.client.conf.Faults.WithLabelValues(corrupt).Inc()
	if len(f.from) == 1 && !f.from[nil] {
		for src := range f.from {
			j.drop(src, fmt.Errorf("%s (%s): it sent %.80q with checksum %08x where %08x was listed", src.Host, src.Address, f.Name, sum, f.CRC32C))
		}
	}
	f.pieces, f.have, f.from, f.only = make([]piece, len(f.pieces)), 0, map[*source]bool{}, nil
	f.round++
	if i := slices.IndexFunc(j.sources, func(s *source) bool { return !s.gone }); i >= 0 {
		f.only = j.sources[i]
	}
	_, err = j.journal.Write(record{uint32(f.index), forgotten, 0}.append(nil))
	return err
}

// finish has everything on disk.
func (j *job) finish() error {
	folders := map[string]bool{".": true}
	for _, f := range j.files {
		if err := f.f.Sync(); err != nil {
			return err
		}
		for dir := path.Dir(f.Name); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	if err := closeJournal(j.dir); err != nil {
		return err
	}
	for dir := range folders {
		if err := durable.SyncDir(filepath.Join(j.dir.Name(), filepath.FromSlash(dir))); err != nil {
			return err
		}
	}
	return nil
}
