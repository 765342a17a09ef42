package inspect

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/monolith-go/monolith/docs/models"
)

//go:embed init.yaml
var first []byte

// Init writes a model to begin with to a new file, or to stdout for "-": the ready model of that name, or with
// none a DeepFM with a word on each part. A file that is there stays as it is.
func Init(path, like string, stdout io.Writer) error {
	text := first
	if like != "" {
		var err error
		if text, err = models.Text(like); err != nil {
			return err
		}
	}
	if path == "-" {
		_, err := stdout.Write(text)
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: name another file, or remove it", path)
	} else if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
