package tree

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
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

// written is a node as encode writes it, of no times and versions.
func written(flags byte, back uint64, name string, data []byte, more ...byte) []byte {
	b := binary.AppendUvarint([]byte{flags}, back)
	b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
	b = append(binary.AppendUvarint(b, uint64(len(data))), data...)
	return append(append(b, 3, 0, 0, 0, 0), more...) // czxid, mzxid, ctime, mtime, version
}

// A snapshot's node stands where a node can stand, at the edges too.
func TestNodesOfASnapshot(t *testing.T) {
	most, top := make([]byte, MaxBlob), written(0, 0, "", nil)
	for name, tc := range map[string]struct {
		nodes [][]byte
		last  string // the path of the last one; "": it is refused
	}{
		"a root":                 {[][]byte{top}, "/"},
		"a root behind another":  {[][]byte{written(0, 1, "", nil)}, ""},
		"a root with a name":     {[][]byte{written(0, 0, "x", nil)}, ""},
		"the largest root":       {[][]byte{written(0, 0, "", most)}, "/"},
		"a larger one":           {[][]byte{written(0, 0, "", append(most, 0))}, ""},
		"a root without data":    {[][]byte{written(without, 0, "", nil)}, "/"},
		"a child":                {[][]byte{top, written(0, 1, "a", nil)}, "/a"},
		"a child without data":   {[][]byte{top, written(without, 1, "a", nil)}, "/a"},
		"a child of itself":      {[][]byte{top, written(0, 0, "a", nil)}, ""},
		"a child of none":        {[][]byte{top, written(0, 2, "a", nil)}, ""},
		"a child of a child":     {[][]byte{top, written(0, 1, "a", nil), written(0, 1, "b", nil)}, "/a/b"},
		"another child":          {[][]byte{top, written(0, 1, "a", nil), written(0, 2, "b", nil)}, "/b"},
		"the same child":         {[][]byte{top, written(0, 1, "a", nil), written(0, 2, "a", nil)}, ""},
		"the same name below it": {[][]byte{top, written(0, 1, "a", nil), written(0, 1, "a", nil)}, "/a/a"},
		"no name":                {[][]byte{top, written(0, 1, "", nil)}, ""},
		"a name of two steps":    {[][]byte{top, written(0, 1, "a/b", nil)}, ""},
		"the largest child":      {[][]byte{top, written(0, 1, "a", most[1:])}, "/a"},
		"a larger child":         {[][]byte{top, written(0, 1, "a", most)}, ""},
		"data and none":          {[][]byte{top, written(without, 1, "a", []byte("x"))}, ""},
		"the last ACL":           {[][]byte{top, written(withACL, 1, "a", nil, 1, 0)}, "/a"},
		"an ACL behind it":       {[][]byte{top, written(withACL, 1, "a", nil, 2, 0)}, ""},
		"an owner":               {[][]byte{top, written(withOwner, 1, "a", nil, 1, 2, 3, 4, 5, 6, 7, 8)}, "/a"},
		"an owner cut short":     {[][]byte{top, written(withOwner, 1, "a", nil, 1, 2, 3, 4, 5, 6, 7)}, ""},
	} {
		tr := newTree()
		lists := []uint32{openACL, tr.acls.intern([]wire.ACL{{Perms: 1, Scheme: "digest", ID: "u:p"}})}
		var err error
		id := root
		for i, b := range tc.nodes {
			in := &decoder{r: bufio.NewReader(bytes.NewReader(b))}
			if err = tr.decode(in, uint32(i), lists); i < len(tc.nodes)-1 && err != nil {
				t.Fatal(name, err)
			}
			id = uint32(i) + 1
		}
		last := tc.nodes[len(tc.nodes)-1]
		switch {
		case (err == nil) != (tc.last != "") || err != nil && !errors.Is(err, errSnapshot):
			t.Errorf("%s: %v", name, err)
		case err == nil && (tr.path(id) != tc.last || tr.Find(tc.last) != id || tr.count != len(tc.nodes)):
			t.Errorf("%s: it stands at %s", name, tr.path(id))
		case err == nil && (tr.Data(id) == nil) != (last[0]&without != 0):
			t.Errorf("%s: its data are %v", name, tr.Data(id))
		}
	}
}

// A tree in JSON is one whose nodes have their parents, names and room.
func TestNodesOfJSON(t *testing.T) {
	none, empty := JSONNode{}, JSONNode{Data: Bytes{}}
	sized := func(n int) JSONNode { return JSONNode{Data: Bytes(strings.Repeat("x", n))} }
	for name, tc := range map[string]struct {
		nodes map[string]JSONNode
		ok    bool
	}{
		"no root":           {map[string]JSONNode{}, false},
		"a root":            {map[string]JSONNode{"/": empty}, true},
		"a root of none":    {map[string]JSONNode{"/": none}, true},
		"a root of some":    {map[string]JSONNode{"/": sized(3)}, true},
		"children":          {map[string]JSONNode{"/": empty, "/a": none, "/a/b": empty, "/a/b/c": sized(1)}, true},
		"no parent":         {map[string]JSONNode{"/": empty, "/a/b": empty}, false},
		"no path":           {map[string]JSONNode{"/": empty, "a": empty}, false},
		"no name":           {map[string]JSONNode{"/": empty, "/a": empty, "/a/": empty}, false},
		"an empty step":     {map[string]JSONNode{"/": empty, "/a": empty, "//a": empty}, false},
		"one further down":  {map[string]JSONNode{"/": empty, "/a": empty, "/a//b": empty}, false},
		"the largest child": {map[string]JSONNode{"/": empty, "/a": sized(MaxBlob - 1)}, true},
		"a larger one":      {map[string]JSONNode{"/": empty, "/a": sized(MaxBlob)}, false},
		"a longer name":     {map[string]JSONNode{"/": empty, "/abc": sized(MaxBlob - 2)}, false},
	} {
		tr, err := FromJSON(tc.nodes, nil)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if !tc.ok {
			continue
		}
		if tr.count != len(tc.nodes) {
			t.Errorf("%s: %d nodes of %d", name, tr.count, len(tc.nodes))
		}
		for path, n := range tc.nodes {
			if got := tr.Data(tr.Find(path)); !bytes.Equal(got, n.Data) || (got == nil) != (n.Data == nil) {
				t.Errorf("%s: %s has %d bytes (none: %v), want %d (%v)", name, path, len(got), got == nil, len(n.Data), n.Data == nil)
			}
		}
	}
}
