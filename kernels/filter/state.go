package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The state of a filter is
//
//	"MFIL", version (1), kind, the kind's body, CRC-32C of all before it
//
// with numbers little-endian, or as varints where the body says so.
const (
	magic   = "MFIL"
	version = 1

	kindNone          = 0
	kindSliding       = 1
	kindProbabilistic = 2
)

// ErrState is in every error of UnmarshalBinary.
var ErrState = errors.New("filter: the saved state cannot be used")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func begin(kind byte) []byte { return append([]byte(magic), version, kind) }

func seal(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// reader takes a body apart; after its first failure it returns zeros.
type reader struct {
	b   []byte
	err error
}

func open(data []byte, kind byte) (*reader, error) {
	if len(data) < len(magic)+6 || string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it is no filter's: give the file that the checkpoint wrote for it", ErrState)
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: its checksum is wrong, so bytes were lost or changed: restore an older checkpoint, or start without a filter's state", ErrState)
	}
	if v := body[len(magic)]; v != version {
		return nil, fmt.Errorf("%w: it has version %d, this program reads %d: restore with the program that wrote it", ErrState, v, version)
	}
	if k := body[len(magic)+1]; k != kind {
		return nil, fmt.Errorf("%w: it belongs to another kind of filter (%d, not %d): keep the kind, or start without the state", ErrState, k, kind)
	}
	return &reader{b: body[len(magic)+2:]}, nil
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrState}, args...)...)
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("it ends early")
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail("%d bytes stand behind its end", len(r.b))
	}
	return r.err
}
