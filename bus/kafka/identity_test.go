package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newTopic makes a topic of one partition that no other test uses.
func newTopic(t *testing.T, ctx context.Context, brokers []string, what string) string {
	t.Helper()
	topic := fmt.Sprintf("%s-%d", what, time.Now().UnixNano())
	if err := Plain.EnsureTopics(ctx, brokers, map[string]int32{topic: 1}); err != nil {
		t.Fatal(err)
	}
	return topic
}

func newReader(t *testing.T, brokers []string, topic string) *Reader {
	t.Helper()
	r := NewReader(ReaderConfig{Brokers: brokers, Topic: topic, MaxWait: 100 * time.Millisecond})
	t.Cleanup(r.Close)
	return r
}

func adminClient(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// readAll fetches from offset until next has reached end, and returns the values with
// every position that a Fetch ended at.
func readAll(t *testing.T, ctx context.Context, r *Reader, offset, end int64) (values []string, at []int64) {
	t.Helper()
	for offset < end {
		recs, next, err := r.Fetch(ctx, offset)
		if err != nil {
			t.Fatalf("Fetch(%d): %v", offset, err)
		}
		for _, rec := range recs {
			if rec.Offset < offset || rec.Offset >= next {
				t.Fatalf("Fetch(%d) = offset %d, next %d", offset, rec.Offset, next)
			}
			values, at = append(values, string(rec.Value)), append(at, rec.Offset)
		}
		offset = next
	}
	if offset != end {
		t.Fatalf("reading ended at %d, not %d", offset, end)
	}
	return values, at
}

// looksCreateNothing holds against a broker with auto.create.topics.enable, Kafka's
// default: a lookup must not make a topic of another size than is asked for later.
func looksCreateNothing(t *testing.T, ctx context.Context, brokers []string) {
	topic := fmt.Sprintf("later-%d", time.Now().UnixNano())
	for range 2 {
		if n, err := Plain.Partitions(ctx, brokers, topic); !errors.Is(err, ErrNoTopic) {
			t.Fatalf("Partitions of a topic that is not there = %d, %v", n, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	if _, err := w.Write(short, Record{Topic: topic, Value: []byte("x")}); err == nil {
		t.Fatal("a topic that is not there took a record")
	}
	if _, _, err := newReader(t, brokers, topic).Fetch(short, 0); err == nil {
		t.Fatal("a topic that is not there was read")
	}
	if err := Plain.EnsureTopics(ctx, brokers, map[string]int32{topic: 4}); err != nil {
		t.Fatal("EnsureTopics after looking:", err)
	}
	if n, err := Plain.Partitions(ctx, brokers, topic); n != 4 || err != nil {
		t.Fatal("Partitions =", n, err)
	}
}

// transactions: what a producer aborted is never read, nor are the markers at the ends
// of transactions; records behind an open one wait for its end.
func transactions(t *testing.T, ctx context.Context, brokers []string) {
	topic := newTopic(t, ctx, brokers, "transactions")
	c := adminClient(t, brokers, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	begin := func(values ...string) {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if err := c.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := func(commit kgo.TransactionEndTry) {
		if err := c.EndTransaction(ctx, commit); err != nil {
			t.Fatal(err)
		}
	}
	begin("committed 0", "committed 1") // 0, 1, marker 2
	end(kgo.TryCommit)
	begin("aborted 3", "aborted 4") // 3, 4, marker 5
	end(kgo.TryAbort)
	begin("committed 6") // 6, marker 7
	end(kgo.TryCommit)

	r := newReader(t, brokers, topic)
	if first, last, err := r.Bounds(ctx); first != 0 || last != 8 || err != nil {
		t.Fatal("Bounds =", first, last, err)
	}
	values, at := readAll(t, ctx, r, 0, 8)
	if !slices.Equal(values, []string{"committed 0", "committed 1", "committed 6"}) || !slices.Equal(at, []int64{0, 1, 6}) {
		t.Fatalf("read %v at %v", values, at)
	}
	for offset, want := range map[int64]int{1: 2, 2: 1, 4: 1, 7: 0} { // from the midst of each kind
		if values, _ := readAll(t, ctx, newReader(t, brokers, topic), offset, 8); len(values) != want {
			t.Errorf("from %d on: %v", offset, values)
		}
	}

	begin("open 8")
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	if out, err := w.Write(ctx, Record{Topic: topic, Value: []byte("behind 9")}); err != nil || out[0].Offset != 9 {
		t.Fatal(out, err)
	}
	if recs, next, err := r.Fetch(ctx, 8); len(recs) != 0 || next != 8 || err != nil {
		t.Fatal("while a transaction is open:", recs, next, err)
	}
	if _, last, err := r.Bounds(ctx); last != 8 || err != nil {
		t.Fatal("the end while a transaction is open:", last, err)
	}
	end(kgo.TryAbort) // marker 10
	if values, _ := readAll(t, ctx, r, 8, 11); !slices.Equal(values, []string{"behind 9"}) {
		t.Fatalf("behind an aborted transaction: %v", values)
	}
}

// topicMadeAnew: offsets of a topic name nothing in its namesake, however long that is.
func topicMadeAnew(t *testing.T, ctx context.Context, brokers []string) {
	topic := newTopic(t, ctx, brokers, "anew")
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	write := func(n int) {
		for i := range n {
			for {
				_, err := w.Write(ctx, Record{Topic: topic, Value: fmt.Append(nil, i)})
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write(3)
	old, err := Plain.Describe(ctx, brokers, topic)
	if err != nil || old.ID == "" {
		t.Fatal(old, err)
	}
	r := newReader(t, brokers, topic)
	readAll(t, ctx, r, 0, 3)

	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TimeoutMillis = 5000
	del.TopicNames = []string{topic}
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = &topic
	del.Topics = append(del.Topics, one)
	res, err := del.RequestWith(ctx, adminClient(t, brokers))
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal("delete:", err)
	}
	if err := Plain.EnsureTopics(ctx, brokers, map[string]int32{topic: 1}); err != nil {
		t.Fatal(err)
	}
	write(5)
	if now, err := Plain.Describe(ctx, brokers, topic); err != nil || now.ID == old.ID {
		t.Fatalf("the topic made anew has id %q, before it was %q, %v", now.ID, old.ID, err)
	}
	if recs, _, err := r.Fetch(ctx, 3); !errors.Is(err, ErrTopicChanged) {
		t.Errorf("a reader of the old topic: %+v, %v", recs, err)
	}
	late := NewReader(ReaderConfig{Brokers: brokers, Topic: topic, TopicID: old.ID})
	defer late.Close()
	if recs, _, err := late.Fetch(ctx, 3); !errors.Is(err, ErrTopicChanged) {
		t.Errorf("a reader that is told the old topic's id: %+v, %v", recs, err)
	}
	if values, _ := readAll(t, ctx, newReader(t, brokers, topic), 3, 5); len(values) != 2 {
		t.Errorf("a reader that knows of no other: %v", values)
	}
}

// retainedTail: a log that retention has emptied still has its end, and what is below
// its beginning is out of range.
func retainedTail(t *testing.T, ctx context.Context, brokers []string) {
	topic := newTopic(t, ctx, brokers, "retained")
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	for range 4 {
		if _, err := w.Write(ctx, Record{Topic: topic, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	r := newReader(t, brokers, topic)
	was, err := Plain.Describe(ctx, brokers, topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := rawDeleteRecords(ctx, brokers[0], topic, 4); err != nil {
		t.Fatal(err)
	}
	if first, end, err := r.Bounds(ctx); first != 4 || end != 4 || err != nil {
		t.Fatal("Bounds =", first, end, err)
	}
	if recs, next, err := r.Fetch(ctx, 4); len(recs) != 0 || next != 4 || err != nil {
		t.Fatal("Fetch at the end:", recs, next, err)
	}
	if _, _, err := r.Fetch(ctx, 3); !errors.Is(err, ErrOutOfRange) {
		t.Fatal("Fetch below the beginning:", err)
	}
	if err := r.Check(ctx, 4, was.Partitions[0].LeaderEpoch); err != nil {
		t.Error("Check of what retention removed:", err)
	}
	if err := r.Check(ctx, 5, was.Partitions[0].LeaderEpoch); !errors.Is(err, ErrTruncated) {
		t.Error("Check above the end:", err)
	}
}

// Compaction leaves holes, at the end of what a reader asks for too.
func TestCompactedHoles(t *testing.T) {
	b := start(t, BrokerConfig{})
	brokers := []string{b.Addr()}
	if err := b.cluster.CreateTopic("compacted", 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1"}); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	for i := range 6 {
		if _, err := w.Write(t.Context(), Record{Topic: "compacted", Key: []byte{byte(min(i, 2))}, Value: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	b.cluster.Compact()
	values, at := readAll(t, t.Context(), newReader(t, brokers, "compacted"), 0, 6)
	if !slices.Equal(values, []string{"0", "1", "4", "5"}) || !slices.Equal(at, []int64{0, 1, 4, 5}) {
		t.Fatalf("after compaction: %v at %v", values, at)
	}
}
