package tree

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// A number that a field cannot hold is damage; the least and the greatest that it can are not.
func TestDecoderRefusesNumbersOutOfRange(t *testing.T) {
	for v, ok := range map[int64]bool{
		math.MinInt32: true, math.MaxInt32: true, 0: true, -1: true,
		math.MinInt32 - 1: false, math.MaxInt32 + 1: false, math.MinInt64: false, math.MaxInt64: false,
	} {
		d := &decoder{r: bufio.NewReader(bytes.NewReader(binary.AppendVarint(nil, v)))}
		if got := d.int32(); (d.err == nil) != ok || ok && int64(got) != v || !ok && !errors.Is(d.err, errSnapshot) {
			t.Errorf("%d: %d, %v", v, got, d.err)
		}
	}
}

// A long string is read to its end and no further.
func TestDecoderReadsPieceByPiece(t *testing.T) {
	for _, n := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 5} {
		in := bytes.Repeat([]byte("ab"), n/2+1)[:n]
		d := &decoder{r: bufio.NewReader(bytes.NewReader(append(bytes.Clone(in), 'z')))}
		if got := d.bytes(n); d.err != nil || !bytes.Equal(got, in) || d.byte() != 'z' || d.err != nil {
			t.Errorf("%d bytes: %d, %v", n, len(got), d.err)
		}
		short := &decoder{r: bufio.NewReader(bytes.NewReader(in))}
		if short.bytes(n + 1); !errors.Is(short.err, errSnapshot) {
			t.Errorf("one of %d bytes is missing: %v", n+1, short.err)
		}
	}
}
