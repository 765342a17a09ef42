package audit

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Rated is a record of the training topic as freshness needs it.
type Rated struct {
	Partition int32
	Offset    int64
	Time      time.Time // the record's
	Acked     time.Time // when its writer was told that it is on disk; zero: not known
	FIDs      []int64   // feature ids of the rows it trains
}

// Sample is the freshness of one rating.
type Sample struct {
	Partition int32
	Offset    int64
	Time      time.Time // acked, or the record's when that is not known
	Slow      float64   // ms from Time until the last replica of each row served it
	Fast      float64   // the same by the first replica of each row
	Produced  float64   // Slow, but from the record's own time
}

// Freshnesses are the samples in order of partition and offset, and what has none.
type Freshnesses struct {
	Samples  []Sample
	Unlearnt int // in no delta of a shard that holds one of its rows
	Unserved int // no replica was available then for one of its rows
	Unknown  int // a replica that was available never said that it applied the delta
}

// span says that offsets [from, to) of a partition came first with delta seq.
type span struct {
	from, to int64
	seq      uint64
}

// firstSpans lists, per partition, which delta of a shard contained each offset first.
func firstSpans(deltas []Delta, shard uint32) map[int32][]span {
	spans := map[int32][]span{}
	for _, d := range deltas {
		if d.Dense || d.GetShard() != shard {
			continue
		}
		for _, r := range d.GetRanges() {
			list := spans[r.GetPartition()]
			from := r.GetFrom()
			if n := len(list); n > 0 {
				from = max(from, list[n-1].to) // what comes again after a restart came before
			}
			if r.GetTo() > from {
				spans[r.GetPartition()] = append(list, span{from, r.GetTo(), d.Seq})
			}
		}
	}
	return spans
}

func find(spans []span, offset int64) (uint64, bool) {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].to > offset })
	if i == len(spans) || spans[i].from > offset {
		return 0, false
	}
	return spans[i].seq, true
}

// follower is what one replica of one sub-model said.
type follower struct {
	seqs  []uint64
	at    []time.Time // earliest time at which seqs[i] or a later delta was applied
	lives []Lifetime
}

// served is when the replica had applied delta seq: a follower applies in order, so
// having applied a later one is having applied this one.
func (f *follower) served(seq uint64) (time.Time, bool) {
	i, _ := slices.BinarySearch(f.seqs, seq)
	if i == len(f.seqs) {
		return time.Time{}, false
	}
	return f.at[i], true
}

// followers groups what was said by sub-model and container.
func followers(model string, applied []Applied, lives []Lifetime) map[string][]*follower {
	type who struct{ sub, container string }
	by := map[who]*follower{}
	get := func(sub, container string) *follower {
		f := by[who{sub, container}]
		if f == nil {
			f = new(follower)
			by[who{sub, container}] = f
		}
		return f
	}
	said := map[who][]Applied{}
	for _, a := range applied {
		if a.Model == model {
			said[who{a.SubModel, a.Container}] = append(said[who{a.SubModel, a.Container}], a)
		}
	}
	for w, list := range said {
		slices.SortFunc(list, func(a, b Applied) int { return cmp.Or(cmp.Compare(a.SyncSeq, b.SyncSeq), a.At.Compare(b.At)) })
		f := get(w.sub, w.container)
		f.seqs, f.at = make([]uint64, len(list)), make([]time.Time, len(list))
		for i := len(list) - 1; i >= 0; i-- {
			f.seqs[i], f.at[i] = list[i].SyncSeq, list[i].At
			if i+1 < len(list) && f.at[i+1].Before(f.at[i]) {
				f.at[i] = f.at[i+1]
			}
		}
	}
	for _, l := range lives {
		if l.Model == model {
			f := get(l.SubModel, l.Container)
			f.lives = append(f.lives, l)
		}
	}
	subs := map[string][]*follower{}
	for w, f := range by {
		subs[w.sub] = append(subs[w.sub], f)
	}
	return subs
}

// during is the life of the replica that t falls into.
func (f *follower) during(t time.Time) (Lifetime, bool) {
	for _, l := range f.lives {
		if !t.Before(l.From) && (l.To.IsZero() || t.Before(l.To)) {
			return l, true
		}
	}
	return Lifetime{}, false
}

