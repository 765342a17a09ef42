package checkpoint

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// An entry's further files stay within its folder, and none takes the place of its own.
func TestFilesOfAnEntry(t *testing.T) {
	for name, size := range map[string]int{"": 1, "../x": 1, "/x": 1, "a/../x": 1, "a//x": 1, ManifestName: 1, specName: 1, denseName: 1, "large": maxSmall + 1} {
		e := &Entry{Spec: modelspec.MovieRanking(), Version: 1, Shards: 1, Dense: map[string]Variable{"b": {Values: []float32{42}}}, Files: map[string][]byte{name: make([]byte, size)}}
		if err := WriteEntry(filepath.Join(t.TempDir(), "1"), e); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q of %d bytes: %v", name, size, err)
		}
	}
}
