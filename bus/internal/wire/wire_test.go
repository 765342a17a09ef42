package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

func TestInLog(t *testing.T) {
	for subject, want := range map[string]bool{
		"monolith.x.model.m":         true,
		"monolith.x.model.m.request": true,
		"monolith.x.cmd.portal.load": false,
		"monolith.x.model":           false,
		"msync.x.model.m":            false,
	} {
		if got := InLog(subject); got != want {
			t.Errorf("InLog(%q) = %v", subject, got)
		}
	}
}

func TestLeaseKeyIsReversible(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a.b", "a..b", ".a", "a.", "a/b", "a=2Fb", "a b", "ä", "A", "a=", "a-_9", "*", ">"} {
		key := LeaseKey(name)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q share the key %q", name, other, key)
		}
		seen[key] = name
		if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.=/") != "" ||
			strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") || strings.Contains(key, "..") {
			t.Errorf("%q is no key", key)
		}
	}
}

// FuzzParseRefusal: whatever a service answers, a refusal has a code, and ours survives.
func FuzzParseRefusal(f *testing.F) {
	f.Add([]byte(`{"error":{"code":"INVALID","message":"no"}}`))
	f.Add([]byte(`{"error":null}`))
	f.Add([]byte(`{"error":{"code":""}}`))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := ParseRefusal(body, "500", "standby")
		if c == nil || c.Code == "" {
			t.Fatalf("no code in %v", c)
		}
		if again := ParseRefusal(RefusalBody(c), "lost", ""); again.Code != strings.ToValidUTF8(c.Code, "\ufffd") {
			t.Fatalf("%+v came back as %+v", c, again)
		}
	})
}

// FuzzLetter: what is parked comes back as it was, apart from what is said to be cut.
func FuzzLetter(f *testing.F) {
	f.Add("bad", "portal", "MONOLITH", "monolith.x.model.m", uint64(3), []byte(`{"a":1}`))
	f.Add("\xff", "p", "kafka:a/1", "a", uint64(0), []byte{0xff, 0})
	f.Fuzz(func(t *testing.T, reason, by, stream, subject string, seq uint64, data []byte) {
		in := bus.Parked{Reason: reason, By: by, Stream: stream, Subject: subject, StreamSeq: seq, Data: data, Seq: 9, Redriven: true}
		if err := CheckSubject(LetterSubject("b z", in), false); err != nil {
			t.Fatalf("letter's subject: %v", err)
		}
		raw, err := EncodeLetter(in)
		if reason == "" || by == "" || stream == "" {
			if !errors.Is(err, events.ErrInvalid) {
				t.Fatalf("EncodeLetter = %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		at := LetterSubject("b z", in)
		out := DecodeLetter(at, raw)
		if out.Unreadable || out.StreamSeq != seq || !bytes.Equal(out.Data, data) || out.Seq != 0 || out.Redriven {
			t.Fatalf("%+v came back as %+v", in, out)
		}
		if s, n, ok := ParseLetter(at); !ok || s != stream || n != seq {
			t.Fatalf("%s is the letter of %q %d, %v; want %q %d", at, s, n, ok, stream, seq)
		}
		if len(raw) <= len(Tombstone) {
			t.Fatalf("a letter of %d bytes: its tombstone does not fit into its place", len(raw))
		}
	})
}

// FuzzDecodeLetter: bytes that are no letter are an unreadable one, with the bytes.
func FuzzDecodeLetter(f *testing.F) {
	f.Add([]byte(`{"reason":"x","data":"AA=="}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := DecodeLetter("mdlq.b.s.7", raw)
		if !p.Unreadable && !json.Valid(raw) {
			t.Fatal("no JSON was read as a letter")
		}
		if p.Unreadable && (p.Stream != "s" || p.StreamSeq != 7 || !bytes.Equal(p.Data, raw) || p.Reason == "") {
			t.Fatalf("unreadable: %+v", p)
		}
	})
}

// FuzzHeader: the envelope survives the headers, and any header map can be read.
func FuzzHeader(f *testing.F) {
	f.Add("id", "loadRequested", "portal", "c", "d", "00-1-2-3", "content-type", "application/protobuf; x=y")
	f.Add("", "", "", "", "", "", "CE-ID", "x")
	f.Fuzz(func(t *testing.T, id, typ, source, correlation, causation, traceparent, key, value string) {
		in := events.Header{ID: id, Type: typ, Source: source, Correlation: correlation, Causation: causation, Traceparent: traceparent}
		m := Encode(in, "monolith.x.model.m", time.Unix(1, 2))
		out, binary := Decode(m, LogStream, 7)
		if id == "" {
			in.ID = "MONOLITH-7"
		}
		if out != in || binary {
			t.Fatalf("%+v came back as %+v, binary %v", in, out, binary)
		}
		if h, _ := Decode(map[string][]string{key: {value}}, LogStream, 7); h.ID == "" {
			t.Fatal("no id")
		}
	})
}