// Freshness computes, for each rating, how long it took from its ack until its rows
// were served. A row belongs to one training shard and one serving shard; the delta of
// the former that first contained the rating must be applied by every replica of the
// latter that was available at the time of the ack and did not go away meanwhile. Slow
// takes the last of them and the later of the rows, Fast the first of them and the
// later of the rows. Replicas measure by their own clocks.
func Freshness(deltas []Delta, applied []Applied, lives []Lifetime, ratings []Rated, model string, shards, servingShards int) Freshnesses {
	spans := make([]map[int32][]span, shards)
	for k := range spans {
		spans[k] = firstSpans(deltas, uint32(k))
	}
	subs := followers(model, applied, lives)
	names := make([]string, servingShards)
	for v := range names {
		names[v] = "ps_" + itoa(v)
	}
	var out Freshnesses
ratings:
	for _, r := range ratings {
		t := r.Acked
		if t.IsZero() {
			t = r.Time
		}
		var slow, fast time.Time
		for _, fid := range r.FIDs {
			seq, ok := find(spans[modelspec.ShardOf(fid, shards)][r.Partition], r.Offset)
			if !ok {
				out.Unlearnt++
				continue ratings
			}
			var last, first time.Time
			unknown := false
			for _, f := range subs[names[modelspec.ShardOf(fid, servingShards)]] {
				life, alive := f.during(t)
				if !alive {
					continue
				}
				at, known := f.served(seq)
				if !life.To.IsZero() && (!known || at.After(life.To)) {
					continue // it went away before it came to this delta
				}
				if !known {
					unknown = true
					continue
				}
				if at.After(last) {
					last = at
				}
				if first.IsZero() || at.Before(first) {
					first = at
				}
			}
			if unknown {
				out.Unknown++
				continue ratings
			}
			if last.IsZero() {
				out.Unserved++
				continue ratings
			}
			if last.After(slow) {
				slow = last
			}
			if first.After(fast) {
				fast = first
			}
		}
		out.Samples = append(out.Samples, Sample{r.Partition, r.Offset, t, since(t, slow), since(t, fast), since(r.Time, slow)})
	}
	return out
}

// since is never negative: a row may be served before its writer hears the ack.
func since(from, to time.Time) float64 {
	return math.Max(0, float64(to.Sub(from))/float64(time.Millisecond))
}

// Fill sets the report's freshness: figures, series by the second since started, and
// the histogram.
func (f Freshnesses) Fill(r *report.Report, started time.Time) {
	column := func(get func(Sample) float64) []float64 {
		v := make([]float64, len(f.Samples))
		for i, s := range f.Samples {
			v[i] = get(s)
		}
		slices.Sort(v)
		return v
	}
	slow := column(func(s Sample) float64 { return s.Slow })
	fast := column(func(s Sample) float64 { return s.Fast })
	produced := column(func(s Sample) float64 { return s.Produced })
	p := func(v []float64, percent float64) report.Figure { return report.Figure(eval.Percentile(v, percent)) }
	r.Freshness = report.Freshness{
		P50: p(slow, 50), P99: p(slow, 99), Samples: int64(len(slow)),
		FastestP50: p(fast, 50), FastestP99: p(fast, 99),
		ProducedP50: p(produced, 50), ProducedP99: p(produced, 99),
	}

	bySecond := map[int][]float64{}
	for _, s := range f.Samples {
		at := int(math.Floor(s.Time.Sub(started).Seconds()))
		bySecond[at] = append(bySecond[at], s.Slow)
	}
	r.Series.Freshness = nil
	for at, v := range bySecond {
		slices.Sort(v)
		r.Series.Freshness = append(r.Series.Freshness, report.LatencyPoint{Second: float64(at), Count: int64(len(v)), P50: p(v, 50), P99: p(v, 99)})
	}
	slices.SortFunc(r.Series.Freshness, func(a, b report.LatencyPoint) int { return cmp.Compare(a.Second, b.Second) })
	r.Series.FreshnessHist = histogram(slow)
}

// histogram has about forty buckets of one round width up to a little above p99, and
// one more for all beyond.
func histogram(sorted []float64) []report.Bucket {
	if len(sorted) == 0 {
		return nil
	}
	reach := max(1.25*eval.Percentile(sorted, 99), 1)
	width := math.Pow(10, math.Floor(math.Log10(reach/40)))
	for _, m := range [...]float64{1, 2, 5, 10} {
		if m*width*40 >= reach {
			width *= m
			break
		}
	}
	n := int(math.Ceil(reach / width))
	buckets := make([]report.Bucket, n)
	for i := range buckets {
		buckets[i] = report.Bucket{From: float64(i) * width, To: float64(i+1) * width}
	}
	beyond := int64(0)
	for _, v := range sorted {
		if i := int(v / width); i < n {
			buckets[i].Count++
		} else {
			beyond++
		}
	}
	if beyond > 0 {
		end := buckets[n-1].To
		buckets = append(buckets, report.Bucket{From: end, To: math.Max(sorted[len(sorted)-1], end+2*width), Count: beyond})
	}
	return buckets
}
