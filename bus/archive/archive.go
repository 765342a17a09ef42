// Package archive keeps the control plane's log in files of this machine: sealed,
// checksummed segments in which every event is binary already, so that a view is rebuilt
// without the log's server, and the log may be trimmed behind them.
//
// A segment is one file, written once and never changed:
//
//	"MLSEG001"
//	blocks: u32 length | u32 CRC-32C | payload   (records, then their original bytes)
//	footer: JSON | u32 length | u32 CRC-32C | "MLSEGEND"
//
// It appears under its name when it is whole and on disk. Segments follow one another
// without a gap. What a crash leaves besides is a file that no segment's name has; the
// log still holds its events.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
)

// ErrDamaged is a segment whose bytes are not those that were written.
var ErrDamaged = errors.New("archive segment is damaged")

const (
	suffix    = ".seg"
	head      = "MLSEG001"
	tail      = "MLSEGEND"
	maxFooter = 1 << 20
	maxBlock  = 64 << 20
)

// Footer describes a segment.
type Footer struct {
	First uint64    `json:"first"` // sequences of its first and last event
	Last  uint64    `json:"last"`
	Began time.Time `json:"began"` // times of the same
	Ended time.Time `json:"ended"`
	// FirstID and LastID are the ids of the same: they prove which log it is of.
	FirstID string  `json:"first_id"`
	LastID  string  `json:"last_id"`
	Blocks  []Block `json:"blocks"`
	// SHA256 is over everything before the footer.
	SHA256 string `json:"sha256"`

	at int64 // where it begins
}

// Block is where a block of records lies; their original bytes follow it.
type Block struct {
	Offset int64  `json:"offset"`
	First  uint64 `json:"first"`
	Count  int    `json:"count"`
	Raw    int64  `json:"raw"` // offset of the block of original bytes
}

// segment is a sealed file.
type segment struct {
	path string
	Footer
}

// Archive is the segments of one log in one folder. It is safe for concurrent use; one
// Writer at a time adds to it.
type Archive struct {
	dir string

	mu       sync.RWMutex
	segments []segment // by First, without a gap
}

// Open reads which segments are in dir; a folder that is not there is an empty archive.
// Files that are no whole segments are an error, and so is a gap between two.
func Open(dir string) (*Archive, error) {
	a := &Archive{dir: dir}
	if err := a.Refresh(); err != nil {
		return nil, err
	}
	return a, nil
}

// Refresh takes up the segments that others have added to the folder since.
func (a *Archive) Refresh() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries, err := os.ReadDir(a.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("archive: %w", err)
	}
	known := map[string]segment{}
	for _, s := range a.segments {
		known[s.path] = s
	}
	var all []segment
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		path := filepath.Join(a.dir, e.Name())
		s, ok := known[path]
		if !ok {
			f, err := readFooter(path)
			if err != nil {
				return fmt.Errorf("archive: %s: %w", path, err)
			}
			s = segment{path, f}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y segment) int { return cmp.Compare(x.First, y.First) })
	for i := 1; i < len(all); i++ {
		if x, y := all[i-1], all[i]; y.First != x.Last+1 {
			return fmt.Errorf("archive: %s ends at sequence %d and %s begins at %d: bring back what belongs between them, or remove the later one", x.path, x.Last, y.path, y.First)
		}
	}
	a.segments = all
	return nil
}

// Span is the first and the last sequence archived; 0 and 0: nothing is.
func (a *Archive) Span() (first, last uint64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if len(a.segments) == 0 {
		return 0, 0
	}
	return a.segments[0].First, a.segments[len(a.segments)-1].Last
}

// Segments describes what is archived, oldest first.
func (a *Archive) Segments() []Footer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make([]Footer, len(a.segments))
	for i, s := range a.segments {
		out[i] = s.Footer
	}
	return out
}

// Verify reads every byte and compares the checksums. It returns how many events it saw.
func (a *Archive) Verify() (events uint64, err error) {
	for _, s := range a.covering(1) {
		if err := verify(s); err != nil {
			return events, fmt.Errorf("archive: %s: %w", s.path, err)
		}
		events += s.Last - s.First + 1
	}
	return events, nil
}

// Covered is how far the log may be trimmed: sequence `before`, or less where the archive
// does not hold everything in front of it. The segments are read in full, and must be of
// this log.
func (a *Archive) Covered(ctx context.Context, log bus.Log, before uint64) (uint64, error) {
	if err := a.Check(ctx, log); err != nil {
		return 0, err
	}
	first, last := a.Span()
	if last == 0 || first > 1 {
		return 1, nil // something before it may be in the log alone
	}
	for _, s := range a.covering(1) {
		if s.First >= before {
			break
		}
		if err := verify(s); err != nil {
			return 0, fmt.Errorf("archive: %s: %w", s.path, err)
		}
	}
	return min(before, last+1), nil
}

// covering are the segments that hold seq or later events.
func (a *Archive) covering(seq uint64) []segment {
	a.mu.RLock()
	defer a.mu.RUnlock()
	i, _ := slices.BinarySearchFunc(a.segments, seq, func(s segment, seq uint64) int { return cmp.Compare(s.Last, seq) })
	return slices.Clone(a.segments[i:])
}

// last is the newest segment.
func (a *Archive) last() (segment, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if len(a.segments) == 0 {
		return segment{}, false
	}
	return a.segments[len(a.segments)-1], true
}

func (a *Archive) add(s segment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.segments); n == 0 || a.segments[n-1].Last < s.First { // else Refresh was quicker
		a.segments = append(a.segments, s)
	}
}

func segmentName(first, last uint64) string { return fmt.Sprintf("%020d-%020d%s", first, last, suffix) }
