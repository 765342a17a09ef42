package kafka

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Records are looked over at the start and every few minutes; what goes wrong is logged each
// time, and the end of the broker is nothing that goes wrong.
func TestExpiryIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // the detector of races sees no order in a bubble's clock
		var said bytes.Buffer
		var result error
		times, hang := 0, false
		set := func(err error, hangs bool) {
			mu.Lock()
			defer mu.Unlock()
			result, hang = err, hangs
		}
		once := func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if times++; hang {
				<-ctx.Done()
				return ctx.Err()
			}
			return result
		}
		stop := repeat(slog.New(slog.NewTextHandler(&said, nil)), once)
		after := func(d time.Duration, want, complaints int) {
			t.Helper()
			time.Sleep(d) // of the bubble's clock
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if n := strings.Count(said.String(), "level=ERROR"); times != want || n != complaints {
				t.Errorf("%d times and %d complaints, want %d and %d:\n%s", times, n, want, complaints, said.String())
			}
		}
		after(0, 1, 0)
		after(expireEvery-1, 1, 0)
		set(errors.New("the disk is full"), false)
		after(1, 2, 1)
		after(expireEvery, 3, 2)
		set(nil, true)
		time.Sleep(expireEvery)
		synctest.Wait()
		stop()
		after(3*expireEvery, 4, 2)
	})
}

// Records are deleted where some are too old, and the broker is asked for nothing else.
func TestExpiryAsksForWhatIsOver(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1, "empty": 1}})
	brokers := []string{b.Addr()}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	now := time.UnixMilli(1_700_000_000_000)
	for i := range 4 {
		if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x"), Time: now.Add(time.Duration(i) * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	deletes := asked(b, kmsg.DeleteRecords, nil)
	retain := map[string]time.Duration{"ratings": time.Hour, "empty": time.Hour, "none": time.Hour}
	for _, tc := range []struct {
		name  string
		now   time.Duration
		first int64
		asked int64
	}{
		{"all are young", 0, 0, 0},
		{"the first is as old as it may be", time.Hour, 0, 0},
		{"it is older", time.Hour + time.Millisecond, 1, 1},
		{"nothing is new", time.Hour + time.Millisecond, 1, 1},
		{"the last is the first that is not too old", 4 * time.Hour, 3, 2},
		{"all are older, and the last one stays", 1000 * time.Hour, 3, 2},
	} {
		if err := expireOnce(t.Context(), brokers[0], retain, now.Add(tc.now)); err != nil {
			t.Fatal(tc.name, err)
		}
		first, end, err := newReader(t, brokers, "ratings").Bounds(t.Context())
		if first != tc.first || end != 4 || err != nil || deletes.Load() != tc.asked {
			t.Errorf("%s: %d to %d, %v, after %d requests; want %d to 4 after %d", tc.name, first, end, err, deletes.Load(), tc.first, tc.asked)
		}
	}
	if _, err := Plain.Describe(t.Context(), brokers, "none"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("expiry made a topic: %v", err)
	}
}

// A broker deletes what is over when it starts, and not only minutes later.
func TestABrokerThatStartsExpires(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	cfg := BrokerConfig{Dir: t.TempDir(), Topics: map[string]int32{"ratings": 1}}
	b := start(t, cfg)
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	for range 4 {
		if _, err := w.Write(ctx, Record{Topic: "ratings", Value: []byte("x"), Time: time.UnixMilli(1_700_000_000_000)}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	b.Close()
	cfg.Retention = map[string]time.Duration{"ratings": time.Hour}
	r := newReader(t, []string{start(t, cfg).Addr()}, "ratings")
	for first, end := int64(0), int64(0); first != 3; {
		var err error
		if first, end, err = r.Bounds(ctx); err != nil || end != 4 {
			t.Fatalf("the log holds %d to %d, %v", first, end, err)
		}
	}
}

// Records that could not be deleted are an error that names them, whatever the broker
// answers.
func TestExpiryThatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		partitions int
		code       int16
		want       error
	}{
		"by a code":  {1, kerr.PolicyViolation.Code, kerr.PolicyViolation},
		"by silence": {0, 0, ErrCorrupt},
		"by another": {2, 0, ErrCorrupt},
		"not at all": {1, 0, nil},
	} {
		b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
		w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
		for range 2 {
			if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x"), Time: time.UnixMilli(1000)}); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		asked(b, kmsg.DeleteRecords, func(q kmsg.Request) kmsg.Response {
			res := q.ResponseKind().(*kmsg.DeleteRecordsResponse)
			topic := kmsg.NewDeleteRecordsResponseTopic()
			topic.Topic = "ratings"
			for i := range tc.partitions {
				part := kmsg.NewDeleteRecordsResponseTopicPartition()
				part.Partition, part.ErrorCode = int32(i), tc.code
				topic.Partitions = append(topic.Partitions, part)
			}
			res.Topics = append(res.Topics, topic)
			return res
		})
		err := expireOnce(t.Context(), b.Addr(), map[string]time.Duration{"ratings": time.Second}, time.UnixMilli(1_000_000))
		if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), "ratings/0") {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if err := expireOnce(t.Context(), freeAddr(t), map[string]time.Duration{"ratings": time.Second}, time.UnixMilli(1_000_000)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("of no broker: %v", err)
	}
}
