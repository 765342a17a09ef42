package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/projections/models"
)

// TestBadInput throws everything broken at one stack, at every door: what it is said of
// it, that it is kept once with its reason, and that the work goes on behind it.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	w := opsServe(t, opsConfig(dir))
	b := &badInput{opsWorld: w, nc: w.plain()}
	b.fromKafka(t)
	b.fromCSV(t)
	b.fromNATS(t)
	b.mended(t)
	b.toNobody(t)
	b.tooLarge(t)
	b.goesOn(t)
	b.again(t, dir)
}

// badInput is what has been thrown at a stack so far.
type badInput struct {
	*opsWorld
	nc      *nats.Conn
	records map[int64]string    // reasons, by offset in the topic's first partition
	wrongs  map[uint64]opsWrong // by sequence
}

// fromKafka writes records that no model can learn from, between those that it can.
func (b *badInput) fromKafka(t *testing.T) {
	w := b.opsWorld
	w.rate(100)
	b.records = map[int64]string{}
	for _, r := range []struct{ value, reason string }{
		{"not json", "not one JSON object"},
		{`{"userId":1,"rating":4.0,"timestamp":1}`, `field "movieId" is missing`},
		{`{"userId":1,"movieId":99999999999999999999999999,"rating":4.0,"timestamp":1}`, "not a whole number"},
		{`{"userId":281474976710656,"movieId":1,"rating":4.0,"timestamp":1}`, "outside 0 to 2^48-1"},
		{`{"userId":1,"movieId":1,"rating":1e999,"timestamp":1}`, "not a number"},
		{"", "empty"},
	} {
		b.records[w.put(r.value, nil)] = r.reason
	}
	w.rate(100)
	ends := w.learnt()
	w.agree()
	w.once(ends)
	kafkaLetters := opsLettersOf(w.letters(), "kafka:ratings/0")
	for at, reason := range b.records {
		if ls := kafkaLetters[uint64(at)]; len(ls) != 1 || !strings.Contains(ls[0].Reason, reason) || ls[0].By != "trainer" || ls[0].Subject != host.RatingsTopic {
			t.Errorf("record %d: letters %+v, want one because %q", at, ls, reason)
		}
	}
	if len(kafkaLetters) != len(b.records) {
		t.Errorf("%d records are parked, %d are bad", len(kafkaLetters), len(b.records))
	}
}

// fromCSV parks a file's broken rows, as the demo reads it; a second start parks nothing more.
func (b *badInput) fromCSV(t *testing.T) {
	w := b.opsWorld
	csv := filepath.Join(t.TempDir(), "broken.csv")
	w.must("write the file", os.WriteFile(csv, []byte("userId,movieId,rating,timestamp\n1,2,4.0,10\n1,2\n1,2,nine,11\n-1,2,3.0,12\n1,3,9.5,13\n2,2,4.5,14\n"), 0o644))
	for range 2 {
		s, err := demo.OpenSource(demo.Config{Data: csv, Rate: 1000})
		w.must("open the file", err)
		if s.Rows != 6 || s.Total() != 2 {
			t.Errorf("%d rows, %d of them good", s.Rows, s.Total())
		}
		w.must("park its broken rows", s.ParkBroken(w.soon(), w.job.Bus.DeadLetters()))
	}
	code, out, stderr := w.tool("dlq", "ls")
	if code != exitOK {
		t.Fatalf("dlq ls: %d, %s", code, stderr)
	}
	for _, want := range []string{"csv:broken.csv 3", "has 2 fields", "csv:broken.csv 4", `rating "nine" is not a number`, "csv:broken.csv 5", "userId -1", "csv:broken.csv 6",
		"rating 9.5", "kafka:ratings/0", `field "movieId" is missing`} {
		if n := strings.Count(out, want); n != 1 {
			if want == "kafka:ratings/0" && n == len(b.records) {
				continue
			}
			t.Errorf("dlq ls says %q %d times:\n%s", want, n, out)
		}
	}
}

// opsWrong is a message that its owner parks.
type opsWrong struct{ subject, body, by, reason string }

