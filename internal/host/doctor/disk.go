package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/host"
)

// scarce is how many bytes of a disk are too few, however large it is.
const scarce = 1 << 30

// disk looks at the room of the data folder's disk.
func (e *examination) disk() {
	if _, err := os.Stat(e.cfg.Dir); e.cfg.Dir == "" || os.IsNotExist(err) {
		return
	}
	free, size, err := room(e.cfg.Dir)
	check := "disk of " + e.cfg.Dir
	switch {
	case err != nil:
		e.ill(check, sentence(err), "mend the folder or its disk", "the-disk-is-full")
	case size == 0: // it cannot be told here
	case free < scarce || float64(free) < (1-nearlyFull)*float64(size):
		e.ill(check, fmt.Sprintf("%d MiB of %d MiB are free.", free>>20, size>>20), "make room, or move the folder to a larger disk; archive and trim the log", "the-disk-is-full")
	default:
		e.well(check, "%d MiB of %d MiB are free.", free>>20, size>>20)
	}
}

// embedded says that NATS is the one that `up` embeds in the data folder: it syncs always.
func (e *examination) embedded() bool {
	r, err := host.ReadRunning(e.cfg.Dir)
	if err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(e.cfg.Dir, "nats")); err != nil {
		return false
	}
	return r.NATS == e.cfg.Conn.NATS
}
