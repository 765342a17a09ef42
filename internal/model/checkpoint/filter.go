package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

// filterChunk is how much of a filter's state goes into one record.
const filterChunk = 1 << 20

// filterInfos lists the filters by table.
func filterInfos(s *Shard) ([]FilterInfo, error) {
	var infos []FilterInfo
	for i, name := range slices.Sorted(maps.Keys(s.Filters)) {
		if _, ok := s.Tables[name]; !ok && !slices.ContainsFunc(s.Manifest.Tables, func(t TableInfo) bool { return t.Name == name }) {
			return nil, fmt.Errorf("%w: there is a filter of table %q and no such table", ErrInvalid, name)
		}
		state := s.Filters[name]
		sum := sha256.Sum256(state)
		infos = append(infos, FilterInfo{Table: name, File: fmt.Sprintf("filter-%05d.tfrecord", i), Bytes: uint64(len(state)), Hash: hex.EncodeToString(sum[:])})
	}
	return infos, nil
}

func writeFilter(w *tfrecord.Writer, state []byte) error {
	for chunk := range slices.Chunk(state, filterChunk) {
		if err := w.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// readFilter reads what writeFilter wrote, which must be exactly what f tells.
func (d *folder) readFilter(files map[string]uint32, f *FilterInfo) (state []byte, err error) {
	err = d.readRecords(f.File, files, func(r *tfrecord.Reader) error {
		for {
			chunk, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			state = append(state, chunk...)
		}
		sum := sha256.Sum256(state)
		if got := hex.EncodeToString(sum[:]); uint64(len(state)) != f.Bytes || got != f.Hash {
			return fmt.Errorf("it holds %d bytes that hash to %s where the manifest says %d and %s", len(state), got, f.Bytes, f.Hash)
		}
		return nil
	})
	return state, err
}
