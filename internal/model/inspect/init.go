package inspect

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

//go:embed init.yaml
var first []byte

// Init writes a model to begin with to a new file, or to stdout for "-". A file that is there
// stays as it is.
func Init(path string, stdout io.Writer) error {
	if path == "-" {
		_, err := stdout.Write(first)
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: name another file, or remove it", path)
	} else if err != nil {
		return err
	}
	_, err = f.Write(first)
	return errors.Join(err, f.Close())
}
