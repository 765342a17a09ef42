package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
)

// A footer that does not describe the file in front of it is damage, also where its own
// checksum is right; one that just does is read.
func TestFooterDescribesItsFile(t *testing.T) {
	at := int64(len(head))
	good := func() Footer {
		return Footer{First: 5, Last: 9, Blocks: []Block{
			{First: 5, Count: 3, Offset: at, Raw: at + 20},
			{First: 8, Count: 2, Offset: at + 28, Raw: at + 36}, // its records, if there were none
		}}
	}
	const body = 44 // up to the end of the second block's original bytes, if there were none
	for _, tc := range []struct {
		name   string
		change func(*Footer)
		ok     bool
	}{
		{"whole", func(*Footer) {}, true},
		{"a block of one event", func(f *Footer) { f.Last, f.Blocks[1].Count = 8, 1 }, true},
		{"begins at nothing", func(f *Footer) { f.First, f.Blocks[0].First = 0, 0; f.Blocks[0].Count = 8 }, false},
		{"ends before its blocks", func(f *Footer) { f.Last-- }, false},
		{"ends behind its blocks", func(f *Footer) { f.Last++ }, false},
		{"a gap", func(f *Footer) { f.Blocks[1].First, f.Blocks[1].Count = 9, 1 }, false},
		{"a block of nothing", func(f *Footer) { f.Blocks[0].Count, f.Blocks[1].First, f.Blocks[1].Count = 0, 5, 5 }, false},
		{"a block in the head", func(f *Footer) { f.Blocks[0].Offset-- }, false},
		{"a block in the one before", func(f *Footer) { f.Blocks[1].Offset-- }, false},
		{"original bytes in their block", func(f *Footer) { f.Blocks[0].Raw = at + 7 }, false},
		{"original bytes behind the blocks", func(f *Footer) { f.Blocks[1].Raw++ }, false},
	} {
		f := good()
		tc.change(&f)
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		file := append([]byte(head), make([]byte, body)...)
		file = append(append(file, text...), ending(text)...)
		got, err := parseFooter(bytes.NewReader(file), int64(len(file)))
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
	// Nothing but a footer, which is no segment, and one that says it is longer than the file.
	text, err := json.Marshal(Footer{First: 5, Last: 4, FirstID: "long enough to reach over the head"})
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(head) {
		file := append([]byte(head)[cut+1:], append(bytes.Clone(text), ending(text)...)...)
		if _, err := parseFooter(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of its head are gone: %v", cut+1, err)
		}
	}
	file := append([]byte(head), append(bytes.Clone(text), ending(text)...)...)
	if f, err := parseFooter(bytes.NewReader(file), int64(len(file))); err != nil || f.at != at {
		t.Errorf("an empty one: %+v, %v", f, err)
	}
}

// A footer may take as much as is read of one, and no more.
func TestTheLargestFooter(t *testing.T) {
	text, err := json.Marshal(Footer{First: 5, Last: 4})
	if err != nil {
		t.Fatal(err)
	}
	for size, ok := range map[int]bool{maxFooter: true, maxFooter + 1: false} {
		long := append(bytes.Clone(text), bytes.Repeat([]byte(" "), size-len(text))...)
		file := append(append([]byte(head), long...), ending(long)...)
		if f, err := parseFooter(bytes.NewReader(file), int64(len(file))); (err == nil) != ok || ok && f.First != 5 {
			t.Errorf("%d bytes: %+v, %v", size, f, err)
		}
	}
}

// A block that is not what was written, though its checksum is right, is damage and ends no
// process.
func TestDecodeTrustsNothing(t *testing.T) {
	var e encoder
	e.reset()
	for i := range uint64(3) {
		r := events.Recorded{Seq: i + 1, Subject: events.Join("demo", "model", "m"), Time: time.Unix(int64(i), 0), Data: []byte(`{"unloadAccepted":{"reason":"x"}}`),
			Header: events.Header{ID: fmt.Sprint("id", i), Type: "unloadAccepted"}, Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "x"}}}}
		if err := e.add(r); err != nil {
			t.Fatal(err)
		}
	}
	whole, raw := e.block(), e.raw
	decode := func(payload, raw []byte) error { return new(batch).decode(payload, raw, 0, nil) }
	if err := decode(whole, raw); err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		if err := decode(whole[:cut], nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	for cut := range raw {
		if err := decode(whole, raw[:cut]); !errors.Is(err, ErrDamaged) {
			t.Errorf("original bytes cut at %d: %v", cut, err)
		}
	}
	if err := decode(append(bytes.Clone(whole), 0), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte is left over: %v", err)
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f} // a number of bytes, records or names
	for name, payload := range map[string][]byte{
		"records": append([]byte{1, 0}, append(bytes.Clone(huge), 0)...),
		"names":   append([]byte{1, 0, 1}, huge...),
		"a text":  append([]byte{1, 0, 1, 1}, huge...),
	} {
		if err := decode(payload, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("huge %s: %v", name, err)
		}
	}
}

