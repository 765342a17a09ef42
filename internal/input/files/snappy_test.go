package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
)

// hadoop packs text in blocks of so many bytes, each in chunks of so many.
func hadoop(text string, block, chunk int) (out []byte) {
	for len(text) > 0 {
		b := text[:min(block, len(text))]
		text = text[len(b):]
		out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
		for len(b) > 0 {
			c := snappy.Encode(nil, []byte(b[:min(chunk, len(b))]))
			b = b[min(chunk, len(b)):]
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(c))), c...)
		}
	}
	return out
}

// A file packed in Hadoop's way is read whatever its blocks and chunks are, by its name too; one that
// is cut is found.
func TestSnappy(t *testing.T) {
	t.Chdir(t.TempDir())
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "{\"n\":%d}\n", i)
	}
	for _, size := range [][2]int{{1 << 20, 1 << 20}, {1000, 300}, {7, 7}, {64, 1}} {
		packed := hadoop(text.String(), size[0], size[1])
		if got, err := io.ReadAll(&unsnappy{r: bytes.NewReader(packed)}); err != nil || string(got) != text.String() {
			t.Fatalf("blocks of %d, chunks of %d: %d bytes, %v", size[0], size[1], len(got), err)
		}
		if err := os.WriteFile("a.snappy", packed, 0o644); err != nil {
			t.Fatal(err)
		}
		set, err := Survey(t.Context(), lines(t), []string{"a.snappy"}, 1)
		if err != nil || set.Records() != 5000 {
			t.Fatalf("blocks of %d, chunks of %d: %v", size[0], size[1], err)
		}
	}
	packed := hadoop(text.String(), 1000, 300)
	for n := 1; n < 2000; n++ {
		got, err := io.ReadAll(&unsnappy{r: bytes.NewReader(packed[:n])})
		if whole := err == nil; whole != (len(got)%1000 == 0 && len(hadoop(text.String()[:len(got)], 1000, 300)) == n) {
			t.Fatalf("of %d bytes: %d, %v", n, len(got), err)
		}
	}
	for name, packed := range map[string][]byte{
		"not Hadoop's":  snappy.Encode(nil, []byte(strings.Repeat("\xff", 3000))),
		"a longer one":  append([]byte{0, 0, 0, 1}, hadoop("abc", 9, 9)[4:]...),
		"a broken one":  {0, 0, 0, 9, 0, 0, 0, 2, 9, 0xff},
		"a huge length": {0xff, 0, 0, 0},
	} {
		if got, err := io.ReadAll(&unsnappy{r: bytes.NewReader(packed)}); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func FuzzSnappy(f *testing.F) {
	f.Add(hadoop("some text, some text", 7, 3))
	f.Fuzz(func(t *testing.T, packed []byte) {
		got, err := io.ReadAll(io.LimitReader(&unsnappy{r: bytes.NewReader(packed)}, 1<<20))
		if len(got) > mostDense*len(packed) {
			t.Errorf("%d bytes of %d", len(got), len(packed))
		}
		if err != nil {
			return
		}
		again, err := io.ReadAll(&unsnappy{r: bytes.NewReader(hadoop(string(got), 100, 30))})
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("packed once more: %d bytes, not %d, %v", len(again), len(got), err)
		}
	})
}
