package otlp

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestQueueSendsWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newCounters()
		var got []int
		q := newQueue(newTally("traces", counts, slog.New(slog.DiscardHandler)), func(_ context.Context, batch []int) error {
			got = append(got, batch...)
			return nil
		})
		q.add(1)
		q.add(2)
		time.Sleep(queueEvery)
		synctest.Wait()
		if len(got) != 2 || got[0] != 1 || got[1] != 2 {
			t.Errorf("after a second %v was sent", got)
		}
		q.add(3)
		q.stop(t.Context())
		if len(got) != 3 {
			t.Errorf("at the end %v was sent", got)
		}
		q.add(4)
		if sent, dropped := testutil.ToFloat64(counts.WithLabelValues("traces", "sent")), testutil.ToFloat64(counts.WithLabelValues("traces", "dropped")); sent != 3 || dropped != 1 {
			t.Errorf("%v sent and %v dropped", sent, dropped)
		}
	})
}
