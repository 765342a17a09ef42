// Package files is training records in files: which files a list names, in which order, and the
// records of each partition by their ordinals.
//
//	patterns ── Expand ──► paths ── Survey ──► Set: ends, hash ── Open ──► Reader.Fetch(offset)
//
// File i of n partitions belongs to partition i mod n, and a partition's records are those of its
// files one after the other: record k of it has the offset k, at every start and for every reader.
// That is what makes an offset in a checkpoint name the same record for ever. So a survey reads every
// byte once, before anything is learnt: it counts the records, finds files that are damaged, and
// makes the hash that tells this set from every other one.
package files

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Format is how a record is written, as package input has it.
type Format interface {
	fmt.Stringer
	// Text says whether a record may stand in a line.
	Text() bool
	// Framed says whether records stand one after the other with their sizes.
	Framed() bool
	// ReadFrame appends the next of these to buf.
	ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error)
}

// MaxRecord is the most bytes that one record may have.
const MaxRecord = 64 << 20

var (
	// ErrNone says that a pattern names no file.
	ErrNone = errors.New("no file is there")
	// ErrDamaged says that a file cannot be read to its end.
	ErrDamaged = errors.New("the file is damaged")
	// ErrChanged says that a file is not the one that was surveyed: its offsets name other records.
	ErrChanged = errors.New("the file has changed since it was surveyed")
)

// Container is how records stand in a file.
type Container uint8

const (
	// Lines holds one record in each line; lines of blanks are none.
	Lines Container = iota
	// TFRecord holds records in TensorFlow's framing with its checksums.
	TFRecord
	// Stream holds messages one after the other, each in the framing of its format.
	Stream
)

func (c Container) String() string { return [...]string{"lines", "tfrecord", "stream"}[c] }

// Compression is what a file's bytes are packed with.
type Compression uint8

// The compressions. ByName packs a file by the end of its name: .gz, .gzip, .zst, .zstd, .zz, .snappy.
const (
	ByName Compression = iota
	None
	Gzip
	Zstd
	Zlib
	Snappy // in Hadoop's blocks
)

var compressions = []string{ByName: "auto", None: "none", Gzip: "gzip", Zstd: "zstd", Zlib: "zlib", Snappy: "snappy"}

func (c Compression) String() string { return compressions[c] }

// of is the compression of one file.
func (c Compression) of(path string) Compression {
	if c != ByName {
		return c
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".gz", ".gzip":
		return Gzip
	case ".zst", ".zstd":
		return Zstd
	case ".zz":
		return Zlib
	case ".snappy":
		return Snappy
	}
	return None
}

// Layout is how the bytes of all files of a set become records.
type Layout struct {
	Format      Format
	Container   Container
	Compression Compression
}

// Usages of the flags that name them.
const (
	ContainerUsage   = "how records stand in the files: lines, tfrecord or stream (messages in the framing of --format); auto: lines for json, stream for a format with a framing, tfrecord for others"
	CompressionUsage = "what the files are packed with: none, gzip, zstd, zlib or snappy (in Hadoop's blocks); auto: by the end of each name, .gz, .gzip, .zst, .zstd, .zz or .snappy"
)

// ParseLayout finds a layout by its names; empty ones are auto.
func ParseLayout(format Format, container, compression string) (Layout, error) {
	l := Layout{Format: format}
	switch container {
	case "", "auto":
		switch {
		case format.Framed():
			l.Container = Stream
		case !format.Text():
			l.Container = TFRecord
		}
	case "lines":
	case "tfrecord":
		l.Container = TFRecord
	case "stream":
		l.Container = Stream
	default:
		return l, fmt.Errorf("no files have the container %q: give auto, lines, tfrecord or stream", container)
	}
	if l.Container == Stream && !format.Framed() {
		return l, fmt.Errorf("messages of the format %s do not say where they end: name a framing, as in instance+sort-id, or another container", format)
	}
	if l.Container == Lines && !format.Text() {
		return l, fmt.Errorf("messages of the format %s hold any byte, also those that end a line: give the container tfrecord or stream", format)
	}
	for c, name := range compressions {
		if compression == name || compression == "" && Compression(c) == ByName {
			l.Compression = Compression(c)
			return l, nil
		}
	}
	return l, fmt.Errorf("no files are packed with %q: give one of %s", compression, strings.Join(compressions, ", "))
}
