package warmup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/warmupfile"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// requestsIn reads a file as a model server does.
func requestsIn(t *testing.T, file []byte) (all []*apis.PredictRequest) {
	t.Helper()
	for recorded, err := range warmupfile.Requests(bytes.NewReader(file)) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recorded.GetPredictLog().GetRequest())
	}
	return all
}

func topic(t *testing.T, partitions int32, records ...kafka.Record) (Source, *kafka.Writer) {
	t.Helper()
	b, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{impression.Topic: partitions}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: []string{b.Addr()}})
	t.Cleanup(func() { w.Close() })
	if _, err := w.Write(t.Context(), records...); err != nil && len(records) > 0 {
		t.Fatal(err)
	}
	return Source{Brokers: []string{b.Addr()}, Topic: impression.Topic, Requests: 10}, w
}

func record(t *testing.T, i *impression.Impression, request int) kafka.Record {
	t.Helper()
	i.RequestID, i.TimeUS = fmt.Sprint("r", request), int64(1000+request)
	value, err := impression.Encode(i)
	if err != nil {
		t.Fatal(err)
	}
	return kafka.Record{Topic: impression.Topic, Partition: -1, Key: []byte(i.RequestID), Value: value}
}

// The newest requests of the model are found behind many of others, over all partitions.
func TestNewest(t *testing.T) {
	var records []kafka.Record
	for n := range 40 {
		for row := range 3 {
			records = append(records, record(t, answered(row, int64(n), []int64{1}, "fr"), n))
		}
		other := answered(0, 1, nil, "fr")
		other.Model = "others"
		shadow := answered(0, 1, nil, "fr")
		shadow.Shadow = true
		for range 20 {
			records = append(records, record(t, other, n), record(t, shadow, n))
		}
		records = append(records, kafka.Record{Topic: impression.Topic, Partition: -1, Key: []byte{byte(n)}, Value: []byte("no impression")})
	}
	s, _ := topic(t, 3, records...)
	got, err := s.Newest(t.Context(), spec())
	if err != nil || got.Requests != 10 || got.LeftOut != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, r := range requestsIn(t, got.File) {
		user := r.GetInputs()["user"].GetInt64Val()
		if len(user) != 3 || user[0] != user[2] || user[0] < 15 || i > 0 && user[0] == 0 {
			t.Errorf("request %d is of user %v", i, user)
		}
	}
	s.Requests = warmupfile.MaxRequests
	if got, err = s.Newest(t.Context(), spec()); err != nil || got.Requests != 40 {
		t.Errorf("of all: %+v, %v", got, err)
	}
}

// Reading ends at so many bytes, whatever was found.
func TestNewestIsBounded(t *testing.T) {
	var records []kafka.Record
	for n := range 30 {
		i := answered(0, int64(n), nil, "fr")
		i.Traceparent = strings.Repeat("x", 700_000)
		records = append(records, record(t, i, n))
	}
	s, w := topic(t, 1)
	for _, r := range records {
		if _, err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	s.Requests = warmupfile.MaxRequests
	got, err := s.Newest(t.Context(), spec())
	if err != nil || got.Requests != maxRead/700_500 {
		t.Errorf("%d requests, %v", got.Requests, err)
	}
}

func TestNothingToTake(t *testing.T) {
	s, _ := topic(t, 2)
	if got, err := s.Newest(t.Context(), spec()); err != nil || got.Requests != 0 || got.File != nil {
		t.Errorf("of an empty topic: %+v, %v", got, err)
	}
	missing := s
	missing.Topic = "none"
	if got, err := missing.Newest(t.Context(), spec()); !errors.Is(err, kafka.ErrNoTopic) || got.Requests != 0 {
		t.Errorf("of no topic: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := s.Newest(ctx, spec()); !errors.Is(err, context.Canceled) || got.Requests != 0 {
		t.Errorf("once it is over: %+v, %v", got, err)
	}
	var none Config
	if none.Source("demo", s.Brokers, nil) != nil {
		t.Error("none are wanted")
	}
	some := Config{Requests: 1}
	if some.Source("demo", nil, nil) != nil || some.Source("b", s.Brokers, nil).Topic != "b."+impression.Topic {
		t.Error("no brokers, or another namespace")
	}
	for _, c := range []Config{{Requests: -1}, {Requests: warmupfile.MaxRequests + 1}, {Topic: "a b"}} {
		if c.Validate() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
