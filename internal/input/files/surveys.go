package files

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/monolith-go/monolith/internal/vfs"
)

// Surveys makes each survey once for all roles of a process. A nil one makes every survey anew.
type Surveys struct {
	mu   sync.Mutex // held while files are read: who wants the same ones waits
	key  [sha256.Size]byte
	last *Set
}

// Survey is [Survey] with epochs, unless the newest one was of the same files and they have not
// changed since.
func (s *Surveys) Survey(ctx context.Context, layout Layout, paths []string, partitions, epochs int) (*Set, error) {
	if s == nil {
		set, err := Survey(ctx, layout, paths, partitions)
		if err != nil {
			return nil, err
		}
		return set.times(epochs), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := keyOf(layout, paths, partitions)
	if err != nil {
		return nil, err
	}
	if s.last == nil || key != s.key {
		set, err := Survey(ctx, layout, paths, partitions)
		if err != nil {
			return nil, err
		}
		s.key, s.last = key, set
	}
	return s.last.times(epochs), nil
}

// keyOf changes with whatever a survey depends on.
func keyOf(layout Layout, paths []string, partitions int) (key [sha256.Size]byte, err error) {
	sum := sha256.New()
	fmt.Fprintln(sum, layout, partitions)
	for _, p := range paths {
		info, err := vfs.Stat(p)
		if err != nil {
			return key, err
		}
		fmt.Fprintf(sum, "%q %d %d\n", p, info.Size(), info.ModTime().UnixNano())
	}
	sum.Sum(key[:0])
	return key, nil
}

// times is the set whose files follow one another so often. The hash is the same: a job that has
// learnt them twice may go on to a third time.
func (s *Set) times(epochs int) *Set {
	t := *s
	t.parts, t.ends = make([][]*file, len(s.parts)), make([]int64, len(s.ends))
	for p, files := range s.parts {
		for range max(epochs, 1) {
			t.parts[p] = append(t.parts[p], files...)
			t.ends[p] += s.ends[p]
		}
	}
	return &t
}