// opsWrongs are messages on every subject of the log.
func opsWrongs() []opsWrong {
	wrongs := []opsWrong{
		{"model.movies.request", "not json", "portal", "malformed"},
		{"model.movies.request", `{"dance":{}}`, "portal", "unknown"},
		{"model.movies.request", `{"loadRequested":{"load":{"modelName":"other","modelDir":"/x"}}}`, "portal", "movies"},
		{"model.movies.request", `{"loadAccepted":{"load":{"modelName":"movies","modelDir":"/x","numShard":1,"version":"1"}}}`, "portal", "is a fact"},
		{"model.movies", "not json", "portal", "malformed"},
		{"model.movies", `{"loadRequested":{"load":{"modelName":"movies","modelDir":"/x"}}}`, "portal", "is a request, publish it on monolith.demo.model.movies.request"},
	}
	for _, owned := range []struct{ by, subject string }{
		{"publisher", "publish.movies"},
		{"replica-registry", "container.serving-0-0"},
		{"replica-registry", "replica.movies%2Fps:0%2F0"},
		{"replica-registry", "server.serving-0-0"},
		{"replica-registry", "shard.movies%2Fps:0"},
		{"trainer", "training.movies"},
		{"trainer", "training.movies%2Ftrainer-0"},
		{"model-sync", "sync.movies%2Fps_0%2Fserving-0-0"},
	} {
		subject := strings.ReplaceAll(owned.subject, "%2F", events.Escape("/"))
		wrongs = append(wrongs, opsWrong{subject, "\x00\xff", owned.by, "malformed"}, opsWrong{subject, `{"dance":{}}`, owned.by, "unknown"},
			opsWrong{subject + ".request", "[]", owned.by, "malformed"}, opsWrong{subject + ".request", `{"dance":{}}`, owned.by, "unknown"})
	}
	return wrongs
}

// fromNATS publishes anything on any subject of the log. Each is parked by its owner, once.
func (b *badInput) fromNATS(t *testing.T) {
	w := b.opsWorld
	b.wrongs = map[uint64]opsWrong{}
	for _, x := range opsWrongs() {
		b.wrongs[w.publish(b.nc, "monolith.demo."+x.subject, []byte(x.body))] = x
	}
	w.until("everything wrong to be parked", func() (bool, string) {
		got := opsLettersOf(w.letters(), "MONOLITH")
		for seq, x := range b.wrongs {
			if len(got[seq]) == 0 {
				return false, fmt.Sprintf("%s %q (sequence %d) is not parked", x.subject, x.body, seq)
			}
		}
		return true, ""
	})
	got := opsLettersOf(w.letters(), "MONOLITH")
	for seq, x := range b.wrongs {
		if ls := got[seq]; len(ls) != 1 || ls[0].By != x.by || !strings.Contains(ls[0].Reason, x.reason) || string(ls[0].Data) != x.body || ls[0].Subject != "monolith.demo."+x.subject {
			t.Errorf("%s %q: letters %+v, want one by %s because %q", x.subject, x.body, ls, x.by, x.reason)
		}
	}
	if len(got) != len(b.wrongs) {
		t.Errorf("%d messages are parked, %d were wrong", len(got), len(b.wrongs))
	}
	w.job.Catalog.Read(func(s models.State) {
		if len(s.Skipped) == 0 {
			t.Error("the catalogue has counted nothing as skipped")
		}
	})
}

// mended sends a mended letter again, once; a record or a row is mended where it came from.
func (b *badInput) mended(t *testing.T) {
	w := b.opsWorld
	got := opsLettersOf(w.letters(), "MONOLITH")
	var mend uint64
	for seq, x := range b.wrongs {
		if x.body == `{"dance":{}}` && x.subject == "model.movies.request" {
			mend = got[seq][0].Seq
		}
	}
	body := filepath.Join(t.TempDir(), "body.json")
	w.must("write the body", os.WriteFile(body, fmt.Appendf(nil, `{"unloadRequested":{"reason":"mended"}}`), 0o644))
	code, out, stderr := w.tool("dlq", "redrive", fmt.Sprint(mend), "--data", body)
	var again struct{ Seq uint64 }
	if code != exitOK || json.Unmarshal([]byte(out), &again) != nil || again.Seq == 0 {
		t.Fatalf("redrive: %d %s %s", code, out, stderr)
	}
	w.must("wait for the unload", demo.Await(w.soon(), w.job.Catalog, func(s models.State) bool { return s.Models[host.ModelName].Load.V == nil }))
	if code, _, stderr := w.tool("dlq", "redrive", fmt.Sprint(mend), "--data", body); code != exitFailure || !strings.Contains(stderr, "re-driven before") {
		t.Errorf("a second redrive: %d %s", code, stderr)
	}
	for stream, sentence := range map[string]string{"kafka:ratings/0": "fix it at its source", "csv:broken.csv": "fix it at its source"} {
		for _, ls := range opsLettersOf(w.letters(), stream) {
			if code, _, stderr := w.tool("dlq", "redrive", fmt.Sprint(ls[0].Seq)); code != exitFailure || !strings.Contains(stderr, sentence) || !strings.Contains(stderr, stream) {
				t.Errorf("redrive of a letter of %s: %d %s", stream, code, stderr)
			}
			break
		}
	}
	code, out, _ = w.tool("dlq", "show", fmt.Sprint(mend))
	if code != exitOK || !strings.Contains(out, `"redriven": true`) || !strings.Contains(out, `"text": "{\"dance\":{}}"`) {
		t.Errorf("dlq show: %d\n%s", code, out)
	}
	if code, _, stderr := w.tool("dlq", "show", "99999"); code != exitFailure || !strings.Contains(stderr, "not found") {
		t.Errorf("dlq show of nothing: %d %s", code, stderr)
	}
}

