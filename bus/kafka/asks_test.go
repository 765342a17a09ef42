package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What may succeed later is what the network, or the cluster for a moment, refuses.
func TestWhatIsTemporary(t *testing.T) {
	for err, want := range map[error]bool{
		kafkago.NotLeaderForPartition: true, kafkago.RequestTimedOut: true, kafkago.LeaderNotAvailable: true, kafkago.TopicAuthorizationFailed: false, kafkago.MessageSizeTooLarge: false,
		kerr.NotLeaderForPartition: true, kerr.LeaderNotAvailable: true, kerr.TopicAuthorizationFailed: false, kerr.OffsetOutOfRange: false,
		ErrUnavailable: true, io.EOF: true, io.ErrUnexpectedEOF: true, net.ErrClosed: true, &net.OpError{Op: "dial", Err: errors.New("refused")}: true,
		ErrCorrupt: false, ErrNoTopic: false, ErrTruncated: false, errors.New("something else"): false,
	} {
		if temporary(err) != want || temporary(errors.Join(errors.New("and"), err)) != want {
			t.Errorf("%v is temporary: %v", err, !want)
		}
	}
	if unanswered(t.Context(), nil) != nil {
		t.Error("what was answered was not")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx  context.Context
		err  error
		want bool
	}{{t.Context(), io.EOF, true}, {ended, io.EOF, false}, {ended, context.Canceled, false}} {
		if got := unanswered(tc.ctx, tc.err); !errors.Is(got, tc.err) || errors.Is(got, ErrUnavailable) != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
	for _, partitions := range []int32{-1, 0, 1} {
		if p := PartitionOf([]byte("key"), partitions); p != 0 {
			t.Errorf("of %d partitions it is %d", partitions, p)
		}
	}
}

// A log is the one that was read as long as the leader's epochs say so, and where they
// cannot, as long as its end does.
func TestWhatEpochsSayOfALog(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	var endOfEpoch, endOfLog int64
	asked(b, kmsg.OffsetForLeaderEpoch, func(q kmsg.Request) kmsg.Response {
		res := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic, part := kmsg.NewOffsetForLeaderEpochResponseTopic(), kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		topic.Topic, part.EndOffset = "ratings", endOfEpoch
		topic.Partitions = append(topic.Partitions, part)
		res.Topics = append(res.Topics, topic)
		return res
	})
	asked(b, kmsg.ListOffsets, func(q kmsg.Request) kmsg.Response {
		res := q.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, part := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		topic.Topic, part.Offset = "ratings", endOfLog
		topic.Partitions = append(topic.Partitions, part)
		res.Topics = append(res.Topics, topic)
		return res
	})
	r := newReader(t, []string{b.Addr()}, "ratings")
	c, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	const unsaid = -1
	for _, tc := range []struct {
		was, is    int32 // leader epochs
		next       int64 // what was read ends there
		epoch, log int64 // where they end now
		ok         bool
	}{
		{0, 0, 5, 5, 0, true}, {0, 0, 5, 6, 0, true}, {0, 0, 5, 4, 9, false}, {0, 1, 5, 5, 0, true}, {0, 1, 5, 0, 9, false}, {3, 4, 0, 0, 0, true},
		{1, 0, 5, 9, 9, false}, {0, 0, 5, unsaid, 5, true}, {0, 0, 5, unsaid, 4, false},
		{-1, 3, 5, 0, 5, true}, {-1, 3, 5, 9, 4, false}, {3, -1, 5, 0, 5, true}, {3, -1, 5, 9, 4, false}, {0, -1, 5, 9, 4, false}, {-1, 0, 5, 9, 4, false},
	} {
		endOfEpoch, endOfLog = tc.epoch, tc.log
		err := r.check(t.Context(), c, Partition{LeaderEpoch: tc.is}, place{tc.next, tc.was})
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrTruncated) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// Close breaks off a call that waits for the broker.
func TestCloseBreaksOffAFetch(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	waits := make(chan struct{}, 16)
	asked(b, kmsg.Fetch, func(kmsg.Request) kmsg.Response { waits <- struct{}{}; return nil })
	r := NewReader(ReaderConfig{Brokers: []string{b.Addr()}, Topic: "ratings", MaxWait: time.Hour})
	done := make(chan error, 1)
	go func() {
		_, _, err := r.Fetch(t.Context(), 0)
		done <- err
	}()
	<-waits
	r.Close()
	if err := <-done; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable) {
		t.Errorf("Fetch = %v", err)
	}
}

// A caller that gives up while its records are under way does not know whether they are
// stored; one that gives up before knows that they are not.
func TestGivingUpAWrite(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	sent, answer := make(chan struct{}), make(chan struct{})
	first := true
	asked(b, kmsg.Produce, func(kmsg.Request) kmsg.Response {
		if first {
			first = false
			close(sent)
			<-answer
		}
		return nil
	})
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	defer w.Close()
	write := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := w.Write(ctx, Record{Topic: "ratings", Value: []byte("x")})
			done <- err
		}()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	under := write(ctx)
	<-sent
	cancel()
	if err := <-under; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up under way: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := <-write(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
		t.Errorf("given up before: %v", err)
	}
	close(answer)
	if err := <-write(t.Context()); err != nil {
		t.Error(err)
	}
	if _, end, err := newReader(t, []string{b.Addr()}, "ratings").Bounds(t.Context()); end != 2 || err != nil {
		t.Errorf("%d records are stored, %v", end, err)
	}
}
