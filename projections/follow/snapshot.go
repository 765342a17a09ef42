package follow

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/events"
)

// maxSnapshot bounds what a damaged file can make us unpack.
const maxSnapshot = 4 << 30

// mark is the first line of a snapshot file; the state's canonical JSON follows.
// Time and ID are the record's at Seq: they prove that the log is still the one which
// the state was folded from.
type mark struct {
	View    string    `json:"view"`
	BZID    string    `json:"bzid,omitempty"`
	Version int       `json:"version"`
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	ID      string    `json:"id"`
	SHA256  string    `json:"sha256"`
}

// errStale says that a snapshot is whole and of no use to this build.
var errStale = errors.New("snapshot is of another view or fold version")

func (m mark) of(r events.Recorded) mark {
	m.Seq, m.Time, m.ID = r.Seq, r.Time, r.Header.ID
	return m
}

// writeSnapshot replaces path atomically: a crash leaves the old file or the new one.
func writeSnapshot(path string, m mark, state []byte) (err error) {
	m.SHA256 = HashBytes(state)
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	for _, b := range [][]byte{head, {'\n'}, state} {
		if _, err := z.Write(b); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// sweep removes what crashes left of unfinished snapshots. Followers may share a folder,
// so it spares whatever somebody could still be writing.
func sweep(path string, now time.Time) error {
	left, err := filepath.Glob(path + ".tmp*")
	for _, file := range left {
		if info, e := os.Stat(file); e == nil && now.Sub(info.ModTime()) > time.Hour {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readSnapshot returns the mark and the state bytes. Errors: fs.ErrNotExist, errStale,
// or what is wrong with the file.
func readSnapshot(path string, want mark) (mark, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return mark{}, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return mark{}, nil, err
	}
	all, err := io.ReadAll(io.LimitReader(z, maxSnapshot))
	if err != nil {
		return mark{}, nil, err
	}
	head, state, ok := bytes.Cut(all, []byte("\n"))
	if !ok {
		return mark{}, nil, io.ErrUnexpectedEOF
	}
	var m mark
	if err := json.Unmarshal(head, &m); err != nil {
		return mark{}, nil, err
	}
	if m.View != want.View || m.BZID != want.BZID || m.Version != want.Version {
		return mark{}, nil, fmt.Errorf("%w: %s@%s version %d", errStale, m.View, m.BZID, m.Version)
	}
	if HashBytes(state) != m.SHA256 {
		return mark{}, nil, errors.New("checksum does not match the state")
	}
	return m, state, nil
}
