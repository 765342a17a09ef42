package audit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/loadtest/report"
)

var epoch0 = time.Unix(1_700_000_000, 0)

func ms(n int) time.Time { return epoch0.Add(time.Duration(n) * time.Millisecond) }

// ranges is a delta of shard k with ranges of partition 0.
func ranges(seq uint64, k uint32, epoch uint64, fromTo ...int64) Delta {
	d := &delta.Delta{Shard: k, Epoch: epoch}
	for i := 0; i < len(fromTo); i += 2 {
		d.Ranges = append(d.Ranges, &delta.Range{From: fromTo[i], To: fromTo[i+1]})
	}
	return Delta{Seq: seq, Delta: d}
}

// applied says of a replica of m up to which deltas it was when.
func applied(sub, container string, seqMs ...int) (all []Applied) {
	for i := 0; i < len(seqMs); i += 2 {
		all = append(all, Applied{"m", sub, container, uint64(seqMs[i]), ms(seqMs[i+1])})
	}
	return all
}

// alive is a life of a replica of m; to 0 has no end.
func alive(sub, container string, from, to int) Lifetime {
	l := Lifetime{Model: "m", SubModel: sub, Container: container, From: ms(from)}
	if to > 0 {
		l.To = ms(to)
	}
	return l
}

// ratedAt are ratings of one training shard: rating n at offset n is acked at 100 + 10 n ms and
// produced 4 ms before.
func ratedAt(fids []int64, offsets ...int64) (all []Rated) {
	for _, o := range offsets {
		all = append(all, Rated{Offset: o, Time: ms(96 + 10*int(o)), Acked: ms(100 + 10*int(o)), FIDs: fids})
	}
	return all
}

// freshnessCase is a run's facts, and what they say of how soon its ratings were served.
type freshnessCase struct {
	name    string
	deltas  []Delta
	applied []Applied
	lives   []Lifetime
	ratings []Rated
	shards  int
	serving int
	want    Freshnesses
}

func TestFreshness(t *testing.T) {
	for _, tc := range append(freshnessOfReplicas(), freshnessOfRecords()...) {
		t.Run(tc.name, func(t *testing.T) {
			got := Freshness(tc.deltas, tc.applied, tc.lives, tc.ratings, "m", tc.shards, tc.serving)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// freshnessOfReplicas is about whose word counts.
func freshnessOfReplicas() []freshnessCase {
	return []freshnessCase{
		{
			name:    "the slowest replica counts",
			deltas:  []Delta{ranges(5, 0, 1, 0, 2)},
			applied: append(applied("ps_0", "a", 5, 150), applied("ps_0", "b", 5, 170)...),
			lives:   []Lifetime{alive("ps_0", "a", 0, 0), alive("ps_0", "b", 0, 0)},
			ratings: ratedAt([]int64{2, 4}, 0, 1), shards: 1, serving: 1,
			want: Freshnesses{Samples: []Sample{{0, 0, ms(100), 70, 50, 74}, {0, 1, ms(110), 60, 40, 64}}},
		},
		{
			name:    "the later of two rows, by their own shards",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1), ranges(9, 1, 1, 0, 1)},
			applied: append(applied("ps_0", "a", 5, 130, 9, 190), applied("ps_1", "b", 5, 120, 9, 160)...),
			lives:   []Lifetime{alive("ps_0", "a", 0, 0), alive("ps_1", "b", 0, 0)},
			ratings: ratedAt([]int64{2, 3}, 0), shards: 2, serving: 2, // row 2: delta 5 on a; row 3: delta 9 on b
			want: Freshnesses{Samples: []Sample{{0, 0, ms(100), 60, 60, 64}}},
		},
		{
			name:    "a later delta implies the earlier ones",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1), ranges(6, 0, 1, 1, 2), ranges(7, 0, 1, 2, 3)},
			applied: applied("ps_0", "a", 5, 140, 7, 155), // what it said of 6 was lost
			lives:   []Lifetime{alive("ps_0", "a", 0, 0)},
			ratings: ratedAt([]int64{2}, 1), shards: 1, serving: 1,
			want: Freshnesses{Samples: []Sample{{0, 1, ms(110), 45, 45, 49}}},
		},
		{
			name:    "a replica that was born later does not count, one that died neither",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1)},
			applied: append(append(applied("ps_0", "a", 5, 150), applied("ps_0", "young", 5, 9000)...), applied("ps_0", "dead", 4, 90)...),
			lives:   []Lifetime{alive("ps_0", "a", 0, 0), alive("ps_0", "young", 101, 0), alive("ps_0", "dead", 0, 120)},
			ratings: ratedAt([]int64{2}, 0), shards: 1, serving: 1,
			want: Freshnesses{Samples: []Sample{{0, 0, ms(100), 50, 50, 54}}},
		},
		{
			name:    "a restarted replica counts in each of its lives",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1), ranges(8, 0, 1, 1, 9)},
			applied: applied("ps_0", "a", 5, 115, 8, 260),
			lives:   []Lifetime{alive("ps_0", "a", 0, 120), alive("ps_0", "a", 150, 0)},
			ratings: ratedAt([]int64{2}, 0, 4, 8), shards: 1, serving: 1, // acked at 100, 140, 180
			want: Freshnesses{Samples: []Sample{{0, 0, ms(100), 15, 15, 19}, {0, 8, ms(180), 80, 80, 84}}, Unserved: 1},
		},
	}
}

