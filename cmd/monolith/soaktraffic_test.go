package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

const (
	soakMovies   = 1_000_000 // every rating has a movie of its own, so that its row says whether it was learnt
	movieSlot    = 2
	soakEvery    = 50 * time.Millisecond // one rating for each partition, and one prediction
	soakPatience = 20 * time.Second      // of one write or prediction
)

// soakLedger is what must have become of the ratings, over all lives of the stack.
type soakLedger struct {
	mu      sync.Mutex
	next    int
	acked   map[int]bool
	never   map[int]bool // parked, or aborted by their producer: never to be learnt
	refused int          // letters that must have been written
	removed int          // of them, those that were purged
}

func newSoakLedger() *soakLedger {
	return &soakLedger{acked: map[int]bool{}, never: map[int]bool{}}
}

// records are n ratings that nobody has written yet, spread over the partitions.
func (l *soakLedger) records(n, partitions int) []kafka.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]kafka.Record, n)
	for i := range out {
		r := rating.Rating{User: int64(1 + l.next%37), Movie: int64(soakMovies + l.next), Rating: float64(1 + l.next%5), Timestamp: int64(1_600_000_000 + l.next)}
		out[i] = kafka.Record{Topic: host.RatingsTopic, Partition: int32(i % partitions), Value: r.AppendJSON(nil),
			Headers: map[string]string{rating.HeaderStream: "soak", rating.HeaderIndex: fmt.Sprint(l.next)}}
		l.next++
	}
	return out
}

// note says of records what must become of them.
func (l *soakLedger) note(what map[int]bool, records []kafka.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		what[soakIndex(r)] = true
	}
}

// soakIndex is the number of a rating, -1 of anything else.
func soakIndex(r kafka.Record) (i int) {
	if r.Headers[rating.HeaderStream] != "soak" {
		return -1
	}
	if _, err := fmt.Sscan(r.Headers[rating.HeaderIndex], &i); err != nil {
		return -1
	}
	return i
}

// soakTraffic is ratings that are written and predictions that are asked for until it is
// stopped.
type soakTraffic struct {
	end     context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	partitions int
	acks       int
	answers    int
	repeated   int // predictions that were asked for again
	slowest    time.Duration
	errs       []error
}

func (s *soak) flow() *soakTraffic {
	ctx, cancel := context.WithCancel(s.ctx)
	t := &soakTraffic{end: cancel, partitions: s.Config.Partitions}
	s.t.Cleanup(t.stop)
	entry, err := scenario.Dial(s.entry)
	s.must("dial the entry", err)
	t.running.Go(func() { t.write(ctx, s.ledger, s.Brokers()) })
	t.running.Go(func() {
		defer entry.Close()
		t.ask(ctx, entry)
	})
	return t
}

// stop ends it and waits until it has ended.
func (t *soakTraffic) stop() {
	t.end()
	t.running.Wait()
}

