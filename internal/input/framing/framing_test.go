package framing

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// put is a message in a stream of a kind: what a producer writes.
func put(k Kind, message string) []byte {
	le, head := binary.LittleEndian, []byte(nil)
	switch k {
	case LagrangeX:
		head = []byte("8 bytes.")
	case SortID:
		head = append(le.AppendUint64(nil, 3), "abc"...)
	case KafkaDump:
		head = append(le.AppendUint64(nil, 5), "abcde8 bytes."...)
	}
	return append(le.AppendUint64(head, uint64(len(message))), message...)
}

var (
	le     = binary.LittleEndian
	zeroed = slices.Concat(make([]byte, 8), []byte("8 bytes."), le.AppendUint64(nil, 2), []byte("ab8 bytes."), le.AppendUint64(nil, 4), []byte("word"))
)

// Messages that stand one after the other come one by one, from memory and from a stream that gives a byte at a time.
func TestOneAfterTheOther(t *testing.T) {
	for k := Framed; k < Kinds; k++ {
		stream := slices.Concat(put(k, "first"), put(k, ""), put(k, "third"))
		want := []string{"first", "", "third"}
		if k == KafkaDump {
			stream, want = append(stream, zeroed...), append(want, "word")
		}
		r := iotest.OneByteReader(bytes.NewReader(stream))
		for rest := stream; len(want) > 0; want = want[1:] {
			message, more, err := k.Next(rest)
			if err != nil || string(message) != want[0] {
				t.Fatalf("%s: %q, %v; want %q", k, message, err, want[0])
			}
			read, err := k.Read(r, 64, []byte("before"))
			if err != nil || string(read) != "before"+string(rest[:len(rest)-len(more)]) {
				t.Fatalf("%s: %q, %v", k, read, err)
			}
			rest = more
		}
		if _, err := k.Read(r, 64, nil); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s ends with %v", k, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for k := Framed; k < Kinds; k++ {
		whole := put(k, "message")
		for n := range whole {
			if _, _, err := k.Next(whole[:n]); !errors.Is(err, errCut) {
				t.Errorf("%s, %d bytes of %d: %v", k, n, len(whole), err)
			}
			if _, err := k.Read(bytes.NewReader(whole[:n]), 64, nil); n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, %d bytes of %d read: %v", k, n, len(whole), err)
			}
		}
		if _, err := k.Read(bytes.NewReader(whole), len(whole), nil); err != nil {
			t.Errorf("%s of as many bytes as are accepted: %v", k, err)
		}
		if _, err := k.Read(bytes.NewReader(whole), len(whole)-1, nil); err == nil || !strings.Contains(err.Error(), "are accepted") {
			t.Errorf("%s of one byte more than is accepted: %v", k, err)
		}
		poison := le.AppendUint64(put(k, "")[:len(put(k, ""))-8], poisoned)
		if _, _, err := k.Next(append(poison, make([]byte, 64)...)); err == nil || !strings.Contains(err.Error(), "never written") {
			t.Errorf("%s with a place that was never written: %v", k, err)
		}
	}
	huge := le.AppendUint64(nil, 1<<40) // a size that lies takes no memory
	if allocs := testing.AllocsPerRun(1, func() { _, _ = Framed.Read(bytes.NewReader(huge), 1<<50, nil) }); allocs > 30 {
		t.Errorf("%v allocations for a size that is a lie", allocs)
	}
}

// FuzzNext: from memory and from a stream the same messages come, of the same bytes; what is cut short in one is
// cut short in the other.
func FuzzNext(f *testing.F) {
	for k := Framed; k < Kinds; k++ {
		f.Add(byte(k), slices.Concat(put(k, "first"), put(k, "second")))
	}
	f.Add(byte(KafkaDump), zeroed)
	f.Add(byte(Framed), le.AppendUint64(nil, poisoned))
	f.Add(byte(SortID), le.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, kind byte, stream []byte) {
		k := Framed + Kind(kind)%(Kinds-1)
		r := bytes.NewReader(stream)
		for rest := stream; len(rest) > 0; {
			message, more, err := k.Next(rest)
			read, same := k.Read(r, len(stream), nil)
			if (err != nil) != (same != nil) {
				t.Fatalf("%s: from memory %v, from a stream %v", k, err, same)
			}
			if err != nil {
				return
			}
			if taken := rest[:len(rest)-len(more)]; !bytes.Equal(read, taken) || !bytes.HasSuffix(taken, message) || len(taken) < 8 {
				t.Fatalf("%s: %x from memory, %x from a stream, with the message %x", k, taken, read, message)
			}
			rest = more
		}
	})
}
