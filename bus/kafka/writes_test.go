package kafka

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// asked counts the requests of one kind, from now on. What answer returns goes out in the
// broker's stead; where that is nil the broker answers.
func asked(b *Broker, kind kmsg.Key, answer func(kmsg.Request) kmsg.Response) *atomic.Int64 {
	var n atomic.Int64
	b.cluster.ControlKey(int16(kind), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		n.Add(1)
		if answer == nil {
			return nil, nil, false
		}
		res := answer(q)
		return res, nil, res != nil
	})
	return &n
}

// A call for one partition takes as few requests as hold it, in order.
func TestACallIsCutIntoRequests(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	sent := asked(b, kmsg.Produce, nil)
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	defer w.Close()
	many := func(n int) []int { return make([]int, n) }
	const framing, half = 32, maxBatchBytes / 2
	next := int64(0)
	for _, tc := range []struct {
		name   string
		values []int // their sizes
		want   int64
	}{
		{"one", []int{1}, 1},
		{"as many as fit", many(maxBatchRecords), 1},
		{"one more", many(maxBatchRecords + 1), 2},
		{"as much as fits", []int{half - framing, half - framing}, 1},
		{"a byte more", []int{half - framing, half - framing + 1}, 2},
		{"the largest", []int{maxBatchBytes - framing}, 1},
		{"the largest and another", []int{maxBatchBytes - framing, 0}, 2},
		{"one that fits behind one that does not", []int{half, half, 0}, 2},
	} {
		before := sent.Load()
		recs := make([]Record, len(tc.values))
		for i, size := range tc.values {
			recs[i] = Record{Topic: "ratings", Value: make([]byte, size)}
		}
		out, err := w.Write(t.Context(), recs...)
		if err != nil {
			t.Fatal(tc.name, err)
		}
		if n := sent.Load() - before; n != tc.want {
			t.Errorf("%s: %d requests, want %d", tc.name, n, tc.want)
		}
		for i, r := range out {
			if r.Offset != next {
				t.Fatalf("%s: record %d is at offset %d, want %d", tc.name, i, r.Offset, next)
			}
			next++
		}
	}
}

// What the broker refuses for now is sent again, as long as the writer has patience; what
// it refuses for good, or may have stored, is not.
func TestWritesThatAreRefused(t *testing.T) {
	const always = 1 << 20
	for name, tc := range map[string]struct {
		code      *kerr.Error
		times     int64 // that it is refused
		impatient bool
		sent      int64
		want      error // nil: it is stored
	}{
		"for a moment":   {kerr.NotLeaderForPartition, 1, false, 2, nil},
		"for longer":     {kerr.NotEnoughReplicas, 3, false, 4, nil},
		"for too long":   {kerr.NotEnoughReplicas, always, true, 1, ErrUnavailable},
		"for good":       {kerr.TopicAuthorizationFailed, always, false, 1, kafkago.TopicAuthorizationFailed},
		"for its size":   {kerr.MessageTooLarge, always, false, 1, ErrTooLarge},
		"perhaps":        {kerr.RequestTimedOut, always, false, 1, ErrUnknown},
		"perhaps, later": {kerr.NotEnoughReplicasAfterAppend, always, true, 1, ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
			left := tc.times
			sent := asked(b, kmsg.Produce, func(q kmsg.Request) kmsg.Response {
				if left--; left < 0 {
					return nil
				}
				res := q.ResponseKind().(*kmsg.ProduceResponse)
				for _, topic := range q.(*kmsg.ProduceRequest).Topics {
					one, part := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
					one.Topic, part.ErrorCode = topic.Topic, tc.code.Code
					one.Partitions = append(one.Partitions, part)
					res.Topics = append(res.Topics, one)
				}
				return res
			})
			w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
			defer w.Close()
			if tc.impatient {
				w.patience = 0
			}
			out, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x")})
			if !errors.Is(err, tc.want) || sent.Load() != tc.sent {
				t.Errorf("%d requests: %v, want %d: %v", sent.Load(), err, tc.sent, tc.want)
			}
			for _, other := range []error{ErrUnknown, ErrUnavailable, ErrTooLarge, ErrClosed} {
				if other != tc.want && errors.Is(err, other) {
					t.Errorf("%v says more than it may: %v", err, other)
				}
			}
			end := int64(0)
			if tc.want == nil {
				end = 1
			}
			if out[0].Offset != end-1 {
				t.Errorf("the record is at offset %d, want %d", out[0].Offset, end-1)
			}
			if _, last, err := newReader(t, []string{b.Addr()}, "ratings").Bounds(t.Context()); last != end || err != nil {
				t.Errorf("the log ends at %d, %v, want %d", last, err, end)
			}
		})
	}
}

