// Package tensorbundle reads and writes the files in which TensorFlow's savers keep
// variables: an index of names, shapes and checksums, and the numbers beside it.
package tensorbundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/vfs"
)

const (
	maxTensor = 1 << 31 // numbers
	maxIndex  = 256 << 20
)

// ErrCorrupt: the files are not what a saver wrote. The message names file and tensor.
var ErrCorrupt = errors.New("tensor bundle is corrupt")

// Tensor is a variable to be written: of float32, or of int64 where Ints are given.
type Tensor struct {
	Name   string
	Shape  []int64
	Floats []float32
	Ints   []int64
}

// IndexName is the index of the bundle called prefix, and DataName its i-th file of n.
func IndexName(prefix string) string { return prefix + ".index" }

// DataName is the i-th file of numbers of n.
func DataName(prefix string, i, n int) string {
	return fmt.Sprintf("%s.data-%05d-of-%05d", prefix, i, n)
}

// Write writes tensors as the bundle called prefix, the index last: a crash before that
// leaves no bundle. Names are unique.
func Write(prefix string, tensors []Tensor) error {
	tensors = slices.SortedFunc(slices.Values(tensors), func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	pairs := []pair{{"", appendHeader(1)}}
	err := durable.Replace(DataName(prefix, 0, 1), 0o644, func(f *os.File) error {
		at := int64(0)
		for i, t := range tensors {
			if t.Name == "" || i > 0 && tensors[i-1].Name == t.Name {
				return fmt.Errorf("tensor %q has no name, or another's", t.Name)
			}
			e := Entry{Name: t.Name, Type: Float, Shape: t.Shape}
			b := make([]byte, 0, 4*len(t.Floats)+8*len(t.Ints))
			for _, x := range t.Floats {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			if t.Ints != nil {
				e.Type = Int64
			}
			for _, x := range t.Ints {
				b = binary.LittleEndian.AppendUint64(b, uint64(x))
			}
			if e.Numbers()*int64(e.Type.width()) != int64(len(b)) {
				return fmt.Errorf("tensor %q has %d bytes for the shape %v", t.Name, len(b), t.Shape)
			}
			e.offset, e.size, e.sum = at, int64(len(b)), tfrecord.Masked(b)
			at += e.size
			if _, err := f.Write(b); err != nil {
				return err
			}
			pairs = append(pairs, pair{t.Name, e.encode()})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write tensor bundle %s: %w", prefix, err)
	}
	err = durable.Replace(IndexName(prefix), 0o644, func(f *os.File) error {
		_, err := f.Write(appendTable(nil, pairs))
		return err
	})
	if err != nil {
		return fmt.Errorf("write tensor bundle %s: %w", prefix, err)
	}
	return nil
}

// Bundle is an index that was read. Numbers are read when they are asked for.
type Bundle struct {
	prefix  string
	shards  int
	entries map[string]*Entry
	// Entries are all tensors, by name.
	Entries []Entry
}

// Open reads the index of the bundle called prefix. fs.ErrNotExist: there is none.
func Open(prefix string) (*Bundle, error) {
	path := IndexName(prefix)
	f, err := vfs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open tensor bundle: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxIndex {
		return nil, fmt.Errorf("%w: %s is longer than %d bytes", ErrCorrupt, path, maxIndex)
	}
	b, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	b.prefix = prefix
	return b, nil
}

func parse(index []byte) (*Bundle, error) {
	pairs, err := readTable(index)
	if err != nil {
		return nil, err
	}
	if len(pairs) == 0 || pairs[0].key != "" {
		return nil, errors.New("its first entry is no header")
	}
	shards, err := readHeader(pairs[0].value)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	b := &Bundle{shards: int(shards), Entries: make([]Entry, len(pairs)-1), entries: map[string]*Entry{}}
	for i, p := range pairs[1:] {
		e := &b.Entries[i]
		e.Name = p.key
		if err := e.decode(p.value); err != nil {
			return nil, fmt.Errorf("entry %d, tensor %q: %w", i+1, p.key, err)
		}
		if e.shard < 0 || e.shard >= shards {
			return nil, fmt.Errorf("entry %d, tensor %q: it is in file %d of %d", i+1, p.key, e.shard, shards)
		}
		b.entries[p.key] = e
	}
	return b, nil
}

// Entry is the tensor called name, nil where there is none.
func (b *Bundle) Entry(name string) *Entry { return b.entries[name] }

// Floats reads the numbers of a tensor of float32, whose checksum it verifies.
func (b *Bundle) Floats(name string) ([]float32, error) {
	data, err := b.read(name, Float)
	if err != nil {
		return nil, err
	}
	v := make([]float32, len(data)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return v, nil
}

// Ints is Floats of int64.
func (b *Bundle) Ints(name string) ([]int64, error) {
	data, err := b.read(name, Int64)
	if err != nil {
		return nil, err
	}
	v := make([]int64, len(data)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return v, nil
}

func (b *Bundle) read(name string, want Type) ([]byte, error) {
	e := b.entries[name]
	switch {
	case e == nil:
		return nil, fmt.Errorf("%s has no tensor %q", IndexName(b.prefix), name)
	case e.Type != want:
		return nil, fmt.Errorf("%s: tensor %q is of %s, %s is read", IndexName(b.prefix), name, e.Type, want)
	case e.sliced:
		return nil, fmt.Errorf("%s: tensor %q was saved in parts by a partitioner: save it whole", IndexName(b.prefix), name)
	}
	path := DataName(b.prefix, int(e.shard), b.shards)
	f, err := vfs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tensor %q: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read tensor %q: %w", name, err)
	}
	if e.offset > info.Size() || e.size > info.Size()-e.offset {
		return nil, fmt.Errorf("%w: %s has %d bytes, tensor %q should lie in it at %d with %d: it is cut short", ErrCorrupt, path, info.Size(), name, e.offset, e.size)
	}
	data := make([]byte, e.size)
	if _, err := f.Seek(e.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read tensor %q of %s: %w", name, path, err)
	}
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read tensor %q of %s: %w", name, path, err)
	}
	if tfrecord.Masked(data) != e.sum {
		return nil, fmt.Errorf("%w: %s: tensor %q has the wrong checksum", ErrCorrupt, path, name)
	}
	return data, nil
}