// toNobody sends a command into a namespace that nobody serves.
func (b *badInput) toNobody(t *testing.T) {
	w := b.opsWorld
	if _, err := w.job.Bus.Commands().Call(w.soon(), "nobody", "portal.load", []byte("{}")); !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), "monolith.nobody.cmd.portal.load") ||
		!strings.Contains(err.Error(), "is that role running?") {
		t.Errorf("a command to nobody: %v", err)
	}
	if _, err := b.nc.Request("monolith.nobody.cmd.portal.load", nil, opsWithin); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a plain request to nobody: %v", err)
	}
}

// tooLarge is what breaks a rule of the event, the contract, and plain NATS within its
// payload and beyond it.
func (b *badInput) tooLarge(t *testing.T) {
	w := b.opsWorld
	_, err := w.job.Bus.Log().Append(w.soon(), bus.Draft{Subject: events.Join("demo", "model", "big").Request(), Expect: bus.Any, Event: &model.Event{
		Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{Reason: strings.Repeat("x", catalog.MaxBytes)}}}})
	if !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes long, at most %d are allowed", catalog.MaxBytes, events.MaxReason)) {
		t.Errorf("a large reason: %v, want ErrInvalid that names the bound", err)
	}
	_, err = w.job.Bus.Log().Append(w.soon(), bus.Draft{Subject: events.Join("demo", "training", "big"), Expect: bus.Any, Event: &training.Event{
		Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 1, ModelDir: "/exports", SubModels: slices.Repeat([]string{strings.Repeat("x", events.MaxText)}, 40)}}}})
	if !errors.Is(err, bus.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(catalog.MaxBytes)) {
		t.Errorf("a large event: %v, want ErrTooLarge that names %d", err, catalog.MaxBytes)
	}
	m, err := b.nc.Request("monolith.demo.model.movies.request", make([]byte, 900<<10), opsWithin)
	if err != nil || !strings.Contains(string(m.Data), "message size exceeds maximum allowed") {
		t.Errorf("a large plain message: %v, %v", m, err)
	}
	if err := b.nc.Publish("monolith.demo.model.movies.request", make([]byte, 2<<20)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("a message beyond the payload: %v", err)
	}
}

// goesOn holds that the work does, owner by owner: load, plan, copy, serve, learn, checkpoint.
func (b *badInput) goesOn(t *testing.T) {
	w := b.opsWorld
	w.load()
	w.rate(100)
	ends := w.learnt()
	w.agree()
	w.once(ends)
	w.replayed()
	topic, err := audit.ReadTopic(w.soon(), kafka.Plain, w.Brokers(), host.RatingsTopic, 1e6)
	w.must("read the topic", err)
	r := report.Report{Run: report.Run{Started: time.Now(), BZID: "demo", Job: host.JobName, Model: host.ModelName, Topic: host.RatingsTopic, Shards: 2, ServeShards: 2, Replicas: 2}}
	w.must("measure", audit.Measure(w.soon(), audit.MeasureInputs{Log: w.job.Bus.Log(), Deltas: w.job.Bus.Deltas(), DeadLetters: w.job.Bus.DeadLetters(), Ratings: topic}, &r))
	if r.RatingsTrained != int64(w.sent) || r.RatingsRejected != int64(len(b.records)+4) {
		t.Errorf("%d ratings trained and %d refused, want %d and %d", r.RatingsTrained, r.RatingsRejected, w.sent, len(b.records)+4)
	}
}

