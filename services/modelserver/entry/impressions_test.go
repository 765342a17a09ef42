package entry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

func TestImpressionsDropWhenFullAndDrainAtTheEnd(t *testing.T) {
	var written int
	p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), health.New().Attempts("impressions"))
	fail := true
	write := func(ctx context.Context, recs ...kafka.Record) ([]kafka.Record, error) {
		if fail {
			fail = false
			return nil, errors.New("away")
		}
		written += len(recs)
		return recs, nil
	}
	for range cap(p.queue) {
		p.queue <- &impression.Impression{RequestID: "r", Model: "m"}
	}
	s := &Scorer{Rows: asking(t, 1), MaxBatch: 4}
	in := map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1, 2}), "movie": tfserving.NewInt64([]int64{3, 4})}
	if _, _, err := s.Answer(t.Context(), []*Model{newEntry(t)}, Input{Tensors: in}, p.Want("x", true, "", 0)); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(p.outcomes.WithLabelValues("dropped")); n != 2 {
		t.Errorf("%v dropped, want both rows", n)
	}
	<-p.queue
	if _, _, err := s.Answer(t.Context(), []*Model{newEntry(t)}, Input{Tensors: in}, p.Want("x", true, "", 0)); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(p.outcomes.WithLabelValues("dropped")); n != 3 {
		t.Errorf("%v dropped, want the second row besides", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Run(ctx, write, 10*time.Second)
	if lost := testutil.ToFloat64(p.outcomes.WithLabelValues("failed")); written+int(lost) != cap(p.queue) || lost > impressionBatch || len(p.queue) != 0 {
		t.Errorf("%d written, %v lost with the failed write, %d left; want all %d accounted for", written, lost, len(p.queue), cap(p.queue))
	}
}

func TestWantImpressions(t *testing.T) {
	var none *Impressions
	if none.Want("id", true, "", 1) != nil {
		t.Error("impressions without brokers")
	}
	p := &Impressions{}
	if r := p.Want("id", true, "tp", -1); r == nil || r.RequestID != "id" || r.traceparent != "tp" {
		t.Errorf("a request that asks: %+v", r)
	}
	if r := p.Want("", true, "", -1); r == nil || len(r.RequestID) != 32 {
		t.Errorf("a request that asks, without an id: %+v", r)
	}
	for _, id := range []string{"", "gateways add one"} {
		if p.Want(id, false, "", -1) != nil {
			t.Errorf("a sample at rate -1 of a request with id %q", id)
		}
		if r := p.Want(id, false, "", 1); r == nil || id != "" && r.RequestID != id || len(r.RequestID) == 0 {
			t.Errorf("a sample at rate 1: %+v", r)
		}
		share := 0
		for range 10000 {
			if p.Want(id, false, "", 0.05) != nil {
				share++
			}
		}
		if share < 300 || share > 700 { // 500 +- 10 sigma
			t.Errorf("%d of 10,000 requests with id %q at a share of 0.05", share, id)
		}
	}
}

// A batch of impressions lingers for more, unless it is full or there is no time.
func TestHowLongImpressionsLinger(t *testing.T) {
	one := &impression.Impression{RequestID: "r", Model: "m"}
	for name, tc := range map[string]struct {
		queued int
		linger time.Duration
		want   int
		took   time.Duration
	}{
		"nothing, no time": {0, 0, 0, 0}, "some, no time": {3, 0, 3, 0}, "some": {3, time.Second, 4, time.Second},
		"just full": {impressionBatch, time.Second, impressionBatch, 0}, "one more": {impressionBatch + 1, time.Second, impressionBatch, 0},
		"full with what comes": {impressionBatch - 1, time.Second, impressionBatch, time.Second / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), nil)
			for range tc.queued {
				p.queue <- one
			}
			if tc.linger > 0 {
				time.AfterFunc(tc.linger/2, func() { p.queue <- one })
			}
			begin := time.Now()
			if got := p.fill(t.Context(), nil, tc.linger); len(got) != tc.want || time.Since(begin) != tc.took {
				t.Errorf("%s: %d records after %v, want %d after %v", name, len(got), time.Since(begin), tc.want, tc.took)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestImpressionsThatAreLostAreSeen(t *testing.T) {
	well := health.New()
	away := true
	p := NewImpressions("predictions", "c", nil, slog.New(slog.DiscardHandler), well.Attempts("impressions"))
	p.write = func(_ context.Context, recs ...kafka.Record) ([]kafka.Record, error) {
		if away {
			return nil, errors.New("no broker")
		}
		return recs, nil
	}
	write := func() { p.flush(t.Context(), p.add(nil, &impression.Impression{RequestID: "r", Model: "m"})) }
	write()
	write()
	if got := well.Summary(); got != "" {
		t.Errorf("after two failures: %q", got)
	}
	write()
	if got := well.Summary(); !strings.HasPrefix(got, "impressions: they are lost") || !strings.HasSuffix(got, "no broker") {
		t.Errorf("after three: %q", got)
	}
	away = false
	write()
	if got := well.Summary(); got != "" {
		t.Errorf("written again: %q", got)
	}
}