// Blocks are of a size that a reader can hold some of, whatever the events are like.
func TestBlocksAreBounded(t *testing.T) {
	s, err := create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const each, n = 60 << 10, 40
	for i := range uint64(n) {
		e := &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: string(bytes.Repeat([]byte("x"), each))}}}
		data := fmt.Appendf(nil, `{"unloadAccepted":{"reason":%q}}`, e.GetUnloadAccepted().GetReason())
		if err := s.add(events.Recorded{Seq: i + 1, Subject: events.Join("demo", "model", "m"), Time: time.Unix(int64(i), 0), Data: data, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	// Records and original bytes count both: half of 512 KiB is of each.
	for _, b := range s.footer.Blocks {
		if b.Count != 5 {
			t.Errorf("a block of %d events of %d bytes twice, want 5", b.Count, each)
		}
	}
	if len(s.footer.Blocks) != n/5 {
		t.Errorf("%d blocks of %d events", len(s.footer.Blocks), n)
	}
	if err := s.abandon(); err != nil {
		t.Error(err)
	}
}

// Original bytes that do not unpack are damage, though their checksum is right.
func TestUnpackTrustsNothing(t *testing.T) {
	for _, packed := range [][]byte{nil, {0xff, 0xff}, []byte("no deflate stream")} {
		frame := le.AppendUint32(nil, uint32(len(packed)))
		frame = append(le.AppendUint32(frame, crc32.Checksum(packed, castagnoli)), packed...)
		if raw, err := unpack(bytes.NewReader(frame), 0); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q unpacks to %q, %v", packed, raw, err)
		}
	}
}

// A segment whose checksums are right, and whose footer tells of other events than its
// blocks hold, is damaged.
func TestVerifyComparesWhatIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Footer)
		ok     bool
	}{
		"nothing":      {func(*Footer) {}, true},
		"another time": {func(f *Footer) { f.Ended = f.Ended.Add(1) }, false},
		"later events": {func(f *Footer) { f.First, f.Last, f.Blocks[0].First = f.First+1, f.Last+1, f.Blocks[0].First+1 }, false},
		"one more":     {func(f *Footer) { f.Last, f.Blocks[0].Count = f.Last+1, f.Blocks[0].Count+1 }, false},
		"one less":     {func(f *Footer) { f.Last, f.Blocks[0].Count = f.Last-1, f.Blocks[0].Count-1 }, false},
	} {
		s, err := create(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(4) {
			if err := s.add(events.Recorded{Seq: i + 3, Subject: events.Join("demo", "model", "m"), Time: time.Unix(int64(i), 0), Data: []byte("no event")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		tc.change(&s.footer)
		sealed, err := s.seal()
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(sealed); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A segment that a look at the folder has found is not added again.
func TestSegmentsAreAddedOnce(t *testing.T) {
	a := &Archive{}
	for _, tc := range []struct{ first, last, end uint64 }{{1, 3, 3}, {1, 3, 3}, {4, 4, 4}, {4, 4, 4}, {2, 3, 4}, {5, 9, 9}} {
		a.add(segment{Footer: Footer{First: tc.first, Last: tc.last}})
		if first, last := a.Span(); first != 1 || last != tc.end {
			t.Errorf("behind %d to %d the archive holds %d to %d, want 1 to %d", tc.first, tc.last, first, last, tc.end)
		}
	}
	if n := len(a.segments); n != 3 {
		t.Errorf("%d segments, want 3", n)
	}
}

// Rules that came after an event was archived hold for it, but for clients' writes, which
// are as they were answered.
func TestRulesOfArchivedEvents(t *testing.T) {
	for what, tc := range map[string]struct {
		e         proto.Message
		aggregate string
		broken    bool
	}{
		"a session that breaks one": {&znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{}}}, znode.Aggregate, true},
		"a write that breaks one":   {&znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{}}}, znode.Aggregate, false},
		"a pack that breaks one":    {&znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{}}}, znode.Aggregate, false},
		"a model that breaks one":   {&model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{}}}, "m", true},
		"a model that breaks none":  {&model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "r"}}}, "m", false},
		"nothing":                   {nil, "m", false},
	} {
		if err := broken(&name{aggregate: tc.aggregate}, tc.e); (err != nil) != tc.broken {
			t.Errorf("%s: %v", what, err)
		}
	}
}
