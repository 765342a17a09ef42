package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// record is what every message here is.
type record interface {
	Encode(*Writer)
	Decode(*Reader)
}

// setWatches2 gives SetWatches the common shape.
type setWatches1 struct{ SetWatches }
type setWatches2 struct{ SetWatches }

func (s *setWatches1) Encode(w *Writer) { s.SetWatches.Encode(w, false) }
func (s *setWatches1) Decode(r *Reader) { s.SetWatches.Decode(r, false) }
func (s *setWatches2) Encode(w *Writer) { s.SetWatches.Encode(w, true) }
func (s *setWatches2) Decode(r *Reader) { s.SetWatches.Decode(r, true) }

// plainCreate and ttlCreate give CreateRequest the common shape.
type plainCreate struct{ CreateRequest }
type ttlCreate struct{ CreateRequest }

func (c *plainCreate) Encode(w *Writer) { c.CreateRequest.Encode(w, false) }
func (c *plainCreate) Decode(r *Reader) { c.CreateRequest.Decode(r, false) }
func (c *ttlCreate) Encode(w *Writer)   { c.CreateRequest.Encode(w, true) }
func (c *ttlCreate) Decode(r *Reader)   { c.CreateRequest.Decode(r, true) }

func samples() []record {
	open := []ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 1, Scheme: "digest", ID: "u:x"}}
	return []record{
		&plainCreate{CreateRequest{Path: "/a", Data: []byte{}, ACL: open, Flags: 3}},
		&plainCreate{CreateRequest{Path: "/a"}},
		&ttlCreate{CreateRequest{Path: "/a", Data: []byte("x"), ACL: open[:1], Flags: 5, TTL: 9}},
		&PathVersion{Path: "/a", Version: -1},
		&SetDataRequest{Path: "/a", Data: []byte("x"), Version: 3},
		&SetACLRequest{Path: "/a", ACL: open, Version: 2},
		&PathMode{Path: "/a", Mode: 1},
		&ConnectRequest{LastZxidSeen: 7, TimeoutMS: 10_000, SessionID: -2, Password: make([]byte, 16)},
		&ConnectRequest{TimeoutMS: 4000, HasReadOnly: true, ReadOnly: true},
		&ConnectResponse{TimeoutMS: 4000, SessionID: 1 << 60, Password: []byte("0123456789abcdef"), HasReadOnly: true},
		&ConnectResponse{TimeoutMS: 4000, SessionID: 1 << 60, Password: []byte("0123456789abcdef")},
		&RequestHeader{Xid: XidPing, Op: OpPing},
		&ReplyHeader{Xid: 3, Zxid: 1 << 40, Err: NoNode},
		&PathWatch{Path: "/demo/ünï", Watch: true},
		&Path{Path: "/"},
		&Stat{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
		&ACL{Perms: 31, Scheme: "world", ID: "anyone"},
		&AuthPacket{Scheme: "digest", Auth: []byte("u:p")},
		&WatcherEvent{Type: 3, State: StateConnected, Path: "/a"},
		&setWatches1{SetWatches{RelativeZxid: 9, Data: []string{"/a", "/b"}, Exist: []string{"/c"}}},
		&setWatches2{SetWatches{RelativeZxid: 9, Child: []string{"/"}, Persistent: []string{"/p"}, PersistentRecur: []string{"/q"}}},
		&MultiHeader{Op: OpGetData},
		MultiEnd(),
	}
}

func TestRoundTrip(t *testing.T) {
	for _, in := range samples() {
		var w Writer
		in.Encode(&w)
		out := reflect.New(reflect.TypeOf(in).Elem()).Interface().(record)
		r := NewReader(w.B)
		if out.Decode(r); r.Err() != nil || r.Len() != 0 || !reflect.DeepEqual(in, out) {
			t.Errorf("%+v came back as %+v, %v, %d bytes left", in, out, r.Err(), r.Len())
		}
		for cut := range w.B {
			r := NewReader(w.B[:cut])
			out.Decode(r)
			if _, optional := in.(*ConnectRequest); optional && cut == len(w.B)-1 {
				continue // the last byte need not be there
			}
			if _, optional := in.(*ConnectResponse); optional && cut == len(w.B)-1 {
				continue
			}
			if !errors.Is(r.Err(), ErrMalformed) {
				t.Errorf("%T cut at %d of %d: %v", in, cut, len(w.B), r.Err())
			}
		}
	}
}

// The bytes were written down from the protocol's definition, not by this package.
func TestBytes(t *testing.T) {
	got := Frame((&RequestHeader{Xid: 1, Op: OpGetData}).Encode, (&PathWatch{Path: "/a", Watch: true}).Encode)
	want := "0000000f" + "00000001" + "00000004" + "00000002" + "2f61" + "01"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}