// freshnessOfRecords is about which delta counts.
func freshnessOfRecords() []freshnessCase {
	return []freshnessCase{
		{
			name:    "records in no delta, and deltas nobody spoke of",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1), ranges(6, 0, 1, 2, 3)},
			applied: applied("ps_0", "a", 5, 150),
			lives:   []Lifetime{alive("ps_0", "a", 0, 0)},
			ratings: ratedAt([]int64{2}, 0, 1, 2, 3), shards: 1, serving: 1,
			want: Freshnesses{Samples: []Sample{{0, 0, ms(100), 50, 50, 54}}, Unlearnt: 2, Unknown: 1},
		},
		{
			name:    "the first delta counts, not the one after a restart",
			deltas:  []Delta{ranges(5, 0, 1, 0, 3), ranges(9, 0, 2, 1, 5)},
			applied: applied("ps_0", "a", 5, 150, 9, 500),
			lives:   []Lifetime{alive("ps_0", "a", 0, 0)},
			ratings: ratedAt([]int64{2}, 2, 3), shards: 1, serving: 1,
			want: Freshnesses{Samples: []Sample{{0, 2, ms(120), 30, 30, 34}, {0, 3, ms(130), 370, 370, 374}}},
		},
		{
			name:    "served before the ack was heard",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1)},
			applied: applied("ps_0", "a", 5, 98),
			lives:   []Lifetime{alive("ps_0", "a", 0, 0)},
			ratings: ratedAt([]int64{2}, 0), shards: 1, serving: 1,
			want: Freshnesses{Samples: []Sample{{0, 0, ms(100), 0, 0, 2}}},
		},
		{
			name:    "other models say nothing",
			deltas:  []Delta{ranges(5, 0, 1, 0, 1)},
			applied: []Applied{{"other", "ps_0", "a", 5, ms(150)}},
			lives:   []Lifetime{{Model: "other", SubModel: "ps_0", Container: "a", From: ms(0)}},
			ratings: ratedAt([]int64{2}, 0), shards: 1, serving: 1,
			want: Freshnesses{Unserved: 1},
		},
	}
}

func TestFill(t *testing.T) {
	var f Freshnesses
	for i := range 1000 {
		f.Samples = append(f.Samples, Sample{Offset: int64(i), Time: ms(i * 3), Slow: float64(i % 100), Fast: float64(i%100) / 2, Produced: float64(i%100) + 3})
	}
	f.Samples[500].Slow = 4000
	var r report.Report
	f.Fill(&r, epoch0)
	want := report.Freshness{P50: 50, P99: 99, Samples: 1000, FastestP50: 24.5, FastestP99: 49, ProducedP50: 52, ProducedP99: 101}
	if diff := cmp.Diff(want, r.Freshness); diff != "" {
		t.Error(diff)
	}
	if len(r.Series.Freshness) != 3 || r.Series.Freshness[0].Count != 334 || r.Series.Freshness[1].P99 != 99 {
		t.Errorf("series %+v", r.Series.Freshness)
	}
	n, last := int64(0), 0.0
	for i, b := range r.Series.FreshnessHist {
		if n += b.Count; b.From != last || b.To <= b.From {
			t.Errorf("bucket %d is [%v, %v)", i, b.From, b.To)
		}
		last = b.To
	}
	if n != 1000 || last != 4000 || len(r.Series.FreshnessHist) > 60 {
		t.Errorf("%d samples in %d buckets up to %v", n, len(r.Series.FreshnessHist), last)
	}
	Freshnesses{}.Fill(&r, epoch0)
	if r.Freshness.P50.Known() || len(r.Series.Freshness)+len(r.Series.FreshnessHist) > 0 {
		t.Errorf("nothing measured: %+v", r.Freshness)
	}
}

func TestHistogramHoldsEverySample(t *testing.T) {
	for _, v := range [][]float64{{0}, {0, 0, 0}, {1e-9}, {1e9}, {0.3, 0.4, 700}, {39.999999, 40, 40.000001}} {
		n := int64(0)
		for _, b := range histogram(v) {
			n += b.Count
		}
		if n != int64(len(v)) {
			t.Errorf("%v: %d samples in the buckets", v, n)
		}
		if len(histogram(v)) > 110 {
			t.Errorf("%v: %d buckets", v, len(histogram(v)))
		}
	}
}

