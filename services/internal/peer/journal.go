package peer

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
)

const (
	// ownFiles begins the names of this package's files in a folder that is not whole yet.
	ownFiles    = ".fetch-"
	journalName = ".fetch-journal"
	recordSize  = 16
	// forgotten as a record's piece: all pieces of the file before it count no more.
	forgotten = 1<<32 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record says that a piece of a file was written, with the checksum of its bytes. Nothing is
// synced before the end: the checksum tells, after a power cut, whether the bytes are there.
type record struct{ file, piece, sum uint32 }

func (r record) append(to []byte) []byte {
	from := len(to)
	for _, v := range []uint32{r.file, r.piece, r.sum} {
		to = binary.LittleEndian.AppendUint32(to, v)
	}
	return binary.LittleEndian.AppendUint32(to, crc32.Checksum(to[from:], castagnoli))
}

// decodeJournal reads records up to the first that is torn.
func decodeJournal(data []byte) (records []record) {
	for ; len(data) >= recordSize; data = data[recordSize:] {
		if crc32.Checksum(data[:12], castagnoli) != binary.LittleEndian.Uint32(data[12:]) {
			break
		}
		records = append(records, record{binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:]), binary.LittleEndian.Uint32(data[8:])})
	}
	return records
}

// openJournal opens the journal of a folder, and returns what stands in it. A torn end is cut off.
func openJournal(dir *os.Root) (_ *os.File, _ []record, err error) {
	f, err := dir.OpenFile(journalName, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, nil, err
	}
	records := decodeJournal(data)
	end := int64(len(records) * recordSize)
	if err := f.Truncate(end); err != nil {
		return nil, nil, err
	}
	_, err = f.Seek(end, io.SeekStart)
	return f, records, err
}

// closeJournal removes it: the folder is whole.
func closeJournal(dir *os.Root) error {
	if err := dir.Remove(journalName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
