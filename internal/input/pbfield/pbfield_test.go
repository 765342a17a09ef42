package pbfield

import (
	"encoding/binary"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A varint that is all there is, beside protobuf's reader.
func TestVarint(t *testing.T) {
	written := [][]byte{{}, {0x80}, {0x80, 0}, {1, 1}, {0x81, 0x80, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}}
	for shift := range 64 {
		written = append(written, binary.AppendUvarint(nil, 1<<shift), binary.AppendUvarint(nil, 1<<shift-1), binary.AppendUvarint(nil, math.MaxUint64>>shift))
	}
	for _, b := range written {
		want, n := protowire.ConsumeVarint(b)
		got, ok := Varint(b)
		if whole := n == len(b) && n > 0 && n < 10; ok != whole || ok && got != want {
			t.Errorf("% x is %d, %v; protobuf reads %d of %d bytes as %d", b, got, ok, n, len(b), want)
		}
	}
}

// FuzzNext: what is read is what protowire reads, and what Named and Packed take is laid out as they say.
func FuzzNext(f *testing.F) {
	packed := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{1, 2, 3})
	list := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), packed)
	message := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("ad"))
	message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), list)
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), message))
	f.Add(list)
	f.Add([]byte{8, 1})
	var head Head
	f.Fuzz(func(t *testing.T, b []byte) {
		num, typ, content, n := Next(b)
		wantNum, wantTyp, want := protowire.ConsumeField(b)
		if want != n && (want >= 0 || n >= 0) || n > 0 && (num != wantNum || typ != wantTyp) {
			t.Fatalf("% x: field %d of type %d and %d bytes; protowire reads %d, %d, %d", b, num, typ, n, wantNum, wantTyp, want)
		}
		if list, packed, ok := Packed(b); ok {
			inner, _, values, m := Next(content)
			if n != len(b) || byte(num) != list || inner != 1 || m != len(content) || string(values) != string(packed) {
				t.Fatalf("% x is no lone list", b)
			}
		}
		list, packed, taken := Named("ad", b)
		for _, h := range []*Head{{}, &head} { // that remembers nothing, and that remembers whatever was there before
			for range 2 {
				if l, p, m := h.Named("ad", b); l != list || m != taken || string(p) != string(packed) {
					t.Fatalf("% x is list %d, % x, in %d bytes where it was remembered, %d, % x, in %d otherwise", b, l, p, m, list, packed, taken)
				}
			}
		}
		if taken > 0 {
			_, _, name, m := Next(content)
			_, _, feature, _ := Next(content[m:])
			if same, values, ok := Packed(feature); taken != n || string(name) != "ad" || !ok || same != list || string(values) != string(packed) {
				t.Fatalf("% x is no such feature", b)
			}
		}
	})
}
