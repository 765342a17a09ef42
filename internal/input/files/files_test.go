package files

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

func layout(t testing.TB, format, container, compression string) Layout {
	t.Helper()
	f, err := input.ParseFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ParseLayout(f, container, compression)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// frame is a message in the framing of the layout's format.
func frame(format string, message []byte) (b []byte) {
	number := func(n int) { b = binary.LittleEndian.AppendUint64(b, uint64(n)) }
	switch {
	case strings.HasSuffix(format, "+lagrangex"):
		number(7)
	case strings.HasSuffix(format, "+sort-id"):
		number(3)
		b = append(b, "abc"...)
	case strings.HasSuffix(format, "+kafka-dump"):
		number(0)
		number(9)
		number(2)
		b = append(b, "xy"...)
		number(1)
	}
	number(len(message))
	return append(b, message...)
}

// contain puts records into a file's bytes; want is what a reader makes of them.
func contain(t testing.TB, l Layout, records [][]byte) (content []byte, want [][]byte) {
	t.Helper()
	var b bytes.Buffer
	for i, r := range records {
		switch l.Container {
		case TFRecord:
			if err := tfrecord.NewWriter(&b).Write(r); err != nil {
				t.Fatal(err)
			}
		case Stream:
			r = frame(l.Format.String(), r)
			b.Write(r)
		default:
			b.Write(r)
			b.WriteString([]string{"\n", "\r\n", " \n\n"}[i%3])
		}
		want = append(want, r)
	}
	return b.Bytes(), want
}

func pack(t testing.TB, c Compression, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch c {
	case Gzip:
		w = gzip.NewWriter(&b)
	case Zlib:
		w = zlib.NewWriter(&b)
	case Zstd:
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	default:
		return content
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func numbered(from, n int) (records [][]byte) {
	for i := range n {
		records = append(records, fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, from+i, strings.Repeat("x", i%700)))
	}
	return records
}

// drain reads a partition from an offset to its end.
func drain(t *testing.T, s *Set, p int32, offset int64) (all [][]byte) {
	t.Helper()
	r := s.Open(p)
	defer r.Close()
	for {
		records, next, err := r.Fetch(t.Context(), offset)
		if err != nil {
			t.Fatal(err)
		}
		if next != offset+int64(len(records)) {
			t.Fatalf("%d records from %d on, and the next one is %d", len(records), offset, next)
		}
		if len(records) == 0 {
			return all
		}
		all, offset = append(all, records...), next
	}
}

// Whatever a file is packed with and its records are framed by, the record at an offset is the
// same from wherever a reader begins.
func TestRecordsByOffset(t *testing.T) {
	for _, tc := range []struct{ format, container, suffix string }{
		{"json", "auto", ".json"}, {"json", "tfrecord", ""}, {"example", "auto", ".tfrecord"},
		{"instance+sort-id", "auto", ""}, {"example-batch+framed", "auto", ""}, {"instance+lagrangex", "stream", ""},
		{"monolith-example+kafka-dump", "auto", ""}, {"instance", "auto", ""},
	} {
		for packed, suffix := range map[Compression]string{None: "", Gzip: ".gz", Zstd: ".zst", Zlib: ".zz"} {
			t.Run(tc.format+" in "+tc.container+" "+packed.String(), func(t *testing.T) {
				l := layout(t, tc.format, tc.container, "auto")
				contents, want := map[string]string{}, make([][][]byte, 2)
				var paths []string
				for i, n := range []int{3, indexEvery + 1500, 0, 1, 2} {
					content, records := contain(t, l, numbered(i*10000, n))
					name := fmt.Sprintf("part-%d%s%s", i, tc.suffix, suffix)
					contents[name] = string(pack(t, packed, content))
					paths = append(paths, name)
					want[i%2] = append(want[i%2], records...)
				}
				write(t, contents)
				s, err := Survey(t.Context(), l, paths, 2)
				if err != nil {
					t.Fatal(err)
				}
				if s.Partitions() != 2 || s.Files() != 5 || s.Records() != indexEvery+1506 || s.End(0) != 5 || s.End(1) != indexEvery+1501 {
					t.Fatalf("%d partitions, %d files, %d records, ends %d and %d", s.Partitions(), s.Files(), s.Records(), s.End(0), s.End(1))
				}
				for p := range s.Partitions() {
					for _, offset := range []int64{0, 1, 3, 4, indexEvery - 1, indexEvery, indexEvery + 1, s.End(p) - 1, s.End(p)} {
						if offset > s.End(p) {
							continue
						}
						if got := drain(t, s, p, offset); !slices.EqualFunc(got, want[p][offset:], bytes.Equal) {
							t.Errorf("partition %d from %d on: %d records, want %d", p, offset, len(got), len(want[p])-int(offset))
						}
					}
				}
			})
		}
	}
}

// A set is its bytes in their order, how they are read and how many share them; names do not
// count.
func TestHash(t *testing.T) {
	write(t, map[string]string{"a": "{}\n{}\n", "b": "{}\n", "a2": "{}\n{}\n", "c": "{ }\n", "d": "{}\n\n"})
	hash := func(partitions int, paths ...string) string {
		t.Helper()
		s, err := Survey(t.Context(), layout(t, "json", "", ""), paths, partitions)
		if err != nil {
			t.Fatal(err)
		}
		return s.Hash()
	}
	first := hash(2, "a", "b")
	if again := hash(2, "a2", "b"); again != first {
		t.Error("another name makes another set")
	}
	for name, other := range map[string]string{
		"order": hash(2, "b", "a"), "partitions": hash(1, "a", "b"), "bytes": hash(2, "a", "c"),
		"a byte that is in no record": hash(2, "a", "d"), "one file less": hash(2, "a"), "one more": hash(2, "a", "b", "c"),
	} {
		if other == first {
			t.Errorf("%s: the same hash", name)
		}
	}
}

// Files that follow one another several times are one set with higher ends; a survey is made once
// for as long as no file changes.
func TestSurveys(t *testing.T) {
	write(t, map[string]string{"a": "1\n2\n", "b": "3\n"})
	l, paths := layout(t, "json", "", ""), []string{"a", "b"}
	var all *Surveys
	alone, err := all.Survey(t.Context(), l, paths, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	all = new(Surveys)
	first, err := all.Survey(t.Context(), l, paths, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Set{alone, first} {
		if got := string(bytes.Join(drain(t, s, 0, 0), nil)); got != "123123" || s.End(0) != 6 || s.Records() != 3 || s.Files() != 2 || s.Bytes() != 6 {
			t.Errorf("%q, end %d, %d records in %d files of %d bytes", got, s.End(0), s.Records(), s.Files(), s.Bytes())
		}
		if got := string(bytes.Join(drain(t, s, 0, 4), nil)); got != "23" {
			t.Errorf("from 4 on: %q", got)
		}
	}
	again, err := all.Survey(t.Context(), l, paths, 1, 1)
	if err != nil || again.Hash() != first.Hash() || again.End(0) != 3 || again.parts[0][0] != first.parts[0][0] {
		t.Errorf("the files were surveyed again: %v", err)
	}
	for name, change := range map[string]func() (*Set, error){
		"partitions": func() (*Set, error) { return all.Survey(t.Context(), l, paths, 2, 1) },
		"order":      func() (*Set, error) { return all.Survey(t.Context(), l, []string{"b", "a"}, 1, 1) },
		"bytes": func() (*Set, error) {
			if err := os.WriteFile("a", []byte("1\n4\n5\n"), 0o644); err != nil {
				return nil, err
			}
			return all.Survey(t.Context(), l, paths, 1, 1)
		},
	} {
		if s, err := change(); err != nil || s.Hash() == first.Hash() {
			t.Errorf("%s: the survey before is taken, %v", name, err)
		}
	}
	if err := os.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Survey(t.Context(), l, paths, 1, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// A file that cannot be read to its end is found before anything is learnt, with the record that
// is broken.
func TestDamagedFiles(t *testing.T) {
	tf, _ := contain(t, layout(t, "example", "", ""), numbered(0, 3))
	flipped := slices.Clone(tf)
	flipped[len(flipped)-6] ^= 1
	stream, _ := contain(t, layout(t, "instance+sort-id", "", ""), numbered(0, 3))
	huge := binary.LittleEndian.AppendUint64(slices.Clone(stream), 1<<40)
	poison := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(slices.Clone(stream), 0), 0xfefefefe)
	zipped := pack(t, Gzip, tf)
	write(t, map[string]string{
		"cut.tf": string(tf[:len(tf)-1]), "head.tf": string(tf[:2]), "flipped.tf": string(flipped),
		"cut": string(stream[:len(stream)-1]), "huge": string(huge), "poison": string(poison),
		"cut.gz": string(zipped[:len(zipped)-9]), "empty.gz": "", "no.gz": string(tf), "no.zst": "words", "no.zz": "words",
		"line": strings.Repeat("x", MaxRecord+1), "lines": "{}\n" + strings.Repeat("x", MaxRecord+1) + "\n{}\n",
	})
	for _, tc := range []struct{ path, format, want string }{
		{"cut.tf", "example", "cut.tf, record 2, from byte "}, {"head.tf", "example", "record 0, from byte 0 on"},
		{"flipped.tf", "example", "record 2, from byte "}, {"cut", "instance+sort-id", "cut, record 2, from byte "},
		{"huge", "instance+sort-id", "1099511627776 bytes or more, 67108864 are accepted"},
		{"poison", "instance+sort-id", "which marks what was never written"},
		{"cut.gz", "example", "cut.gz, record "}, {"empty.gz", "example", "it is not packed with gzip"},
		{"no.gz", "example", "it is not packed with gzip"}, {"no.zst", "json", "no.zst, record 0"}, {"no.zz", "json", "it is not packed with zlib"},
		{"line", "json", "line, record 0, from byte 0 on: the file is damaged: the line has more than 67108864 bytes"},
		{"lines", "json", "lines, record 1, from byte 3 on"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			_, err := Survey(t.Context(), layout(t, tc.format, "", ""), []string{tc.path}, 1)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
		})
	}
	if _, err := Survey(t.Context(), layout(t, "json", "", ""), []string{"."}, 1); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Survey(gone, layout(t, "json", "", ""), []string{"line"}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// A file that is no longer what was surveyed is never read as if it were.
func TestChangedFiles(t *testing.T) {
	for name, change := range map[string]func() error{
		"gone":    func() error { return os.Remove("b") },
		"longer":  func() error { return os.WriteFile("b", []byte("{}\n{}\n{}\n"), 0o644) },
		"shorter": func() error { return os.WriteFile("b", []byte("{}\n"), 0o644) },
		"touched": func() error { return os.Chtimes("b", time.Time{}, time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			write(t, map[string]string{"a": "{}\n", "b": "{}\n{}\n"})
			s, err := Survey(t.Context(), layout(t, "json", "", ""), []string{"a", "b"}, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			for _, offset := range []int64{0, 2} {
				r := s.Open(0)
				if _, _, err := r.Fetch(t.Context(), offset); !errors.Is(err, ErrChanged) {
					t.Errorf("from %d on: %v", offset, err)
				}
				r.Close()
			}
			if _, _, err := s.Open(0).Fetch(t.Context(), 4); !errors.Is(err, ErrChanged) {
				t.Errorf("beyond the end: %v", err)
			}
		})
	}
}

func TestParseLayout(t *testing.T) {
	for _, tc := range []struct{ format, container, compression, want string }{
		{"json", "", "", "lines auto"}, {"example", "auto", "gzip", "tfrecord gzip"}, {"instance+framed", "", "none", "stream none"},
		{"instance+framed", "tfrecord", "zstd", "tfrecord zstd"}, {"json", "lines", "zlib", "lines zlib"},
		{"json", "stream", "", "name a framing"}, {"example", "lines", "", "hold any byte"},
		{"json", "parquet", "", "no files have the container \"parquet\""}, {"json", "", "rar", "no files are packed with \"rar\""},
	} {
		f, err := input.ParseFormat(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		l, err := ParseLayout(f, tc.container, tc.compression)
		if got := fmt.Sprintf("%s %s %v", l.Container, l.Compression, err); !strings.Contains(got, tc.want) {
			t.Errorf("%s in %q, packed with %q: %s; want %s", tc.format, tc.container, tc.compression, got, tc.want)
		}
	}
}

// Any bytes are a file of records or damaged, the same ones at every reading, and what is read
// is what a record was made of.
func FuzzScan(f *testing.F) {
	for i, format := range []string{"json", "example", "instance+framed", "instance+lagrangex", "instance+sort-id", "instance+kafka-dump"} {
		content, _ := contain(f, layout(f, format, "", ""), numbered(0, 3))
		for c := None; c <= Zlib; c++ {
			f.Add(uint8(i), uint8(c), pack(f, c, content))
		}
	}
	f.Fuzz(func(t *testing.T, format, packed uint8, content []byte) {
		formats := input.Formats()
		form, err := input.ParseFormat(formats[int(format)%len(formats)])
		if err != nil {
			t.Fatal(err)
		}
		l, err := ParseLayout(form, "", compressions[1+int(packed)%4])
		if err != nil {
			t.Fatal(err)
		}
		read := func() (records [][]byte, ended error) {
			s, err := l.scan(bytes.NewReader(content), l.Compression)
			if err != nil {
				return nil, err
			}
			defer s.close()
			for len(records) < 1000 {
				r, err := s.next()
				if err != nil {
					return records, err
				}
				records = append(records, bytes.Clone(r))
			}
			return records, nil
		}
		first, err := read()
		if err != nil && !errors.Is(err, ErrDamaged) && err != io.EOF {
			t.Fatalf("it ends with %v", err)
		}
		again, err2 := read()
		if !slices.EqualFunc(first, again, bytes.Equal) || (err == nil) != (err2 == nil) {
			t.Fatalf("%d records and %v, then %d and %v", len(first), err, len(again), err2)
		}
		if l.Compression != None || l.Container == Lines {
			return
		}
		var back bytes.Buffer
		for _, r := range first {
			if l.Container == Stream {
				back.Write(r)
			} else if err := tfrecord.NewWriter(&back).Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(content, back.Bytes()) {
			t.Fatal("the records are not what the file holds")
		}
	})
}
