package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
)

// TestDLQ lists, removes and purges letters, among them one that cannot be read and a
// summary of some that had no room.
func TestDLQ(t *testing.T) {
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b, err := jetstream.Connect(t.Context(), jetstream.Config{Server: s, BZID: "b", LetterMaxBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	park := func(by, stream string, seq uint64, size int) {
		t.Helper()
		p := bus.Parked{Reason: fmt.Sprint("bad record ", seq), By: by, Stream: stream, StreamSeq: seq, Subject: "ratings", Data: make([]byte, size)}
		if _, err := b.DeadLetters().Park(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	with := func(args string) []string {
		words := strings.Fields(args)
		return slices.Concat(words[:1], []string{"--nats", s.URL(), "--bzid", "b"}, words[1:])
	}
	list := func() (all []map[string]any) {
		t.Helper()
		code, out, errs := opsTool(with("dlq ls --json")...)
		if err := json.Unmarshal([]byte(out), &all); code != exitOK || err != nil {
			t.Fatalf("dlq ls --json: exit %d, %v\n%s%s", code, err, out, errs)
		}
		return all
	}
	wants(t, "[]\n", with("dlq ls --json")...)
	wants(t, "SEQ  WHEN  BY  FROM  REDRIVEN  REASON\n", with("dlq ls")...)
	wants(t, "Nothing to remove.\n", with("dlq purge --yes")...)

	park("portal", "MONOLITH", 7, 10)
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("mdlq.b.note", []byte("hello"), 5e9); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		park("trainer", "kafka:ratings/0", i+1, 20<<10)
	}
	code, out, errs := opsTool(with("dlq ls")...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitOK || len(lines) != 5 {
		t.Fatalf("dlq ls: exit %d\n%s%s", code, out, errs)
	}
	for i, want := range [][]string{
		{"1 ", " portal ", "MONOLITH 7", "false", "bad record 7"},
		{"2 ", " ? ", "unreadable: mdlq.b.note is no subject of a letter"},
		{"3 ", " trainer ", "kafka:ratings/0 1", "bad record 1"},
		{"- ", " trainer ", "kafka:ratings/0 3", "2 more refused since ", "the newest: bad record 3"},
	} {
		for _, text := range want {
			if !strings.Contains(lines[1+i], text) {
				t.Errorf("line %d of dlq ls lacks %q:\n%s", 1+i, text, out)
			}
		}
	}
	all := list()
	if len(all) != 4 || all[1]["unreadable"] != true || all[3]["seq"] != 0.0 || all[3]["more"].(map[string]any)["count"] != 2.0 {
		t.Errorf("dlq ls --json: %v", all)
	}
	if _, ok := all[0]["more"]; ok || all[0]["unreadable"] != nil {
		t.Errorf("a letter says more than it used to: %v", all[0])
	}

	refuses(t, exitUsage, "takes one sequence", with("dlq rm")...)
	refuses(t, exitUsage, "takes one sequence", with("dlq rm one")...)
	refuses(t, exitFailure, "not found", with("dlq rm 99")...)
	refuses(t, exitUsage, "--older-than", with("dlq purge --older-than=-1h")...)
	wants(t, "Letter 2 was removed.\n", with("dlq rm 2")...)
	wants(t, "{\"removed\":1}\n", with("dlq rm 1 --json")...)
	refuses(t, exitFailure, "not found", with("dlq rm 1")...)
	park("portal", "MONOLITH", 7, 10)
	wants(t, "Nothing to remove.\n", with("dlq purge --older-than 1h")...)
	wants(t, "Nothing to remove.\n", with("dlq purge --by portal")...)
	wants(t, "2 letters would be removed. Say --yes to do it.\n", with("dlq purge --by trainer")...)
	wants(t, "{\"would_remove\":2}\n", with("dlq purge --json")...)
	if n := len(list()); n != 2 {
		t.Errorf("%d letters after a purge without --yes", n)
	}
	wants(t, "2 letters were removed.\n", with("dlq purge --by trainer --yes")...)
	wants(t, "{\"removed\":0}\n", with("dlq purge --yes --json")...)
	wants(t, "[]\n", with("dlq ls --json")...)
}
