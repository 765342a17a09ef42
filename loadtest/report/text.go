package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// sorted lists a count map, greatest first, then by name.
func sorted(m map[string]int64) []counts {
	var all []counts
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, counts{k, m[k]})
	}
	slices.SortStableFunc(all, func(a, b counts) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

type counts struct {
	Name  string
	Count int64
}

// spark draws values as a row of blocks between lo and hi, a gap where unknown.
func spark(values []Figure, lo, hi float64, width int) string {
	const blocks = "▁▂▃▄▅▆▇█"
	steps := []rune(blocks)
	width = min(width, len(values))
	var b strings.Builder
	for i := range width {
		part := values[i*len(values)/width : (i+1)*len(values)/width]
		sum, n := 0.0, 0
		for _, v := range part {
			if v.Known() {
				sum, n = sum+float64(v), n+1
			}
		}
		if n == 0 {
			b.WriteByte(' ')
			continue
		}
		at := int((sum/float64(n) - lo) / (hi - lo) * float64(len(steps)))
		b.WriteRune(steps[min(max(at, 0), len(steps)-1)])
	}
	return b.String()
}

// Text writes the report as one page for a terminal of 80 columns.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	p("%s", r.describe())
	p("")
	p("LEARNING")
	p("  AUC online            %s", auc(r.AUCOnline))
	if r.AUCFrozen.Known() {
		p("  AUC frozen            %s   stopped learning at half time: %s", auc(r.AUCFrozen), signed(r.AUCOnline-r.AUCFrozen)+" for freshness")
	} else {
		p("  AUC frozen            %s", unknown)
	}
	if r.AUCBest.Known() {
		p("  AUC best possible     %s   of the true probabilities", auc(r.AUCBest))
	}
	if r.baselines() {
		p("  AUC of biases         %s   one per user and movie: %s", auc(r.AUCBaseline), signed(r.AUCOnline-r.AUCBaseline)+" for the model")
		p("  AUC of biases, frozen %s   %s for the model", auc(r.AUCBaselineFrozen), signed(r.AUCFrozen-r.AUCBaselineFrozen))
		if lag := r.lag(); lag != "" {
			p("  lag                   %s when a rating was scored", lag)
		}
	}
	p("                        over the same %s of the second half,", counted(r.Run.Compared, "rating"))
	p("                        each scored before its label was out")
	if pace := r.pace("                        ", ":\n                        "); pace != "" {
		p("%s", pace)
	}
	b.WriteString(r.sparks())
	b.WriteString(r.lags())
	p("  ratings               %s read, %s learnt, %s rejected", count(r.RatingsRead), count(r.RatingsTrained), count(r.RatingsRejected))
	p("")
	p("FRESHNESS, rating acked to last replica serving its rows")
	p("  p50 %s ms   p99 %s ms   %s", millis(r.Freshness.P50), millis(r.Freshness.P99), counted(r.Freshness.Samples, "sample"))
	if r.Freshness.FastestP50.Known() && r.Freshness.FastestP50 > 0 {
		p("  first replica: p50 %s ms   p99 %s ms", millis(r.Freshness.FastestP50), millis(r.Freshness.FastestP99))
	}
	p("")
	p("PREDICT, open-loop load, from the moment each call was due")
	batch := ""
	if r.Predict.Batch > 1 {
		batch = fmt.Sprintf(" of %d examples", r.Predict.Batch)
	}
	if r.Predict.Calls == 0 {
		p("  no load was asked for")
	} else {
		p("  p50 %s ms   p99 %s ms   slowest %s ms", millis(r.Predict.P50), millis(r.Predict.P99), millis(r.Predict.Max))
		p("  %s calls%s per second answered, %s, %s", number(r.Predict.Rate), batch, counted(r.Predict.Calls, "call"), counted(r.Predict.Errors, "error"))
	}
	if r.Predict.Errors > 0 {
		p("  NOT ANSWERED          %s of %s calls:", count(r.Predict.Errors), count(r.Predict.Calls))
	}
	for _, e := range sorted(r.Predict.ErrorsByCode) {
		p("    %s %s", count(e.Count), e.Name)
	}
	p("  first prediction      %s s after the start, model version %d", number(r.FirstPredictionSeconds), r.ModelVersion)
	p("")
	p("CHECKS")
	p("  folding the log again gives the live views' hashes    %s", yes(r.ReplayHashEqual))
	p("  serving replicas agree with the training shards       %s", yes(r.ReplicasAgree))
	p("")
	if len(r.Series.Marks) > 0 {
		p("WHAT HAPPENED")
		for _, m := range r.Series.Marks {
			p("  %6.1f s  %s", m.Second, m.Text)
		}
		p("")
	}
	p("EVENTS")
	b.WriteString(table(r.Events, "none"))
	p("")
	p("REJECTED")
	b.WriteString(table(grouped(r.Rejected), "nothing"))
	b.WriteString(r.textRecommendations())
	_, err := io.WriteString(w, b.String())
	return err
}

// lags is how AUC depends on the lag.
func (r *Report) lags() string {
	if len(r.AUCByLag) == 0 {
		return ""
	}
	lag, online, base := "  replayed at a lag of ", "    the model          ", "    biases             "
	for _, x := range r.AUCByLag {
		lag, online, base = lag+fmt.Sprintf("%8d", x.Lag), online+fmt.Sprintf("%8s", auc(x.Online)), base+fmt.Sprintf("%8s", auc(x.Baseline))
	}
	return lag + "\n" + online + "\n" + base + "\n"
}

func (r *Report) sparks() string {
	ps := r.Series.AUC
	if len(ps) < 2 {
		return ""
	}
	lo, hi := 0.5, 0.6
	var online, frozen []Figure
	seen := false
	for _, p := range ps {
		online, frozen = append(online, p.Online), append(frozen, p.Frozen)
		for _, f := range [...]Figure{p.Online, p.Frozen} {
			if f.Known() {
				lo, hi = math.Min(lo, float64(f)), math.Max(hi, float64(f))
			}
		}
		seen = seen || p.Frozen.Known()
	}
	const width = 44
	out := fmt.Sprintf("  over time, online     %s  %.2f to %.2f\n", spark(online, lo, hi, width), lo, hi)
	if seen {
		out += fmt.Sprintf("  over time, frozen     %s\n", spark(frozen, lo, hi, width))
	}
	return out
}

// table writes counts in aligned columns.
func table(m map[string]int64, none string) string {
	if len(m) == 0 {
		return "  " + none + "\n"
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range sorted(m) {
		fmt.Fprintf(tw, "\t%s\t", count(c.Count))
		fmt.Fprintf(tw, "\n")
	}
	_ = tw.Flush() // into memory
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	b.Reset()
	for i, c := range sorted(m) {
		fmt.Fprintf(&b, "%s  %s\n", lines[i], c.Name)
	}
	return b.String()
}