// again is a second start, which takes up its work and parks nothing again.
func (b *badInput) again(t *testing.T, dir string) {
	w := b.opsWorld
	before := w.letters()
	w.halt()
	if told := w.log.String(); strings.Contains(told, "was not recorded") {
		t.Errorf("a shard could not say goodbye behind what others put on its subject:\n%s", told)
	}
	w = opsServe(t, opsConfig(dir))
	w.sent = 300
	w.rate(50)
	w.learnt()
	w.agree()
	if after := w.letters(); len(after) != len(before) {
		t.Errorf("%d letters before the restart, %d behind it: %+v", len(before), len(after), after[len(before):])
	}
	w.replayed()
}

// opsLettersOf are the letters of one stream, by sequence there.
func opsLettersOf(all []bus.Parked, stream string) map[uint64][]bus.Parked {
	out := map[uint64][]bus.Parked{}
	for _, p := range all {
		if p.Stream == stream {
			out[p.StreamSeq] = append(out[p.StreamSeq], p)
		}
	}
	return out
}

// TestLogsAway takes Kafka and then NATS away while ratings stream in. Whatever was
// acked is in the topic once, learnt once, and served.
func TestLogsAway(t *testing.T) {
	w := opsServe(t, opsConfig(t.TempDir()))
	w.rate(100)
	w.learnt()

	stream := opsStream(w)
	stream.reach(w, 100)
	start := w.stopKafka()
	stream.fail(w)
	start()
	stream.reach(w, 100)
	// NATS goes while Kafka keeps taking ratings: they wait there.
	start = w.stopNATS()
	stream.reach(w, 100)
	start()
	stream.reach(w, 100)
	acked := stream.stop()

	ends := w.learnt()
	w.agree()
	w.once(ends)
	w.replayed()
	seen := map[string]int{}
	_, _, err := kafka.Plain.Scan(w.soon(), w.Brokers(), host.RatingsTopic, func(r kafka.Record) error {
		seen[r.Headers[rating.HeaderIndex]]++
		return nil
	})
	w.must("read the topic", err)
	for _, i := range acked {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("rating %d was acked and stands %d times in the topic", i, seen[fmt.Sprint(i)])
		}
	}
	for i, n := range seen {
		if n != 1 {
			t.Errorf("rating %s stands %d times in the topic", i, n)
		}
	}
	if letters := w.letters(); len(letters) > 0 {
		t.Errorf("an outage has refused %+v", letters)
	}
}

// opsRatings writes one rating after the other, beside the test.
type opsRatings struct {
	acks, errs chan int
	end        context.CancelFunc
	done       chan []int
}

func opsStream(w *opsWorld) *opsRatings {
	ctx, cancel := context.WithCancel(w.ctx)
	s := &opsRatings{acks: make(chan int), errs: make(chan int), end: cancel, done: make(chan []int, 1)}
	w.t.Cleanup(cancel)
	first := w.sent
	go func() {
		writer := kafka.NewWriter(kafka.WriterConfig{Brokers: w.Brokers()})
		defer writer.Close()
		var acked []int
		defer func() { s.done <- acked }()
		for i := first; ctx.Err() == nil; i++ {
			// Longer than this, and the test only waits; what is not acked may be lost.
			call, stop := context.WithTimeout(ctx, 500*time.Millisecond)
			_, err := writer.Write(call, w.record(i))
			stop()
			tell := s.acks
			if err == nil {
				acked = append(acked, i)
			} else {
				tell = s.errs
			}
			select {
			case tell <- i:
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond): // nobody counts just now
			}
		}
	}()
	return s
}

// reach waits for n more acks.
func (s *opsRatings) reach(w *opsWorld, n int) { w.t.Helper(); s.count(w, s.acks, n, "acks") }

// fail waits for a rating that was not acked.
func (s *opsRatings) fail(w *opsWorld) { w.t.Helper(); s.count(w, s.errs, 1, "an error") }

func (s *opsRatings) count(w *opsWorld, ch chan int, n int, what string) {
	w.t.Helper()
	for ctx := w.soon(); n > 0; n-- {
		select {
		case <-ch:
		case <-ctx.Done():
			w.t.Fatalf("waiting for %s of the topic: %v", what, ctx.Err())
		}
	}
}

func (s *opsRatings) stop() (acked []int) {
	s.end()
	return <-s.done
}
