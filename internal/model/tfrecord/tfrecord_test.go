package tfrecord_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

func encode(t testing.TB, records ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b)
	for _, r := range records {
		if err := w.Write([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func decode(r io.Reader, limit int) (records []string, err error) {
	rd := tfrecord.NewReader(r, limit)
	for {
		data, err := rd.Next()
		if err != nil {
			if _, again := rd.Next(); again != err {
				return nil, errors.New("the error did not stay")
			}
			return records, err
		}
		records = append(records, string(data))
	}
}

// The bytes that TensorFlow writes for the record "abc", and the published check value
// of CRC-32C, e3069283 for "123456789", masked.
func TestKnownBytes(t *testing.T) {
	if got := tfrecord.Masked([]byte("123456789")); got != 0xc78ab0e5 {
		t.Errorf("masked checksum %08x", got)
	}
	if got := hex.EncodeToString(encode(t, "abc")); got != "0300000000000000b099490e6162636e57f121" {
		t.Errorf("record %s", got)
	}
}

func TestRoundTrip(t *testing.T) {
	want := []string{"", "a", strings.Repeat("x", 3<<20), "", "end"}
	data := encode(t, want...)
	for name, r := range map[string]io.Reader{
		"whole":         bytes.NewReader(data),
		"halves":        iotest.HalfReader(bytes.NewReader(data)),
		"eof with data": iotest.DataErrReader(bytes.NewReader(data)),
	} {
		got, err := decode(r, 0)
		if err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
	}
}

func TestEveryCutAndEveryFlip(t *testing.T) {
	data := encode(t, "one", "", "three")
	ends := map[int]int{0: 0, 19: 1, 35: 2, 56: 3} // whole records by length of the file
	for n := range len(data) + 1 {
		got, err := decode(bytes.NewReader(data[:n]), 0)
		if whole, ok := ends[n]; ok {
			if err != io.EOF || len(got) != whole {
				t.Errorf("cut at %d: %d records, %v", n, len(got), err)
			}
		} else if !errors.Is(err, tfrecord.ErrTruncated) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 0x10
		if _, err := decode(bytes.NewReader(bad), 0); !errors.Is(err, tfrecord.ErrCorrupt) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
	}
}

func TestLimit(t *testing.T) {
	data := encode(t, "12345678", "123456789")
	got, err := decode(bytes.NewReader(data), 8)
	if !errors.Is(err, tfrecord.ErrTooLarge) || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	// A header may claim anything: with a sound checksum of its own, too.
	head := binary.LittleEndian.AppendUint64(nil, 1<<62)
	head = binary.LittleEndian.AppendUint32(head, tfrecord.Masked(head))
	if _, err := decode(bytes.NewReader(head), 0); !errors.Is(err, tfrecord.ErrTooLarge) {
		t.Errorf("2^62 bytes: %v", err)
	}
	head = binary.LittleEndian.AppendUint64(nil, tfrecord.DefaultLimit)
	head = binary.LittleEndian.AppendUint32(head, tfrecord.Masked(head))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := decode(bytes.NewReader(head), 0); !errors.Is(err, tfrecord.ErrTruncated) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes allocated for a record that is not there", n)
	}
}

func TestErrorsComeThrough(t *testing.T) {
	broken := errors.New("disk on fire")
	_, err := decode(io.MultiReader(bytes.NewReader(encode(t, "a")[:14]), iotest.ErrReader(broken)), 0)
	if !errors.Is(err, broken) || errors.Is(err, tfrecord.ErrTruncated) {
		t.Errorf("read: %v", err)
	}
	for n := range 3 {
		if err := tfrecord.NewWriter(&failing{after: n, err: broken}).Write([]byte("a")); !errors.Is(err, broken) {
			t.Errorf("write %d: %v", n, err)
		}
	}
}

type failing struct {
	after int
	err   error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, f.err
	}
	return len(p), nil
}

// Whatever is accepted is what a Writer would have written.
func FuzzReader(f *testing.F) {
	f.Add([]byte{})
	f.Add(encode(f, "one", "", "three"))
	f.Add(encode(f, strings.Repeat("x", 200)))
	f.Add(encode(f, "one", "two")[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(bytes.NewReader(data), 1<<10)
		again := encode(t, got...)
		if !bytes.HasPrefix(data, again) {
			t.Fatalf("%d records read that are not there", len(got))
		}
		if (err == io.EOF) != (len(again) == len(data)) {
			t.Fatalf("%v after %d of %d bytes", err, len(again), len(data))
		}
	})
}
