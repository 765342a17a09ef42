package tree

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A snapshot is magic, a length and that many bytes of JSON with what there is besides
// the nodes, and then the nodes, parents before their children:
//
//	flags, parent (how many nodes back), name, data, czxid, mzxid, ctime, mtime, version,
//	[creates, pzxid], [owner], [ACL, its version]
//
// Numbers are varints, mzxid and mtime relative to czxid and ctime; strings carry their
// length. Its checksum is the file's.
const magic = "znode/2\n"

// What follows a node's version, and what it lacks.
const (
	withDir   = 1
	withOwner = 2
	withACL   = 4
	without   = 8 // no data, which is not the same as empty
)

var errSnapshot = errors.New("znode: the snapshot is damaged")

// Head is what a snapshot's JSON has of the tree.
type Head struct {
	Nodes    int
	Sessions map[int64]Session
	ACLs     [][]wire.ACL
}

// Head of a tree that does not change meanwhile.
func (t *Tree) Head() Head {
	h := Head{Nodes: t.count, Sessions: t.sessions}
	for _, l := range t.acls.lists {
		h.ACLs = append(h.ACLs, l.acl)
	}
	return h
}

// Encode writes a snapshot whose JSON is meta.
func (t *Tree) Encode(w io.Writer, meta []byte) error {
	b := bufio.NewWriterSize(w, 64<<10)
	out := binary.AppendUvarint([]byte(magic), uint64(len(meta)))
	if _, err := b.Write(append(out, meta...)); err != nil {
		return err
	}
	if err := t.encode(b); err != nil {
		return err
	}
	return b.Flush()
}

// Decode reads what Encode wrote; head makes of its JSON what is the tree's. It trusts
// nothing: whatever the bytes are, it returns a tree that holds together, or an error.
func Decode(r io.Reader, head func(meta []byte) (Head, error)) (*Tree, error) {
	in := decoder{r: bufio.NewReaderSize(r, 64<<10)}
	if string(in.bytes(len(magic))) != magic {
		return nil, fmt.Errorf("%w: it does not begin as one", errSnapshot)
	}
	meta := in.bytes(in.size(1 << 30))
	if in.err != nil {
		return nil, in.err
	}
	h, err := head(meta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSnapshot, err)
	}
	t := newTree()
	t.sessions = h.Sessions
	lists := make([]uint32, len(h.ACLs))
	for i, l := range h.ACLs {
		if len(l) > 0 {
			lists[i] = t.acls.intern(l)
		}
	}
	t.index.reserve(min(max(h.Nodes, 0), 1<<20)) // a number that lies costs 16 MiB at most
	for i := range h.Nodes {
		if err := t.decode(&in, uint32(i), lists); err != nil {
			return nil, err
		}
	}
	if h.Nodes < 1 {
		return nil, fmt.Errorf("%w: a tree without its root", errSnapshot)
	}
	if _, err := in.r.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("%w: something follows it", errSnapshot)
	}
	return t, nil
}

func (t *Tree) encode(w *bufio.Writer) (err error) {
	pos := make([]uint32, t.nodes.next) // by node: how many were written before it
	var n uint32
	var b []byte
	t.walk(func(id uint32) {
		if err != nil {
			return
		}
		v := t.nodes.at(id)
		pos[id] = n
		flags := byte(0)
		if v.dir != 0 {
			flags |= withDir
		}
		if v.nameLen&hasOwner != 0 {
			flags |= withOwner
		}
		if v.nameLen&hasACL != 0 {
			flags |= withACL
		}
		if v.nameLen&noData != 0 {
			flags |= without
		}
		b = append(b[:0], flags)
		b = binary.AppendUvarint(b, uint64(n-pos[v.parent]))
		name, data := t.name(id), t.Data(id)
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		b = binary.AppendUvarint(b, uint64(len(data)))
		b = append(b, data...)
		b = binary.AppendUvarint(b, v.czxid)
		b = binary.AppendUvarint(b, v.mzxid-v.czxid)
		b = binary.AppendVarint(b, v.ctime)
		b = binary.AppendVarint(b, v.mtime-v.ctime)
		b = binary.AppendVarint(b, int64(v.version))
		if v.dir != 0 {
			d := t.dirs.at(v.dir)
			b = binary.AppendVarint(b, int64(d.creates))
			b = binary.AppendUvarint(b, d.pzxid)
		}
		if flags&withOwner != 0 {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.owners[id]))
		}
		if flags&withACL != 0 {
			ref := t.aclOf[id]
			b = binary.AppendUvarint(b, uint64(ref.list))
			b = binary.AppendVarint(b, int64(ref.version))
		}
		_, err = w.Write(b)
		n++
	})
	return err
}

