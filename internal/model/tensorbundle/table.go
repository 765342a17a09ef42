package tensorbundle

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/snappy"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

// The index is a sorted table as LevelDB has them: blocks of keys and values with a checksum
// each, a block of where those lie, and a footer that says where that one is.
const (
	footerSize  = 48
	trailerSize = 5 // of a block: how it is packed, and its checksum
	tableMagic  = 0xdb4775248b80fb57
	blockSize   = 256 << 10
	maxBlock    = 64 << 20 // unpacked

	plain  = 0
	packed = 1 // by snappy
)

var errBlock = errors.New("is no block of a sorted table")

// pair is a key with its value.
type pair struct {
	key   string
	value []byte
}

// appendTable encodes pairs, which ascend by key.
func appendTable(b []byte, pairs []pair) []byte {
	var places []pair
	for len(pairs) > 0 {
		n, size := 0, 0
		for n < len(pairs) && size < blockSize {
			size += len(pairs[n].key) + len(pairs[n].value) + 12
			n++
		}
		var handle []byte
		b, handle = appendBlock(b, pairs[:n])
		places = append(places, pair{pairs[n-1].key, handle})
		pairs = pairs[n:]
	}
	b, meta := appendBlock(b, nil)
	b, index := appendBlock(b, places)
	footer := append(meta, index...)
	footer = append(footer, make([]byte, footerSize-8-len(footer))...)
	return append(b, binary.LittleEndian.AppendUint64(footer, tableMagic)...)
}

// appendBlock encodes pairs as one block, each with its whole key, and returns where it lies.
func appendBlock(b []byte, pairs []pair) (out, handle []byte) {
	start := len(b)
	restarts := []uint32{0}
	for i, p := range pairs {
		if i > 0 {
			restarts = append(restarts, uint32(len(b)-start))
		}
		b = binary.AppendUvarint(b, 0)
		b = binary.AppendUvarint(b, uint64(len(p.key)))
		b = binary.AppendUvarint(b, uint64(len(p.value)))
		b = append(append(b, p.key...), p.value...)
	}
	for _, r := range restarts {
		b = binary.LittleEndian.AppendUint32(b, r)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(restarts)))
	handle = binary.AppendUvarint(nil, uint64(start))
	handle = binary.AppendUvarint(handle, uint64(len(b)-start))
	b = append(b, plain)
	return binary.LittleEndian.AppendUint32(b, tfrecord.Masked(b[start:])), handle
}

// readTable decodes what appendTable and TensorFlow write.
func readTable(data []byte) ([]pair, error) {
	if len(data) < footerSize {
		return nil, fmt.Errorf("it has %d bytes, a footer alone has %d: it is cut short", len(data), footerSize)
	}
	footer := data[len(data)-footerSize:]
	if binary.LittleEndian.Uint64(footer[footerSize-8:]) != tableMagic {
		return nil, errors.New("it does not end as the index of a tensor bundle does: it is cut short, or another file")
	}
	data = data[:len(data)-footerSize]
	_, _, rest, err := readHandle(footer)
	if err != nil {
		return nil, fmt.Errorf("its footer %w", err)
	}
	places, _, err := readBlockAt(data, rest)
	if err != nil {
		return nil, fmt.Errorf("its index block %w", err)
	}
	var pairs []pair
	for i, p := range places {
		some, at, err := readBlockAt(data, p.value)
		if err != nil {
			return nil, fmt.Errorf("block %d at byte %d %w", i, at, err)
		}
		pairs = append(pairs, some...)
	}
	for i := 1; i < len(pairs); i++ {
		if pairs[i-1].key >= pairs[i].key {
			return nil, fmt.Errorf("entry %d, %q, stands behind %q", i, pairs[i].key, pairs[i-1].key)
		}
	}
	return pairs, nil
}

func readHandle(b []byte) (offset, size uint64, rest []byte, err error) {
	offset, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, nil, errBlock
	}
	size, k := binary.Uvarint(b[n:])
	if k <= 0 {
		return 0, 0, nil, errBlock
	}
	return offset, size, b[n+k:], nil
}

// readBlockAt reads the block that handle names.
func readBlockAt(data, handle []byte) (pairs []pair, at uint64, err error) {
	at, size, _, err := readHandle(handle)
	if err != nil {
		return nil, at, err
	}
	if at > uint64(len(data)) || size > uint64(len(data))-at || uint64(len(data))-at-size < trailerSize {
		return nil, at, fmt.Errorf("of %d bytes does not lie in the file", size)
	}
	block, trailer := data[at:at+size], data[at+size:at+size+trailerSize]
	if tfrecord.Masked(data[at:at+size+1]) != binary.LittleEndian.Uint32(trailer[1:]) {
		return nil, at, errors.New("has the wrong checksum")
	}
	switch trailer[0] {
	case plain:
	case packed:
		if n, err := snappy.DecodedLen(block); err != nil || n > maxBlock {
			return nil, at, fmt.Errorf("unpacks to more than %d bytes, or not at all", maxBlock)
		}
		if block, err = snappy.Decode(nil, block); err != nil {
			return nil, at, fmt.Errorf("is not packed by snappy: %w", err)
		}
	default:
		return nil, at, fmt.Errorf("is packed in the unknown way %d", trailer[0])
	}
	pairs, err = readBlock(block)
	return pairs, at, err
}

func readBlock(b []byte) (pairs []pair, err error) {
	if len(b) < 4 {
		return nil, errBlock
	}
	restarts := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	if restarts > uint64(len(b)-4)/4 {
		return nil, errBlock
	}
	b = b[:len(b)-4-4*int(restarts)]
	key := ""
	for len(b) > 0 {
		var n [3]uint64 // bytes of the key before, further ones, and of the value
		for i := range n {
			v, k := binary.Uvarint(b)
			if k <= 0 {
				return nil, errBlock
			}
			n[i], b = v, b[k:]
		}
		if n[0] > uint64(len(key)) || n[1] > uint64(len(b)) || n[2] > uint64(len(b))-n[1] {
			return nil, errBlock
		}
		key = key[:n[0]] + string(b[:n[1]])
		pairs = append(pairs, pair{key, b[n[1] : n[1]+n[2]]})
		b = b[n[1]+n[2]:]
	}
	return pairs, nil
}