// What is absent, by the length -1, is empty where it need not be there.
func TestAbsent(t *testing.T) {
	for name, read := range map[string]func(*Reader) bool{
		"a buffer":       func(r *Reader) bool { return r.Buffer() == nil },
		"a string":       func(r *Reader) bool { return r.String() == "" },
		"a list":         func(r *Reader) bool { return r.Strings() == nil },
		"an access list": func(r *Reader) bool { return DecodeACLs(r) == nil },
	} {
		r := NewReader([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7})
		if !read(r) || r.Err() != nil || r.Int32() != 7 {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
	if r := NewReader(make([]byte, 4)); r.Text() != "" || r.Err() != nil {
		t.Errorf("an empty text is absent: %v", r.Err())
	}
}

func TestReaderRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		read func(*Reader)
	}{
		"length beyond the end":    {"7fffffff", func(r *Reader) { r.Buffer() }},
		"negative length":          {"fffffffe", func(r *Reader) { r.Buffer() }},
		"count beyond the end":     {"7fffffff00000000", func(r *Reader) { r.Strings() }},
		"negative count":           {"fffffffe", func(r *Reader) { r.Strings() }},
		"count one too many":       {"000000020000000000000001", func(r *Reader) { r.Strings() }},
		"absent text":              {"ffffffff", func(r *Reader) { _ = r.Text() }},
		"bool of nothing":          {"", func(r *Reader) { r.Bool() }},
		"what follows is zero too": {"00", func(r *Reader) { r.Int64(); r.Bool() }},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := hex.DecodeString(tc.data)
			if err != nil {
				t.Fatal(err)
			}
			r := NewReader(data)
			tc.read(r)
			if !errors.Is(r.Err(), ErrMalformed) || r.Len() != 0 || r.Int32() != 0 {
				t.Errorf("err %v, %d left", r.Err(), r.Len())
			}
		})
	}
	var w Writer
	w.Buffer(nil)
	w.Buffer([]byte{})
	r := NewReader(w.B)
	if a, b := r.Buffer(), r.Buffer(); a != nil || b == nil {
		t.Errorf("absent %v, empty %v", a, b)
	}
}

func TestReadFrame(t *testing.T) {
	ok := Frame(func(w *Writer) { w.Int64(5) })
	buf, err := ReadFrame(bytes.NewReader(ok), nil, 9)
	if err != nil || len(buf) != 8 {
		t.Errorf("%x, %v", buf, err)
	}
	for name, tc := range map[string]struct {
		in    []byte
		limit int
		want  error
	}{
		"at the limit": {ok, 8, ErrMalformed},
		"negative":     {[]byte{0xff, 0xff, 0xff, 0xff}, MaxFrame, ErrMalformed},
		"nothing":      {nil, MaxFrame, io.EOF},
		"half a head":  {ok[:2], MaxFrame, io.ErrUnexpectedEOF},
		"head alone":   {ok[:4], MaxFrame, io.ErrUnexpectedEOF},
		"half a body":  {ok[:6], MaxFrame, io.ErrUnexpectedEOF},
	} {
		if _, err := ReadFrame(bytes.NewReader(tc.in), buf, tc.limit); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// Whatever is decoded encodes to the bytes it was read from, but for the two spellings
// that jute allows: any byte but zero is true, and -1 is an absent string or list.
func FuzzDecode(f *testing.F) {
	for i, m := range samples() {
		var w Writer
		m.Encode(&w)
		f.Add(uint8(i), w.B)
	}
	f.Add(uint8(11), []byte(strings.Repeat("\xff", 64)))
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		m := samples()[int(which)%len(samples())]
		r := NewReader(data)
		m.Decode(r)
		if r.Err() != nil {
			return
		}
		var w Writer
		m.Encode(&w)
		again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(record)
		r2 := NewReader(w.B)
		if again.Decode(r2); r2.Err() != nil || r2.Len() != 0 || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v came back as %+v, %v", m, again, r2.Err())
		}
		if len(w.B) > len(data)-r.Len() {
			t.Fatalf("%d bytes read became %d", len(data)-r.Len(), len(w.B))
		}
	})
}

// A frame takes room as it comes, whatever its length says.
func TestLengthsAreNotTrusted(t *testing.T) {
	const claim = 60 << 20
	head := []byte{claim >> 24, claim >> 16 & 0xff, claim >> 8 & 0xff, claim & 0xff}
	for _, sent := range []int{0, 1, onTrust - 1, onTrust, onTrust + 1, 5 * onTrust} {
		body := make([]byte, sent)
		buf, err := ReadFrame(bytes.NewReader(append(head[:4:4], body...)), nil, claim+1)
		if !errors.Is(err, io.ErrUnexpectedEOF) || cap(buf) > max(2*sent, onTrust) {
			t.Errorf("%d bytes took room for %d: %v", sent, cap(buf), err)
		}
	}
	for _, n := range []int{0, 1, onTrust, onTrust + 1, 5*onTrust + 3} {
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(i * 7)
		}
		for _, old := range [][]byte{nil, make([]byte, 10), make([]byte, onTrust+7)} {
			frame := Frame(func(w *Writer) { w.B = append(w.B, body...) })
			r := bytes.NewReader(append(frame, "rest"...))
			if got, err := ReadFrame(r, old, claim); err != nil || !bytes.Equal(got, body) || r.Len() != 4 {
				t.Errorf("%d bytes into room for %d: %d, %v", n, cap(old), len(got), err)
			}
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("ruok"))
	f.Add(Frame(func(w *Writer) { w.Int64(5) }))
	f.Fuzz(func(t *testing.T, data []byte) {
		buf, err := ReadFrame(bytes.NewReader(data), nil, 64)
		if err == nil && (len(buf) >= 64 || !bytes.HasPrefix(data[4:], buf)) {
			t.Fatalf("%x from %x", buf, data)
		}
	})
}
