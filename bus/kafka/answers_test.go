package kafka

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// described answers a metadata request with what code says of each topic.
func described(q kmsg.Request, code *kerr.Error, partitions ...kmsg.MetadataResponseTopicPartition) *kmsg.MetadataResponse {
	res := q.ResponseKind().(*kmsg.MetadataResponse)
	for _, topic := range q.(*kmsg.MetadataRequest).Topics {
		one := kmsg.NewMetadataResponseTopic()
		one.Topic, one.TopicID, one.Partitions = topic.Topic, [16]byte{1}, partitions
		if code != nil {
			one.ErrorCode = code.Code
		}
		res.Topics = append(res.Topics, one)
	}
	return res
}

// A broker that answers for something else than what was asked for is not believed.
func TestAnswersForSomethingElse(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	brokers := []string{b.Addr()}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	for range 3 {
		if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x"), Time: time.UnixMilli(1000)}); err != nil {
			t.Fatal(err)
		}
	}
	was, err := Plain.Describe(t.Context(), brokers, "ratings")
	if err != nil {
		t.Fatal(err)
	}
	epoch := was.Partitions[0].LeaderEpoch
	c, err := newClient(brokers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var topics, partitions atomic.Int64
	topics.Store(-1) // as they are
	shaped := func(q kmsg.Request) kmsg.Response {
		if topics.Load() < 0 {
			return nil
		}
		res := q.ResponseKind()
		for range topics.Load() {
			switch res := res.(type) {
			case *kmsg.FetchResponse:
				one := kmsg.NewFetchResponseTopic()
				one.Topic, one.TopicID = "ratings", idBytes(was.ID)
				one.Partitions = make([]kmsg.FetchResponseTopicPartition, partitions.Load())
				res.Topics = append(res.Topics, one)
			case *kmsg.ListOffsetsResponse:
				one := kmsg.NewListOffsetsResponseTopic()
				one.Topic, one.Partitions = "ratings", make([]kmsg.ListOffsetsResponseTopicPartition, partitions.Load())
				res.Topics = append(res.Topics, one)
			case *kmsg.OffsetForLeaderEpochResponse:
				one := kmsg.NewOffsetForLeaderEpochResponseTopic()
				one.Topic, one.Partitions = "ratings", make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, partitions.Load())
				res.Topics = append(res.Topics, one)
			}
		}
		return res
	}
	for _, kind := range []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch} {
		asked(b, kind, shaped)
	}
	r := newReader(t, brokers, "ratings")
	for name, ask := range map[string]func() error{
		"Fetch":  func() error { _, _, err := r.Fetch(t.Context(), 0); return err },
		"Bounds": func() error { _, _, err := r.Bounds(t.Context()); return err },
		"Check":  func() error { return r.Check(t.Context(), 0, epoch) },
	} {
		for _, shape := range [][2]int64{{0, 0}, {1, 0}, {1, 2}, {2, 1}, {2, 0}} {
			topics.Store(shape[0])
			partitions.Store(shape[1])
			if err := ask(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, answered for %d topics of %d partitions: %v", name, shape[0], shape[1], err)
			}
		}
		topics.Store(-1)
		if err := ask(); err != nil {
			t.Errorf("%s, answered as asked: %v", name, err)
		}
	}
}

// What a broker refuses by a code of the whole answer is refused by that code.
func TestAFetchThatIsRefusedAsAWhole(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	asked(b, kmsg.Fetch, func(q kmsg.Request) kmsg.Response {
		res := q.ResponseKind().(*kmsg.FetchResponse)
		res.ErrorCode = kerr.UnsupportedVersion.Code
		return res
	})
	if _, _, err := newReader(t, []string{b.Addr()}, "ratings").Fetch(t.Context(), 0); !errors.Is(err, kerr.UnsupportedVersion) || errors.Is(err, ErrCorrupt) {
		t.Errorf("Fetch = %v", err)
	}
}