func TestTiles(t *testing.T) {
	ready := func(epoch uint64, offset int64) *shard.Ready {
		return &shard.Ready{Epoch: epoch, Offsets: map[int32]int64{0: offset}}
	}
	for _, tc := range []struct {
		name   string
		deltas []Delta
		ready  []*shard.Ready
		end    int64
		first  uint64
		says   string // "": content
	}{
		{"one epoch", []Delta{ranges(1, 0, 1, 0, 3), ranges(2, 0, 1), ranges(3, 0, 1, 3, 5, 5, 8)}, []*shard.Ready{ready(1, 0)}, 8, 1, ""},
		{"other shards do not matter", []Delta{ranges(1, 0, 1, 0, 3), ranges(2, 1, 1, 0, 1)}, []*shard.Ready{ready(1, 0)}, 3, 1, ""},
		{"a restart goes back to its checkpoint", []Delta{ranges(1, 0, 1, 0, 3), ranges(2, 0, 1, 3, 6), ranges(3, 0, 2, 3, 9)}, []*shard.Ready{ready(1, 0), ready(2, 3)}, 9, 1, ""},
		{"a checkpoint was being saved when its shard was lost", []Delta{ranges(1, 0, 1, 0, 6), ranges(2, 0, 2), ranges(3, 0, 3, 6, 9)}, []*shard.Ready{ready(1, 0), ready(2, 3), ready(3, 6)}, 9, 1, ""},
		{"two restarts, and a checkpoint beyond what was published", []Delta{ranges(1, 0, 1, 0, 6), ranges(2, 0, 2), ranges(3, 0, 3, 7, 9)}, []*shard.Ready{ready(1, 0), ready(2, 3), ready(3, 7)}, 9, 1, "epoch 3 begins partition 0 at offset 7, but the deltas before it end at 6"},
		{"a restart without checkpoint", []Delta{ranges(1, 0, 1, 0, 3), ranges(3, 0, 2, 0, 9)}, []*shard.Ready{ready(1, 0), ready(2, 0)}, 9, 1, ""},
		{"an empty topic", nil, nil, 0, 1, ""},
		{"a discarded beginning", []Delta{ranges(7, 0, 3, 4, 6), ranges(8, 0, 3, 6, 7)}, nil, 7, 7, ""},
		{"gap", []Delta{ranges(1, 0, 1, 0, 3), ranges(2, 0, 1, 4, 5)}, nil, 5, 1, "the records from 3 on are in none"},
		{"overlap", []Delta{ranges(1, 0, 1, 0, 3), ranges(2, 0, 1, 2, 5)}, nil, 5, 1, "learnt twice"},
		{"not from the beginning", []Delta{ranges(1, 0, 1, 1, 3)}, nil, 3, 1, "the records from 0 on are in none"},
		{"not to the end", []Delta{ranges(1, 0, 1, 0, 3)}, nil, 4, 1, "the deltas end at offset 3, the topic at 4"},
		{"beyond the end", []Delta{ranges(1, 0, 1, 0, 3)}, nil, 2, 1, "the deltas end at offset 3, the topic at 2"},
		{"empty range", []Delta{ranges(1, 0, 1, 0, 0, 0, 3)}, nil, 3, 1, "empty range"},
		{"a restart jumps ahead of what was published", []Delta{ranges(1, 0, 1, 0, 3), ranges(2, 0, 2, 5, 9)}, []*shard.Ready{ready(2, 5)}, 9, 1, "epoch 2 begins partition 0 at offset 5, but the deltas before it end at 3"},
		{"a restart does not go back to its checkpoint", []Delta{ranges(1, 0, 1, 0, 6), ranges(2, 0, 2, 6, 9)}, []*shard.Ready{ready(2, 3)}, 9, 1, "the records from 3 on are in none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Tiles(tc.deltas, 0, tc.ready, map[int32]int64{0: tc.end}, tc.first)
			if c.OK != (tc.says == "") {
				t.Fatal(c)
			}
			if tc.says != "" && !strings.Contains(c.Detail, tc.says) {
				t.Errorf("%q does not say %q", c.Detail, tc.says)
			}
		})
	}
}

func TestCheckString(t *testing.T) {
	for want, c := range map[string]Check{
		"ok   rows: 3":                         {Name: "rows", Want: "3", Got: "3", OK: true},
		"FAIL rows: 2, want 3. One is missing": {Name: "rows", Want: "3", Got: "2", Detail: "One is missing"},
		"ok   AUC: unknown":                    near("AUC", math.NaN(), math.NaN(), 0, "x"),
		"FAIL AUC: 0.5, want unknown. x":       near("AUC", math.NaN(), 0.5, 0, "x"),
	} {
		if got := fmt.Sprint(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
