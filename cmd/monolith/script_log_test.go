package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host/archiving"
	"github.com/monolith-go/monolith/internal/host/connect"
)

// scriptBus is a page's log. The commands find it by MONOLITH_NATS and MONOLITH_BZID.
type scriptBus struct {
	*jetstream.Bus
	url, bzid string
	ctx       context.Context
}

// scriptBusKey is the key of the place for it.
type scriptBusKey struct{}

func scriptOf(ts *testscript.TestScript) *scriptBus {
	b, ok := ts.Value(scriptBusKey{}).(**scriptBus)
	if !ok || *b == nil {
		ts.Fatalf("the page has no log yet: say log BZID first")
	}
	return *b
}

// These words of the pages give them a log, see TestScripts:
//
//	log BZID                 an embedded NATS until the page's end, with room for 256 KiB of dead letters
//	append [-expect SEQ] FILE  appends the file's facts, each line a subject and JSON, and prints their sequences
//	loads N                  appends a load of each of the models m0, m1 and so on
//	publish SUBJECT TEXT     publishes bytes as anybody might
//	park BY STREAM SEQ SIZE  parks a dead letter
//	trim DIR [--yes]         trims all that the archive holds, without the 20 minutes that monolith trim leaves alone
//	role NAME ARGS...        runs a role as a process until the page's end, and returns once it is ready
func scriptLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: log BZID")
	}
	s, err := natsserver.Start(natsserver.Config{Dir: ts.MkAbs("nats")})
	ts.Check(err)
	ctx, cancel := context.WithTimeout(scriptT(ts).Context(), opsWithin)
	b, err := jetstream.Connect(ctx, jetstream.Config{Server: s, BZID: args[0], LetterMaxBytes: 256 << 10})
	ts.Check(err)
	ts.Defer(func() {
		cancel()
		_ = b.Close()
		_ = s.Close()
	})
	*ts.Value(scriptBusKey{}).(**scriptBus) = &scriptBus{b, s.URL(), args[0], ctx}
	ts.Setenv(connect.EnvNATS, s.URL())
	ts.Setenv("MONOLITH_BZID", args[0])
	ts.Setenv("MONOLITH_LOG", "error")
}

func scriptAppend(ts *testscript.TestScript, neg bool, args []string) {
	expect := bus.Any
	if len(args) == 3 && args[0] == "-expect" {
		n, err := strconv.ParseUint(args[1], 10, 64)
		ts.Check(err)
		expect, args = n, args[2:]
	}
	if neg || len(args) != 1 {
		ts.Fatalf("usage: append [-expect SEQ] FILE")
	}
	b := scriptOf(ts)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		subject, body, _ := strings.Cut(strings.TrimSpace(line), " ")
		e, err := catalog.Decode(events.Subject(subject), false, []byte(body))
		ts.Check(err)
		seqs, err := b.Log().Append(b.ctx, bus.Draft{Subject: events.Subject(subject), Event: e, Expect: expect})
		ts.Check(err)
		fmt.Fprintln(ts.Stdout(), seqs[0])
	}
}

func scriptLoads(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: loads N")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	b := scriptOf(ts)
	for i := range n {
		name := fmt.Sprint("m", i)
		_, err := b.Log().Append(b.ctx, bus.Draft{Subject: events.Join(b.bzid, "model", name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_LoadAccepted{
			LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: "/d", NumShard: 1, Version: 1}}}}})
		ts.Check(err)
	}
}

func scriptPublish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: publish SUBJECT TEXT")
	}
	nc, err := nats.Connect(scriptOf(ts).url)
	ts.Check(err)
	defer nc.Close()
	_, err = nc.Request(args[0], []byte(args[1]), opsWithin)
	ts.Check(err)
}

func scriptPark(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: park BY STREAM SEQ SIZE")
	}
	seq, err := strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	size, err := strconv.Atoi(args[3])
	ts.Check(err)
	b := scriptOf(ts)
	_, err = b.DeadLetters().Park(b.ctx, bus.Parked{Reason: "bad record " + args[2], By: args[0], Stream: args[1], StreamSeq: seq, Subject: "ratings", Data: make([]byte, size)})
	ts.Check(err)
}

func scriptTrim(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: trim DIR [--yes]")
	}
	b := scriptOf(ts)
	conn := connect.Config{NATS: b.url, BZID: b.bzid, Level: "error", Archive: ts.MkAbs(args[0])}
	ts.Check(archiving.Trim(b.ctx, conn, 0, time.Nanosecond, len(args) == 2 && args[1] == "--yes", ts.Stdout()))
}

func scriptRole(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: role NAME ARGS...")
	}
	b, t := scriptOf(ts), scriptT(ts)
	file := ts.MkAbs(filepath.Join(".tmp", args[0]+".status"))
	c := startChild(t, append(args, "--nats", b.url, "--bzid", b.bzid, "--status-file", file)...)
	ts.Defer(c.kill)
	if !until(t, c, args[0]+" to be ready", func() bool { _, err := os.Stat(file); return err == nil }) {
		ts.Fatalf("%s ended: %v\n%s", args[0], c.state, tail(c.err.String()))
	}
}
