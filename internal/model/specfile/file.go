package specfile

import (
	"fmt"
	"io"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/vfs"
)

// Read reads a model's YAML spec from the file at path, or from stdin for "-". A condition's in_file names
// a file as from the spec's folder; the spec that is returned has what is in it.
func Read(path string, stdin io.Reader) (*model.ModelSpec, error) {
	from, dir := stdin, "."
	if path != "-" {
		f, err := vfs.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from, dir = f, vfs.Dir(path)
	}
	text, err := io.ReadAll(io.LimitReader(from, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes, which no spec is", path, MaxBytes)
	}
	spec, err := parse(text, listsIn(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return spec, nil
}