func (t *soakTraffic) note(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// write writes ratings. What is not acked may stand in the topic or not.
func (t *soakTraffic) write(ctx context.Context, ledger *soakLedger, brokers []string) {
	writer := kafka.NewWriter(kafka.WriterConfig{Brokers: brokers})
	defer writer.Close()
	t.every(ctx, func(call context.Context) error {
		var n int
		t.note(func() { n = t.partitions })
		records := ledger.records(n, n)
		if _, err := writer.Write(call, records...); err != nil {
			return fmt.Errorf("write ratings: %w", err)
		}
		ledger.note(ledger.acked, records)
		t.note(func() { t.acks += n })
		return nil
	})
}

// ask asks for predictions, and again where the entry says UNAVAILABLE, as clients are
// told to: on a busy machine both replicas may be late.
func (t *soakTraffic) ask(ctx context.Context, entry *scenario.Client) {
	t.every(ctx, func(call context.Context) error {
		began, pauses := time.Now(), retry.New(50*time.Millisecond, time.Second)
		users, movies := []int64{1 + rand.Int64N(37), 2}, []int64{soakMovies + rand.Int64N(1000), soakMovies}
		for {
			_, err := predictPairs(entry, call, host.ModelName, "", users, movies)
			if err == nil {
				t.note(func() { t.answers++; t.slowest = max(t.slowest, time.Since(began)) })
				return nil
			}
			if status.Code(err) != codes.Unavailable || pauses.Wait(call) != nil {
				return fmt.Errorf("predict: %w", err)
			}
			t.note(func() { t.repeated++ })
		}
	})
}

// every calls f again and again, and keeps its errors, of which there must be none.
func (t *soakTraffic) every(ctx context.Context, f func(context.Context) error) {
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, soakPatience)
		err := f(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			t.note(func() { t.errs = append(t.errs, fmt.Errorf("at %s: %w", time.Now().Format(time.TimeOnly), err)) })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// flows waits for more acks and more answers.
func (s *soak) flows(what string) {
	s.t.Helper()
	var acks, answers int
	s.traffic.note(func() { acks, answers = s.traffic.acks+100, s.traffic.answers+25 })
	s.until("ratings and predictions to flow "+what, func() (ok bool, say string) {
		s.traffic.note(func() {
			ok = s.traffic.acks >= acks && s.traffic.answers >= answers
			say = fmt.Sprintf("%d of %d acks, %d of %d answers, %v", s.traffic.acks, acks, s.traffic.answers, answers, s.traffic.errs)
		})
		return ok, say
	})
}

// settled ends the traffic and compares what was learnt with what was acked.
func (s *soak) settled() {
	s.t.Helper()
	s.traffic.stop()
	s.t.Logf("%d ratings acked, %d predictions, %d of them asked again, the slowest took %v", s.traffic.acks, s.traffic.answers, s.traffic.repeated, s.traffic.slowest)
	for _, err := range s.traffic.errs {
		s.t.Error(err)
	}
	ends := s.learnt()
	saved := s.agree() // whose cut publishes what is yet to be published
	s.tiled(ends)
	s.rows(saved)
	s.counted()
	if code, out, stderr := opsTool("verify", "--dir", s.Config.Dir); code != exitOK {
		s.t.Errorf("verify: exit %d %s%s", code, out, stderr)
	}
}

// tiled checks that no shard learnt an offset twice or left one out.
func (s *soak) tiled(ends map[int32]int64) {
	s.t.Helper()
	b, err := s.Config.Logs.Dial(s.soon(), "monolith soak") // anew: the log may have been trimmed
	s.must("connect", err)
	defer b.Close()
	deltas, err := audit.ReadDeltas(s.soon(), b.Deltas(), s.Config.Logs.BZID, host.JobName, 0)
	s.must("read the deltas", err)
	history, err := audit.ReadHistory(s.soon(), b.Log(), s.Config.Logs.BZID, host.JobName, 0)
	s.must("read the history", err)
	for shard := range uint32(s.Config.Shards) {
		if c := audit.Tiles(deltas.All, shard, history.Ready[shard], ends, deltas.First); !c.OK {
			s.t.Error(c)
		}
	}
}

// rows checks that each rating of the topic has left its row in the checkpoint, that
// acked ones stand there once, and that what was never to be learnt was not.
func (s *soak) rows(saved *training.Checkpoint) {
	s.t.Helper()
	truth, err := audit.Truth(nil, saved)
	s.must("read the checkpoint", err)
	learnt := func(i int) bool { return truth.Tables["movie"][modelspec.FID(movieSlot, int64(soakMovies+i))] != nil }
	stored := map[int]int{}
	_, _, err = kafka.Plain.Scan(s.soon(), s.Brokers(), host.RatingsTopic, func(r kafka.Record) error {
		stored[soakIndex(r)]++
		return nil
	})
	s.must("read the topic", err)
	wrong := 0
	for i := range s.ledger.next {
		acked, never, n := s.ledger.acked[i], s.ledger.never[i], stored[i]
		if want := n > 0 && !never; learnt(i) != want || n > 1 || acked && n != 1 {
			if wrong++; wrong <= 10 {
				s.t.Errorf("rating %d: acked %t, to be left out %t, stands %d times in the topic, learnt %t", i, acked, never, n, learnt(i))
			}
		}
	}
	if wrong > 10 {
		s.t.Errorf("%d ratings are wrong", wrong)
	}
}

// parked is how many letters there are, those included that summaries count.
func (s *soak) parked() (letters, counted int) {
	s.t.Helper()
	for _, p := range s.letters() {
		if p.More != nil {
			counted += int(p.More.Count)
		} else {
			letters++
		}
	}
	return letters, counted
}

// counted waits until whatever was refused is parked, and checks that nothing else is.
func (s *soak) counted() {
	s.t.Helper()
	want := s.ledger.refused - s.ledger.removed
	s.until("everything refused to be parked", func() (bool, string) {
		letters, counted := s.parked()
		return letters+counted >= want, fmt.Sprintf("%d letters and %d counted, want %d", letters, counted, want)
	})
	if letters, counted := s.parked(); letters+counted != want {
		s.t.Errorf("%d letters and %d counted, %d were refused: %+v", letters, counted, want, s.letters())
	}
}
