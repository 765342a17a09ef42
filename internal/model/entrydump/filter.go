package entrydump

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

// The file of a filter's state is a record file:
//
//	"MLFS", version (1), length of the state (8 bytes little endian)
//	the state, up to 1 MiB a record
//	SHA-256 of the state
const (
	filterMagic   = "MLFS"
	filterVersion = 1
	filterChunk   = 1 << 20
)

// ErrForeign: the file is a filter's of the original, whose cells lie where a hash put
// them that is drawn anew in every process. It is of no use to anybody: start empty.
var ErrForeign = errors.New("filter file is of the original")

// FilterName is the name of the set that holds the filter of a server's tables.
func FilterName(ps int) string { return fmt.Sprintf("hash_filter_%d", ps) }

// SaveFilter writes the state of f as the set at path, of one file.
func SaveFilter(path string, f encoding.BinaryMarshaler, o Options) error {
	state, err := f.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	dir, base := split(path)
	err = writeSet(o.files, 1, dir, base, []part{{ShardName(base, 0, 1), func(w io.Writer) (n uint64, err error) {
		records := tfrecord.NewWriter(w)
		head := binary.LittleEndian.AppendUint64(append([]byte(filterMagic), filterVersion), uint64(len(state)))
		sum := sha256.Sum256(state)
		all := append([][]byte{head}, slices.Collect(slices.Chunk(state, filterChunk))...)
		for _, b := range append(all, sum[:]) {
			if err := records.Write(b); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}}})
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}

// RestoreFilter hands the state at path to f, which checks it again and stays as it was
// if it refuses. fs.ErrNotExist, ErrIncomplete, ErrCorrupt, ErrMismatch and ErrForeign
// tell the failures apart.
func RestoreFilter(path string, f encoding.BinaryUnmarshaler) error {
	s, err := openSet(split(path))
	if err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	var state []byte
	err = s.read(ShardName(s.base, 0, s.shards), func(r io.Reader) (n uint64, err error) {
		records := tfrecord.NewReader(r, maxRecord)
		next := func() ([]byte, error) {
			b, err := records.Next()
			if errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("%w: it ends before the state does", ErrCorrupt)
			}
			n++
			return b, broken(err)
		}
		head, err := next()
		if err != nil {
			return n, err
		}
		if len(head) < len(filterMagic)+1 || string(head[:len(filterMagic)]) != filterMagic {
			return n, ErrForeign
		}
		if v := head[len(filterMagic)]; v != filterVersion || len(head) != len(filterMagic)+9 {
			return n, fmt.Errorf("%w: it has version %d, this program reads %d: restore with the program that wrote it", ErrMismatch, v, filterVersion)
		}
		size := binary.LittleEndian.Uint64(head[len(filterMagic)+1:])
		for uint64(len(state)) < size {
			b, err := next()
			if err != nil {
				return n, err
			}
			if len(b) == 0 || uint64(len(b)) > size-uint64(len(state)) {
				return n, fmt.Errorf("%w: its state is not the %d bytes it claims", ErrCorrupt, size)
			}
			state = append(state, b...)
		}
		sum, err := next()
		if err != nil {
			return n, err
		}
		if got := sha256.Sum256(state); string(got[:]) != string(sum) {
			return n, fmt.Errorf("%w: the checksum of the state is wrong", ErrCorrupt)
		}
		if _, err := records.Next(); !errors.Is(err, io.EOF) {
			return n, fmt.Errorf("%w: it goes on behind its end", ErrCorrupt)
		}
		return n, nil
	})
	if err != nil {
		return fmt.Errorf("restore %w", err)
	}
	if s.shards != 1 {
		return fmt.Errorf("restore %s: %w: %d files where a filter has one", path, ErrCorrupt, s.shards)
	}
	return f.UnmarshalBinary(state)
}
