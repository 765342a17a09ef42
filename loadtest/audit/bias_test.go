package audit

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// realRatings is MovieLens in order of time, all of its second half scored.
func realRatings(t *testing.T) (kept []joined, ratings map[int]rating.Rating) {
	t.Helper()
	f, err := os.Open(oracle.Ratings(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rs, err := rating.ReadCSV(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	rating.Sort(rs)
	ratings = map[int]rating.Rating{}
	for i, r := range rs {
		ratings[i] = r
		if i >= len(rs)/2 {
			kept = append(kept, joined{index: i, liked: r.Label()})
		}
	}
	return kept, ratings
}

// TestBiasOnMovieLens holds the baseline to what an independent program computes from the same
// file: a table of biases in Python, learnt by Adagrad with a rate of 0.6, rating by rating.
func TestBiasOnMovieLens(t *testing.T) {
	kept, ratings := realRatings(t)
	half := len(ratings) / 2
	for lag, want := range map[int]float64{0: 0.8200, 5: 0.8110, 25: 0.7955, 50: 0.7822, 200: 0.7431, 1000: 0.6992} {
		if got := biased(kept, ratings, func(i int) int { return kept[i].index - lag }); math.Abs(got-want) > 0.00006 {
			t.Errorf("lag %d: AUC %.4f, want %.4f", lag, got, want)
		}
	}
	if got := biased(kept, ratings, func(int) int { return half }); math.Abs(got-0.6654) > 0.00006 {
		t.Errorf("frozen: AUC %.4f, want 0.6654", got)
	}
}

func TestBiasLearnsByAdagrad(t *testing.T) {
	b := NewBias()
	if z := b.Score(1, 2); z != 0 {
		t.Errorf("before anything was learnt: %v", z)
	}
	b.Learn(rating.Rating{User: 1, Movie: 2, Rating: 5})
	step := 0.6 * 0.5 / math.Sqrt(0.1+0.25)
	if z, want := b.Score(1, 2), 0.005+2*step; math.Abs(z-want) > 1e-12 {
		t.Errorf("after one liked rating: %v, want %v", z, want)
	}
	if z, want := b.Score(1, 3), 0.005+step; math.Abs(z-want) > 1e-12 {
		t.Errorf("of another movie: %v, want %v", z, want)
	}
	b.Learn(rating.Rating{User: 3, Movie: 4, Rating: 1})
	if z := b.Score(3, 4); z > -1 {
		t.Errorf("after one disliked rating: %v", z)
	}
}

// TestLags counts what was published behind the last rating that was served.
func TestLags(t *testing.T) {
	t0 := time.UnixMilli(1_000_000)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	places := map[place]int{}
	var f Freshnesses
	for i := range 10 { // rating i goes out at i ms and is served 3.5 ms later, rating 4 never
		places[place{int32(i % 2), int64(i / 2)}] = i
		if i != 4 {
			f.Samples = append(f.Samples, Sample{Partition: int32(i % 2), Offset: int64(i / 2), Time: at(i), Fast: 3.5, Slow: 9})
		}
	}
	var kept []joined
	for i := 9; i >= 0; i-- { // in any order
		kept = append(kept, joined{index: i, asked: at(i).UnixMicro()})
	}
	got := lagsOf(kept, f, places)
	slices.Reverse(got)
	// Rating 8 is scored at 8 ms, when 3 is served (4 never is), so 4, 5, 6 and 7 are missing.
	if want := "[0 1 2 3 3 3 3 3 4 3]"; fmt.Sprint(got) != want {
		t.Errorf("lags %v, want %v", got, want)
	}
}

// TestBaselineOfARun takes it from topic, impressions and facts, as the report does.
func TestBaselineOfARun(t *testing.T) {
	w := newWorld(t, tamper{})
	r := w.report()
	if !r.AUCBaseline.Known() || !r.AUCBaselineFrozen.Known() {
		t.Fatalf("baseline %v, frozen %v", r.AUCBaseline, r.AUCBaselineFrozen)
	}
	// Flushes of 20 ratings are served 40 ms after they begin, those of shard 0 earlier.
	if r.Lag.P50 < 1 || r.Lag.P90 < 20 || r.Lag.P90 > 59 {
		t.Errorf("lag %+v", r.Lag)
	}
}
