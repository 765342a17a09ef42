package jetstream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
)

func TestLetters(t *testing.T) {
	bustest.RunLetters(t, func(t *testing.T, limit int64, age time.Duration) bus.Bus {
		return connect(t, jetstream.Config{Server: startServer(t, t.TempDir(), 0), LetterMaxBytes: limit, LetterMaxAge: age})
	})
}

// raw is a connection of somebody who is not of ours.
func raw(t *testing.T, s *natsserver.Server) (*nats.Conn, natsjs.JetStream) {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func publish(t *testing.T, js natsjs.JetStream, subject, data string) uint64 {
	t.Helper()
	a, err := js.Publish(t.Context(), subject, []byte(data))
	if err != nil {
		t.Fatalf("publish on %s: %v", subject, err)
	}
	return a.Sequence
}

func park(t *testing.T, b bus.Bus, p bus.Parked) uint64 {
	t.Helper()
	seq, err := b.DeadLetters().Park(t.Context(), p)
	if err != nil {
		t.Fatalf("park %s %d: %v", p.Stream, p.StreamSeq, err)
	}
	return seq
}

func list(t *testing.T, b bus.Bus) []bus.Parked {
	t.Helper()
	all, err := b.DeadLetters().List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return all
}

// TestUnreadableLetters puts what is no letter on the letters' subjects: it is listed as
// such among the others, can be looked at, and removed.
func TestUnreadableLetters(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	_, js := raw(t, s)
	good := park(t, b, bus.Parked{Reason: "r", By: "portal", Stream: "MONOLITH", StreamSeq: 1, Subject: "monolith.bustest.model.m", Data: []byte("x")})
	bad := []struct {
		seq  uint64
		says string
	}{
		{publish(t, js, "mdlq.bustest.note", "hello"), "no subject of a letter"},
		{publish(t, js, "mdlq.bustest.MONOLITH.7", `{"reason":{"of":"a newer build"},"stream":"MONOLITH"}`), "cannot unmarshal"},
		{publish(t, js, "mdlq.bustest.MONOLITH.8", ``), "unexpected end"},
		{publish(t, js, "mdlq.bustest.MONOLITH.9", `{}`), "names no stream"},
		{publish(t, js, "mdlq.bustest.note.redriven", "hello"), "no subject of a letter"},
	}
	all := list(t, b)
	if len(all) != 1+len(bad) || all[0].Seq != good || all[0].Unreadable {
		t.Fatalf("listed: %+v", all)
	}
	for i, want := range bad {
		p := all[1+i]
		if p.Seq != want.seq || !p.Unreadable || !strings.HasPrefix(p.Reason, "unreadable: ") || !strings.Contains(p.Reason, want.says) {
			t.Errorf("listed as %+v, want letter %d and %q", p, want.seq, want.says)
		}
		if shown, err := b.DeadLetters().Show(t.Context(), want.seq); err != nil || !shown.Unreadable || string(shown.Data) != string(p.Data) {
			t.Errorf("shown as %+v, %v", shown, err)
		}
		if _, err := b.DeadLetters().Redrive(t.Context(), want.seq, nil); !errors.Is(err, events.ErrInvalid) {
			t.Errorf("re-driven: %v", err)
		}
		if err := b.DeadLetters().Remove(t.Context(), want.seq); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if left := list(t, b); len(left) != 1 || left[0].Seq != good {
		t.Fatalf("left: %+v", left)
	}
	if all[2].Stream != "MONOLITH" || all[2].StreamSeq != 7 {
		t.Errorf("a letter that cannot be read is known by its subject: %+v", all[2])
	}
}

// Letters are listed to the last one also when the connection breaks before it.
func TestAnOutageBeforeTheLastLetter(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	for i, reason := range []string{"one", "two", "the last"} {
		park(t, b, bus.Parked{Reason: reason, By: "portal", Stream: "MONOLITH", StreamSeq: 1 + uint64(i), Subject: "monolith.bustest.model.m"})
	}
	var sent atomic.Int64
	relay.Alter(func(message []byte) []byte {
		if !bytes.Contains(message, []byte("the last")) || sent.Add(1) > 1 {
			return message
		}
		relay.Drop()
		return nil
	})
	defer relay.Alter(nil)
	var got []string
	for _, p := range list(t, b) {
		got = append(got, p.Reason)
	}
	if want := []string{"one", "two", "the last"}; !slices.Equal(got, want) || sent.Load() < 2 {
		t.Errorf("listed: %q, want %q; the last one was sent %d times", got, want, sent.Load())
	}
}

// A letter in whose place something else is put while it is being removed is not said to be
// removed, and what has come stays.
func TestPurgeRemovesWhatItHasSeen(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	_, js := raw(t, s)
	for i := range uint64(3) {
		park(t, b, bus.Parked{Reason: "r", By: "portal", Stream: "MONOLITH", StreamSeq: 1 + i, Subject: "monolith.bustest.model.m"})
	}
	var newer uint64
	n, err := b.DeadLetters().Purge(t.Context(), func(p bus.Parked) bool {
		if p.StreamSeq == 2 {
			newer = publish(t, js, "mdlq.bustest.MONOLITH.2", `{"reason":"newer","stream":"MONOLITH","stream_seq":2}`)
		}
		return p.Reason == "r"
	})
	if n != 2 || err != nil {
		t.Errorf("%d letters purged, %v, want 2", n, err)
	}
	if left := list(t, b); len(left) != 1 || left[0].Seq != newer || left[0].StreamSeq != 2 {
		t.Errorf("left: %+v", left)
	}
}

// TestLettersOfEarlierBuilds reads what the first releases stored, bytes and stream.
func TestLettersOfEarlierBuilds(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	_, js := raw(t, s)
	_, err := js.CreateStream(t.Context(), natsjs.StreamConfig{
		Name: "MONOLITH_DLQ", Subjects: []string{"mdlq.>"}, Storage: natsjs.FileStorage, Discard: natsjs.DiscardNew,
		AllowDirect: true, AllowAtomicPublish: true, Duplicates: 20 * time.Minute, MaxBytes: 1 << 20, MaxMsgSize: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	seq := publish(t, js, "mdlq.bustest.MONOLITH.12", `{"seq":0,"time":"0001-01-01T00:00:00Z","reason":"invalid event: no model of that name","by":"portal","stream":"MONOLITH","stream_seq":12,`+
		`"subject":"monolith.bustest.model.m.request","header":{"ce-id":["a"],"Nats-Msg-Id":["a"]},"data":"eyJ4IjoxfQ==","redriven":false}`)
	driven := publish(t, js, "mdlq.bustest.csv:ratings%2Ecsv.3", `{"seq":0,"time":"0001-01-01T00:00:00Z","reason":"bad column 3","by":"demo","stream":"csv:ratings.csv","stream_seq":3,"subject":"ratings","data":null,"redriven":false}`)
	publish(t, js, "mdlq.bustest.csv:ratings%2Ecsv.3.redriven", `{"letter":2,"seq":99}`)

	b := connect(t, jetstream.Config{Server: s})
	all := list(t, b)
	if len(all) != 2 {
		t.Fatalf("listed: %+v", all)
	}
	all[0].Time, all[1].Time = time.Time{}, time.Time{} // the server's
	got, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"seq":1,"time":"0001-01-01T00:00:00Z","reason":"invalid event: no model of that name","by":"portal","stream":"MONOLITH","stream_seq":12,` +
		`"subject":"monolith.bustest.model.m.request","header":{"Nats-Msg-Id":["a"],"ce-id":["a"]},"data":"eyJ4IjoxfQ==","redriven":false},` +
		`{"seq":2,"time":"0001-01-01T00:00:00Z","reason":"bad column 3","by":"demo","stream":"csv:ratings.csv","stream_seq":3,"subject":"ratings","data":null,"redriven":true}]`
	if string(got) != want {
		t.Errorf("listed as\n%s, want\n%s", got, want)
	}
	for _, old := range all {
		if again := park(t, b, old); again != old.Seq {
			t.Errorf("letter %d is parked again as %d", old.Seq, again)
		}
	}
	for _, seq := range []uint64{seq, driven} {
		if err := b.DeadLetters().Remove(t.Context(), seq); err != nil {
			t.Fatalf("remove: %v", err)
		}
	}
	for _, old := range all {
		park(t, b, old)
	}
	if left := list(t, b); len(left) != 0 {
		t.Errorf("after their removal, and once more parked: %+v", left)
	}
}

// TestLetterAge is that of the configuration, of an operator, or the usual one.
func TestLetterAge(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	_, js := raw(t, s)
	age := func() time.Duration {
		t.Helper()
		info, err := js.Stream(t.Context(), "MONOLITH_DLQ")
		if err != nil {
			t.Fatal(err)
		}
		return info.CachedInfo().Config.MaxAge
	}
	connect(t, jetstream.Config{Server: s})
	if got := age(); got != 180*24*time.Hour {
		t.Fatalf("a new stream keeps letters for %v", got)
	}
	connect(t, jetstream.Config{Server: s, LetterMaxAge: time.Minute})
	if got := age(); got != time.Minute {
		t.Fatalf("the configuration wants a minute, letters are kept for %v", got)
	}
	connect(t, jetstream.Config{Server: s}) // which says nothing of it
	if got := age(); got != time.Minute {
		t.Fatalf("letters are kept for %v, an operator wants a minute", got)
	}
}

// TestLettersOfTwoNamespaces are apart, though about the same record.
func TestLettersOfTwoNamespaces(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	var both [2]bus.Bus
	var seqs [2]uint64
	for i, bzid := range []string{"aa", "bb"} {
		b, err := jetstream.Connect(t.Context(), jetstream.Config{Server: s, BZID: bzid})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		seqs[i] = park(t, b, bus.Parked{Reason: "no JSON", By: "trainer", Stream: "kafka:ratings/0", StreamSeq: 7, Subject: "ratings", Data: []byte(bzid)})
		both[i] = b
	}
	for i, b := range both {
		if all := list(t, b); len(all) != 1 || all[0].Seq != seqs[i] {
			t.Errorf("namespace %d lists %+v", i, all)
		}
		l, other := b.DeadLetters(), seqs[1-i]
		_, shown := l.Show(t.Context(), other)
		_, driven := l.Redrive(t.Context(), other, nil)
		for what, err := range map[string]error{"show": shown, "redrive": driven, "remove": l.Remove(t.Context(), other)} {
			if !errors.Is(err, bus.ErrNotFound) {
				t.Errorf("%s of the other namespace's letter: %v", what, err)
			}
		}
		if n, err := l.Purge(t.Context(), func(bus.Parked) bool { return true }); n != 1 || err != nil {
			t.Errorf("purge = %d, %v, want the one of its own", n, err)
		}
	}
}

// A whole stream is full, of others' messages: letters are counted in summaries, and what is
// there can be removed, which is remembered, and makes room.
func TestLettersFull(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s, LetterMaxBytes: 64 << 10})
	_, js := raw(t, s)
	fullLetters(t, b, js)
}

// It is the same on three replicas.
func TestReplicatedLettersFull(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	b := connect(t, jetstream.Config{URL: c.URL(), Replicas: 3, LetterMaxBytes: 64 << 10})
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	fullLetters(t, b, js)
}

func fullLetters(t *testing.T, b bus.Bus, js natsjs.JetStream) {
	t.Helper()
	p := bus.Parked{Reason: "r", By: "portal", Stream: "MONOLITH", StreamSeq: 1, Subject: "monolith.bustest.model.m", Data: []byte("xyz")}
	held := park(t, b, p)
	for i, size := 0, 30<<10; size > 0; i++ {
		if _, err := js.Publish(t.Context(), fmt.Sprintf("mdlq.other.x.%d", i), make([]byte, size)); err != nil {
			size /= 2
		}
	}
	for i := range uint64(3) {
		p.StreamSeq = 2 + i
		if seq := park(t, b, p); seq != 0 {
			t.Fatalf("a full stream took letter %d", seq)
		}
	}
	all := list(t, b)
	if len(all) != 2 || all[0].Seq != held || all[1].More == nil || all[1].More.Count != 3 || all[1].StreamSeq != 4 {
		t.Fatalf("listed: %+v", all)
	}
	if err := b.DeadLetters().Remove(t.Context(), held); err != nil {
		t.Fatalf("remove from a full stream: %v", err)
	}
	p.StreamSeq = 1
	park(t, b, p)
	if all := list(t, b); len(all) != 1 || all[0].More.Count != 3 {
		t.Fatalf("removed and parked again: %+v", all)
	}
	if left, err := b.DeadLetters().Purge(t.Context(), func(bus.Parked) bool { return true }); err != nil || left != 1 {
		t.Fatalf("purge of the summary = %d, %v", left, err)
	}
	if all := list(t, b); len(all) != 0 {
		t.Fatalf("left: %+v", all)
	}
	if known, err := b.DeadLetters().Knows(t.Context(), p); err != nil || !known {
		t.Errorf("with no summary left, the letter that was removed is remembered: %v, %v", known, err)
	}
}

// TestLettersParkedMeanwhile parks a letter while letters are read, more than are sent at once and of
// which another's is the last: each that was there is read once, and no later one.
func TestLettersParkedMeanwhile(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	_, js := raw(t, s)
	letter := func(seq uint64, size int) uint64 {
		return park(t, b, bus.Parked{Reason: "r", By: "portal", Stream: fmt.Sprintf("csv:%d", seq%4), StreamSeq: seq, Subject: "ratings", Data: make([]byte, size)})
	}
	var there, read []uint64
	for i := range uint64(24) {
		there = append(there, letter(1+i, 640<<10))
	}
	publish(t, js, "mdlq.other.x.1", "another namespace's")
	err := b.DeadLetters().Each(t.Context(), func(got bus.Parked) error {
		if read = append(read, got.Seq); len(read) == 1 {
			letter(100, 1)
		}
		return nil
	})
	if err != nil || !slices.Equal(read, there) {
		t.Errorf("read %v, %v, want %v", read, err, there)
	}
}

// A list of letters is read by one reader, however many there are.
func TestLettersAreReadByOneReader(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	const n = 20
	for i := range uint64(n) {
		park(t, b, bus.Parked{Reason: "r", By: "x", Stream: "S", StreamSeq: i + 1, Subject: "monolith.bustest.model.m", Data: []byte("x")})
	}
	var readers atomic.Int64
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte("consumer_create_response")) {
			readers.Add(1)
		}
		return message
	})
	got := list(t, b)
	if made := readers.Load(); len(got) != n || made > 3 { // of marks, letters and summaries
		t.Errorf("%d letters were read by %d readers, want %d by 3", len(got), made, n)
	}
}

// A request that is sent again is the request of whoever does that, not of whoever asked first.
func TestWhoSendsARequestAgainAsksForIt(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{URL: s.URL()})
	ask := bus.Draft{Subject: events.Join("bustest", "model", "m").Request(), Expect: bus.Any,
		Event: &model.Event{Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{Reason: "mine"}}}}
	seqs, err := b.Log().Append(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	own, err := b.Log().Get(t.Context(), seqs[0])
	if err != nil {
		t.Fatal(err)
	}
	if own.Header.Asked.By == "" {
		t.Fatalf("nobody asks: %+v", own.Header)
	}
	letter := park(t, b, bus.Parked{Reason: "refused", By: "portal", Stream: "MONOLITH", StreamSeq: seqs[0], Subject: string(own.Subject), Data: own.Data,
		Header: map[string][]string{"asked-by": {"somebody else"}, "asked-from": {"elsewhere"}, "asked-proof": {"x"}}})
	seq, err := b.DeadLetters().Redrive(t.Context(), letter, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Log().Get(t.Context(), seq)
	if err != nil || again.Header.Asked != own.Header.Asked {
		t.Errorf("it is asked by %+v, %v; want %+v", again.Header.Asked, err, own.Header.Asked)
	}
}
