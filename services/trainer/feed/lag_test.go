package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
)

// Records that were read ahead count one by one, holes between them not at all; behind them the
// log's offsets count, as far as they have not expired.
func TestLagCountsRecords(t *testing.T) {
	var l Lag
	is := func(what string, want int64) {
		t.Helper()
		if got := l.records(); got != want {
			t.Errorf("%s: %d records are left, want %d", what, got, want)
		}
	}
	is("nobody has looked", 0)
	l.Begin(10, 10)
	l.looked(0, 100)
	is("nothing is read", 90)
	f := fetch(30, 12, 13, 20, 29) // the rest are aborted records and markers
	l.fetched(f.recs, f.next)
	is("some is read", 4+70)
	l.Learnt(20)
	is("a batch is learnt", 2+70)
	l.looked(60, 100)
	is("what is not read expires", 2+40)
	l.looked(0, 30)
	is("all is read", 2)
	l.Learnt(30)
	is("all is learnt, and behind the last record stands a marker", 0)
	l.looked(0, 29)
	is("the log says an end from before", 0)
	l.Begin(12, 12)
	l.looked(0, 30)
	is("a shard has lost some", 18)
	l.fetched(fetch(30, 9, 12, 13, 20, 29).recs, 30)
	is("which is read again", 4)
	l.Begin(0, 25)
	is("of a partition that begins at what the log still has", 5)
	l.Learnt(28)
	is("learnt before it is known to be read", 2)
}

// What is shown is measured at once and then every so often, up to the limit, and nothing while the
// log does not answer.
func TestLagIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var l Lag
		l.Begin(4, 4)
		ends := []int64{10, -1, 20} // when it is asked; negative: it does not answer
		var shown []int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Measure(ctx, func(context.Context) (int64, int64, error) {
				end := ends[0]
				if ends = ends[1:]; end < 0 {
					return 0, 0, errors.New("away")
				}
				return 0, end, nil
			}, 12, time.Minute, func(n int64) { shown = append(shown, n) })
		}()
		time.Sleep(2*time.Minute + time.Second)
		cancel()
		<-done
		if want := []int64{6, 8}; !slices.Equal(shown, want) || len(ends) != 0 {
			t.Errorf("shown %v, want %v; %d looks were not taken", shown, want, len(ends))
		}
	})
}

// A feed tells the lag what it has read before it hands it on.
func TestAFeedTellsTheLag(t *testing.T) {
	log := &scriptedLog{fetches: []fetched{fetch(4, 1, 2)}, err: kafka.ErrClosed}
	var l Lag
	f := New(t.Context(), log, 0, func(error) {}, &l)
	defer f.Close()
	if _, err := f.Whole(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	l.looked(0, 4)
	if got := fmt.Sprint(l.records(), l.ahead, l.read); got != "2 [1 2] 4" {
		t.Errorf("the lag knows %s", got)
	}
}