// decode reads one node; i were read before it, and they are nodes 1 to i.
func (t *Tree) decode(in *decoder, i uint32, lists []uint32) error {
	flags := in.byte()
	back := in.uvarint()
	name := string(in.take(&in.name, in.size(MaxBlob)))
	data := in.take(&in.data, in.size(MaxBlob))
	if in.err != nil {
		return in.err
	}
	if flags&without != 0 {
		if len(data) > 0 {
			return fmt.Errorf("%w: node %d has data and has none", errSnapshot, i)
		}
		data = nil
	}
	id := root
	if i > 0 {
		if back == 0 || back > uint64(i) || len(name)+len(data) > MaxBlob || !ValidName(name) {
			return fmt.Errorf("%w: node %d cannot stand where it does", errSnapshot, i)
		}
		parent := i + 1 - uint32(back)
		var clash bool
		if id, clash = t.insertAny(parent, name, data); clash && t.siblings(parent, name) > 1 {
			return fmt.Errorf("%w: node %d is there already", errSnapshot, i)
		}
	} else if back != 0 || len(name) > 0 {
		return fmt.Errorf("%w: its first node is not the root", errSnapshot)
	} else if len(data) > 0 || data == nil {
		t.Set(root, "/", data)
		t.journal, t.changes = t.journal[:0], nil
	}
	n := t.nodes.mut(id)
	n.czxid = in.uvarint()
	n.mzxid = n.czxid + in.uvarint()
	n.ctime = in.varint()
	n.mtime = n.ctime + in.varint()
	n.version = in.int32()
	if flags&withDir != 0 {
		d := t.mutDir(id)
		d.creates, d.pzxid = in.int32(), in.uvarint()
	}
	if flags&withOwner != 0 {
		if b := in.bytes(8); in.err == nil {
			t.own(id, int64(binary.LittleEndian.Uint64(b)))
		}
	}
	if flags&withACL != 0 {
		list, version := in.uvarint(), in.int32()
		if list >= uint64(len(lists)) {
			return fmt.Errorf("%w: node %d names ACL %d of %d", errSnapshot, i, list, len(lists))
		}
		t.acls.retain(lists[list])
		t.restrict(id, aclRef{list: lists[list], version: version})
	}
	return in.err
}

// decoder remembers its first error; what it returns after one means nothing.
type decoder struct {
	r          *bufio.Reader
	err        error
	name, data []byte
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		d.err = fmt.Errorf("%w: %w", errSnapshot, err)
	}
}

func (d *decoder) byte() byte {
	b, err := d.r.ReadByte()
	if err != nil {
		d.fail(err)
	}
	return b
}

func (d *decoder) uvarint() uint64 {
	v, err := binary.ReadUvarint(d.r)
	if err != nil {
		d.fail(err)
	}
	return v
}

func (d *decoder) varint() int64 {
	v, err := binary.ReadVarint(d.r)
	if err != nil {
		d.fail(err)
	}
	return v
}

func (d *decoder) int32() int32 {
	v := d.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail(errors.New("a number is out of range"))
	}
	return int32(v)
}

// size is a length of at most limit.
func (d *decoder) size(limit uint64) int {
	v := d.uvarint()
	if v > limit {
		d.fail(fmt.Errorf("%d bytes, at most %d are possible", v, limit))
		return 0
	}
	return int(v)
}

// bytes are n fresh ones, read piece by piece: a length that lies costs no memory.
func (d *decoder) bytes(n int) []byte {
	var out []byte
	for len(out) < n && d.err == nil {
		step := min(n-len(out), 1<<20)
		at := len(out)
		out = append(out, make([]byte, step)...)
		if _, err := io.ReadFull(d.r, out[at:]); err != nil {
			d.fail(err)
		}
	}
	return out
}

// take is bytes into a buffer that the next call reuses.
func (d *decoder) take(buf *[]byte, n int) []byte {
	if *buf == nil || cap(*buf) < n {
		*buf = make([]byte, n) // empty is not none
	}
	*buf = (*buf)[:n]
	if d.err == nil && n > 0 {
		if _, err := io.ReadFull(d.r, *buf); err != nil {
			d.fail(err)
		}
	}
	return *buf
}