// A caller whose pieces are not tried again is told what became of them, and that the writer
// was closed only where nothing was stored.
func TestWhatGivingUpMeans(t *testing.T) {
	unknown := outcome(kafkago.RequestTimedOut)
	for name, tc := range map[string]struct {
		err          error
		open, closed error // that it is then
	}{
		"no connection":          {ErrUnavailable, ErrUnavailable, ErrClosed},
		"a connection that ends": {io.EOF, ErrUnavailable, ErrClosed},
		"no leader now":          {kafkago.NotLeaderForPartition, ErrUnavailable, ErrClosed},
		"no such topic":          {ErrNoTopic, ErrNoTopic, ErrClosed},
		"too large":              {ErrTooLarge, ErrTooLarge, ErrClosed},
		"perhaps":                {unknown, ErrUnknown, ErrUnknown},
	} {
		w := NewWriter(WriterConfig{})
		for _, want := range []error{tc.open, tc.closed} {
			got := w.givenUp(tc.err)
			if !errors.Is(got, want) || !errors.Is(got, tc.err) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			for _, other := range []error{ErrUnknown, ErrClosed, ErrUnavailable} {
				if other != want && errors.Is(got, other) && !errors.Is(tc.err, other) && (want != ErrClosed || other == ErrUnknown) {
					t.Errorf("%s: %v is %v", name, got, other)
				}
			}
			w.Close()
		}
	}
}

// A connection that was not used for a while is tried out, so that one that has died
// meanwhile costs no write its outcome; one in use is not.
func TestIdleConnectionsAreTried(t *testing.T) {
	for idle, probes := range map[bool]int64{true: 3, false: 1} { // the first is of the new connection
		b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
		tried := asked(b, kmsg.ListOffsets, nil)
		w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
		if w.idle = 1 << 62; idle {
			w.idle = 0
		}
		for range 3 {
			if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		if n := tried.Load(); n != probes {
			t.Errorf("unused for a while: %v: tried %d times, want %d", idle, n, probes)
		}
	}
	dir, addr := t.TempDir(), freeAddr(t)
	cfg := BrokerConfig{Dir: dir, Addr: addr, Topics: map[string]int32{"ratings": 1}}
	b := start(t, cfg)
	w := NewWriter(WriterConfig{Brokers: []string{addr}})
	defer w.Close()
	w.idle = 0
	for i := range int64(3) {
		out, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x")})
		if err != nil || out[0].Offset != i {
			t.Fatalf("write %d: %+v, %v", i, out, err)
		}
		b.Close()
		b = start(t, cfg)
	}
}

// Close ends what waits, whether a broker answers or none does.
func TestCloseEndsWhatWaits(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	refused := make(chan struct{}, 1)
	asked(b, kmsg.Metadata, func(q kmsg.Request) kmsg.Response {
		for _, topic := range q.(*kmsg.MetadataRequest).Topics {
			if topic.Topic != nil && *topic.Topic == "ratings" {
				select {
				case refused <- struct{}{}:
				default:
				}
				return described(q, kerr.LeaderNotAvailable)
			}
		}
		return nil
	})
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	const writers = 5
	errs := make(chan error, writers)
	for range writers {
		go func() {
			_, err := w.Write(context.WithoutCancel(t.Context()), Record{Topic: "ratings", Value: []byte("x")})
			errs <- err
		}()
	}
	<-refused
	w.Close()
	for range writers {
		if err := <-errs; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) {
			t.Errorf("a write that waited: %v", err)
		}
	}
}
