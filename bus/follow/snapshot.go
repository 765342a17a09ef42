package follow

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/durable"
)

// maxSnapshot bounds what a damaged file can make us unpack.
const maxSnapshot = 4 << 30

// mark is the first line of a snapshot file; the state's canonical JSON, or what its view
// encodes it to, follows.
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

var errSum = errors.New("checksum does not match the state")

func (m mark) of(r events.Recorded) mark {
	m.Seq, m.Time, m.ID = r.Seq, r.Time, r.Header.ID
	return m
}

// writeSnapshot writes a state's JSON, compressed.
func writeSnapshot(path string, m mark, state []byte) error {
	m.SHA256 = HashBytes(state)
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return replace(path, func(f *os.File) error {
		z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		if err != nil {
			return err
		}
		for _, b := range [][]byte{head, {'\n'}, state} {
			if _, err := z.Write(b); err != nil {
				return err
			}
		}
		return z.Close()
	})
}

// writeEncoded writes a state in the view's own form, as it comes: neither the memory
// nor the time for a second copy is there.
func writeEncoded(path string, m mark, state func(io.Writer) error) error {
	began := false
	err := replace(path, func(f *os.File) error {
		began = true
		m.SHA256 = HashBytes(nil) // of the length that the final one has
		head, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if _, err := f.Write(append(head, '\n')); err != nil {
			return err
		}
		sum := sha256.New()
		if err := state(io.MultiWriter(f, sum)); err != nil {
			return err
		}
		m.SHA256 = hex.EncodeToString(sum.Sum(nil))
		if head, err = json.Marshal(m); err != nil {
			return err
		}
		_, err = f.WriteAt(head, 0)
		return err
	})
	if !began {
		_ = state(refusal{err}) // it holds on to the state until it has run
	}
	return err
}

// refusal is a writer that takes nothing.
type refusal struct{ err error }

func (r refusal) Write([]byte) (int, error) { return 0, r.err }

// readEncoded reads what writeEncoded wrote.
func readEncoded[S any](path string, want mark, decode func(io.Reader) (S, error)) (m mark, s S, err error) {
	f, err := os.Open(path)
	if err != nil {
		return mark{}, s, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	head, err := r.ReadSlice('\n')
	if err != nil {
		return mark{}, s, err
	}
	if m, err = readMark(head, want); err != nil {
		return mark{}, s, err
	}
	var sum string
	var failed error
	var summing sync.WaitGroup // beside the decoding, which takes longer
	summing.Go(func() {
		h := sha256.New()
		_, failed = io.Copy(h, io.NewSectionReader(f, int64(len(head)), math.MaxInt64-int64(len(head))))
		sum = hex.EncodeToString(h.Sum(nil))
	})
	s, err = decode(r)
	summing.Wait()
	if err = errors.Join(err, failed); err == nil && sum != m.SHA256 {
		err = errSum
	}
	if err != nil {
		return mark{}, s, err
	}
	return m, s, nil
}

// replace writes path anew; a crash leaves the old file or the new one. Its folder is made.
func replace(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Replace(path, 0o600, write)
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
	m, err := readMark(head, want)
	if err != nil {
		return mark{}, nil, err
	}
	if HashBytes(state) != m.SHA256 {
		return mark{}, nil, errSum
	}
	return m, state, nil
}

func readMark(head []byte, want mark) (m mark, err error) {
	if err := json.Unmarshal(head, &m); err != nil {
		return mark{}, err
	}
	if m.View != want.View || m.BZID != want.BZID || m.Version != want.Version {
		return mark{}, fmt.Errorf("%w: %s@%s version %d", errStale, m.View, m.BZID, m.Version)
	}
	return m, nil
}