// A topic's partitions are known by their numbers, whatever their order, and each of them
// must be described.
func TestTopicsAsTheyAreDescribed(t *testing.T) {
	part := func(number, leader int32) kmsg.MetadataResponseTopicPartition {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = number, leader, 10+number
		return p
	}
	for name, tc := range map[string]struct {
		parts []kmsg.MetadataResponseTopicPartition
		ok    bool
	}{
		"none":           {nil, true},
		"in order":       {[]kmsg.MetadataResponseTopicPartition{part(0, 0), part(1, 0), part(2, 0)}, true},
		"in another":     {[]kmsg.MetadataResponseTopicPartition{part(2, 0), part(0, 0), part(1, 0)}, true},
		"without a 1":    {[]kmsg.MetadataResponseTopicPartition{part(0, 0), part(2, 0)}, false},
		"without a 0":    {[]kmsg.MetadataResponseTopicPartition{part(1, 0)}, false},
		"one twice":      {[]kmsg.MetadataResponseTopicPartition{part(0, 0), part(0, 0)}, false},
		"one led by 7":   {[]kmsg.MetadataResponseTopicPartition{part(0, 0), part(1, 7)}, true}, // whom nobody describes
		"one led by -1":  {[]kmsg.MetadataResponseTopicPartition{part(0, 0), part(1, -1)}, true},
		"all led by one": {[]kmsg.MetadataResponseTopicPartition{part(0, 0)}, true},
	} {
		b := start(t, BrokerConfig{})
		asked(b, kmsg.Metadata, func(q kmsg.Request) kmsg.Response {
			res := described(q, nil, tc.parts...)
			leader := kmsg.NewMetadataResponseBroker()
			leader.Host, leader.Port = "127.0.0.1", 9
			res.Brokers = append(res.Brokers, leader)
			return res
		})
		topic, err := Plain.Describe(t.Context(), []string{b.Addr()}, "ratings")
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if len(topic.Partitions) != len(tc.parts) || topic.ID == "" {
			t.Fatalf("%s: %+v", name, topic)
		}
		for _, p := range tc.parts {
			got, err := topic.led(p.Partition)
			if led := p.Leader == 0; led != (err == nil) || !led != errors.Is(err, ErrUnavailable) || led && got.LeaderEpoch != p.LeaderEpoch {
				t.Errorf("%s: partition %d: %+v, %v", name, p.Partition, got, err)
			}
		}
	}
}

// While a broker does not answer, a reader says so from its third attempt on, once, and says
// once that it answers again; a call that is answered sooner says nothing.
func TestWhenABrokerIsAway(t *testing.T) {
	for _, failures := range []int64{0, 1, 2, 3, 4} {
		b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
		var tried atomic.Int64
		asked(b, kmsg.ListOffsets, func(q kmsg.Request) kmsg.Response {
			if tried.Add(1) > failures {
				return nil
			}
			res := q.ResponseKind().(*kmsg.ListOffsetsResponse)
			topic, part := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
			topic.Topic, part.ErrorCode = "ratings", kerr.NotLeaderForPartition.Code
			topic.Partitions = append(topic.Partitions, part)
			res.Topics = append(res.Topics, topic)
			return res
		})
		var said []bool // away
		var at []int64  // at which attempt
		r := NewReader(ReaderConfig{Brokers: []string{b.Addr()}, Topic: "ratings", Away: func(err error) {
			if err != nil && !errors.Is(err, kerr.NotLeaderForPartition) {
				t.Errorf("away for %v", err)
			}
			said, at = append(said, err != nil), append(at, tried.Load())
		}})
		if _, _, err := r.Bounds(t.Context()); err != nil {
			t.Error(err)
		}
		if _, _, err := r.Bounds(t.Context()); err != nil {
			t.Error(err)
		}
		r.Close()
		var want []bool
		var when []int64
		if failures > 2 {
			want, when = []bool{true, false}, []int64{3, failures + 1}
		}
		if !slices.Equal(said, want) || !slices.Equal(at, when) {
			t.Errorf("after %d failures: away %v at attempts %v, want %v at %v", failures, said, at, want, when)
		}
	}
	r := NewReader(ReaderConfig{Brokers: []string{freeAddr(t)}, Topic: "ratings"}) // and nobody need be told
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := r.Bounds(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
