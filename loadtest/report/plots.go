package report

import (
	"fmt"
	"math"
	"strings"
)

// plot is one figure of the page, and one file beside it.
type plot struct {
	File    string // without .svg
	Title   string
	Caption string
	SVG     string
	Wide    bool
}

// plots draws what the report has points for.
func (r *Report) plots() []plot {
	var all []plot
	add := func(file, title, caption, svg string) {
		if svg != "" {
			all = append(all, plot{file, title, caption, svg, strings.Contains(svg, fmt.Sprintf(`viewBox="0 0 %g `, wide.w))})
		}
	}
	add("auc", "Progressive AUC", "Each rating is scored by the serving path before its label is out; one point per window of ratings. 0.5 is chance. The frozen copy stopped learning at half time.", r.plotAUC())
	add("freshness", "Freshness over time", "From the broker’s ack of a rating until the last serving replica answers with its changed rows, by the second of the ack.", r.plotFreshness())
	add("freshness-histogram", "Freshness, all samples", "How many ratings were served after how long.", r.plotHistogram())
	add("predict", "Predict latency under open-loop load", "From the moment a call was due, so a stall delays every call behind it. The axis stretches the slowest calls: each step to the right leaves a tenth of them.", r.plotSpread())
	add("predict-time", "Predict latency over time", "The same calls, by the second in which they were due.", r.plotPredict())
	add("backlog", "Backlog", "Ratings on the broker’s disk that some training shard does not contain yet.", r.plotBacklog())
	return all
}

func (r *Report) plotAUC() string {
	ps := r.Series.AUC
	if len(ps) == 0 {
		return ""
	}
	lo, hi := 0.5, 0.6
	for _, p := range ps {
		for _, f := range []Figure{p.Online, p.Frozen, p.Best} {
			if f.Known() {
				lo, hi = math.Min(lo, float64(f)), math.Max(hi, float64(f))
			}
		}
	}
	end := float64(ps[len(ps)-1].Ratings)
	c := newCanvas(wide,
		linear(0, end, 6, false, "ratings", plain),
		linear(lo, hi, 5, true, "AUC", twoDecimals), "best possible")
	c.across(0.5, "chance")
	if at := r.Series.FrozenAtRating; at > 0 {
		c.down(float64(at), 0, "copy frozen here")
	}
	var online, frozen, best []point
	for _, p := range ps {
		x := float64(p.Ratings)
		online = append(online, point{x, float64(p.Online)})
		frozen = append(frozen, point{x, float64(p.Frozen)})
		best = append(best, point{x, float64(p.Best)})
	}
	c.line(best, colorNeutral, "best possible", true)
	c.line(frozen, colorFrozen, "frozen", false)
	c.line(online, colorOnline, "online", false)
	return c.svg("Progressive AUC of the online model and the frozen copy, over ratings")
}

// latency draws p50 and p99 by the second.
func latency(ps []LatencyPoint, y, title string, marks []Mark) string {
	if len(ps) == 0 {
		return ""
	}
	hi := 0.0
	for _, p := range ps {
		hi = math.Max(hi, math.Max(finite(p.P99), finite(p.P50)))
	}
	first, end := ps[0].Second, ps[len(ps)-1].Second
	c := newCanvas(half,
		linear(math.Min(first, 0), math.Max(end, first+1), 6, false, "seconds since the start", plain),
		linear(0, hi, 5, true, y, plain), "p99")
	c.events(marks)
	var p50, p99 []point
	for i, p := range ps {
		if i > 0 && p.Second > ps[i-1].Second+1 { // seconds without a sample leave a gap
			p50, p99 = append(p50, point{p.Second, math.NaN()}), append(p99, point{p.Second, math.NaN()})
		}
		p50 = append(p50, point{p.Second, float64(p.P50)})
		p99 = append(p99, point{p.Second, float64(p.P99)})
	}
	c.line(p99, colorFrozen, "p99", false)
	c.line(p50, colorOnline, "p50", false)
	return c.svg(title)
}

// events marks what happened; the first few have their text, which would hide the lines.
func (c *canvas) events(marks []Mark) {
	row, last := 0, math.Inf(-1)
	for _, m := range marks {
		if m.Second < c.x.lo || m.Second > c.x.hi {
			continue
		}
		text := ""
		if row < 3 && m.Second > last+(c.x.hi-c.x.lo)/40 { // those of one moment share a text
			text = m.Text
		}
		c.event(m.Second, row, text)
		if text != "" {
			row, last = row+1, m.Second
		}
	}
}

func finite(f Figure) float64 {
	if f.Known() {
		return float64(f)
	}
	return 0
}

func (r *Report) plotFreshness() string {
	return latency(r.Series.Freshness, "milliseconds", "Freshness p50 and p99 over the seconds of the run", r.Series.Marks)
}

func (r *Report) plotPredict() string {
	return latency(r.Series.Predict, "milliseconds", "Predict latency p50 and p99 over the seconds of the run", r.Series.Marks)
}

// plotHistogram draws bars of equal width; a last bucket that is wider than the others
// is no bar but a note.
func (r *Report) plotHistogram() string {
	bs := r.Series.FreshnessHist
	if len(bs) == 0 {
		return ""
	}
	beyond := int64(0)
	if n := len(bs); n > 1 && bs[n-1].To-bs[n-1].From > 1.5*(bs[0].To-bs[0].From) {
		beyond, bs = bs[n-1].Count, bs[:n-1]
	}
	most := 0.0
	for _, b := range bs {
		most = math.Max(most, float64(b.Count))
	}
	note := ""
	if beyond > 0 {
		note = count(beyond) + " more"
	}
	c := newCanvas(half,
		linear(bs[0].From, bs[len(bs)-1].To, 5, false, "milliseconds", plain),
		linear(0, most, 5, true, "ratings", plain), note)
	for _, b := range bs {
		if b.Count == 0 {
			continue
		}
		x, y := c.x.px(b.From), c.y.px(float64(b.Count))
		c.f(`<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"><title>%s–%s ms: %s</title></rect>`,
			x+0.5, y, math.Max(c.x.px(b.To)-x-1, 0.5), c.bottom-y, colorOnline, plain(b.From), plain(b.To), count(b.Count))
	}
	last := bs[len(bs)-1].To
	for row, m := range []struct {
		at   Figure
		name string
	}{{r.Freshness.P50, "p50"}, {r.Freshness.P99, "p99"}} {
		if m.at.Known() && float64(m.at) <= last {
			c.down(float64(m.at), row, m.name+" "+millis(m.at)+" ms")
		}
	}
	if note != "" {
		c.f(`<text class="tick" x="%.1f" y="%.1f">%s</text>`, c.right+8, c.bottom-4, note)
	}
	return c.svg("Histogram of freshness in milliseconds")
}

// plotSpread is latency by percentile; x is how many nines.
func (r *Report) plotSpread() string {
	return spread("Predict latency by percentile", Curve{Spread: r.Series.PredictSpread})
}

// Curve is the latencies of one load.
type Curve struct {
	Name   string
	Spread []Percentile
}

// nines is where a percentile lies on an axis of nines.
func nines(percent float64) float64 { return -math.Log10(1 - percent/100) }

// spread draws latency by percentile, of one load or of two.
func spread(title string, curves ...Curve) string {
	hi, end := 0.0, 1.0
	names := ""
	for _, k := range curves {
		if len(k.Spread) < 2 {
			return ""
		}
		for _, p := range k.Spread {
			if p.Percent < 100 {
				hi, end = math.Max(hi, p.Ms), math.Max(end, nines(p.Percent))
			}
		}
		if len(k.Name) > len(names) {
			names = k.Name
		}
	}
	x := axis{lo: 0, hi: end, title: "percentile of the calls"}
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99} {
		if nines(p) <= end+1e-9 {
			x.ticks = append(x.ticks, tickMark{nines(p), plain(p) + "%"})
		}
	}
	c := newCanvas(half, x, linear(0, hi, 5, true, "milliseconds", plain), names)
	for i, k := range curves {
		color := []string{colorOnline, colorFrozen}[i%2]
		var points []point
		for _, p := range k.Spread {
			if p.Percent < 100 { // the slowest lies infinitely far to the right: a note instead
				points = append(points, point{nines(p.Percent), p.Ms})
			}
		}
		c.line(points, color, k.Name, false)
		for _, p := range points {
			c.f(`<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, c.x.px(p.x), c.y.px(p.y), color)
		}
		if top := k.Spread[len(k.Spread)-1]; top.Percent >= 100 {
			c.f(`<text class="note" x="%.1f" y="%.1f">slowest call %s ms</text>`, c.left+6, c.top+10+14*float64(i), millis(Figure(top.Ms)))
		}
	}
	return c.svg(title)
}

// plotBacklog is produced less learnt: the running totals themselves lie on each other.
func (r *Report) plotBacklog() string {
	made, learnt := r.Series.ProducedBySec, r.Series.TrainedBySec
	if len(made) == 0 || len(learnt) == 0 {
		return ""
	}
	var points []point
	hi, i, done := 1.0, 0, int64(0)
	for _, p := range made {
		for i < len(learnt) && learnt[i].Second <= p.Second {
			done = learnt[i].Count
			i++
		}
		points = append(points, point{p.Second, math.Max(0, float64(p.Count-done))})
		hi = math.Max(hi, points[len(points)-1].y)
	}
	c := newCanvas(wide,
		linear(0, math.Max(1, points[len(points)-1].x), 6, false, "seconds since the start", plain),
		linear(0, hi, 5, true, "ratings", plain), "backlog")
	c.events(r.Series.Marks)
	c.line(points, colorOnline, "backlog", false)
	return c.svg("Ratings produced and not learnt yet, over the seconds of the run")
}

// describe is the run in one line.
func (r *Report) describe() string {
	s := fmt.Sprintf("%s of %s", counted(r.RatingsRead, "rating"), r.Run.Data)
	if r.Run.Rate > 0 {
		s += fmt.Sprintf(" at %s per second", number(r.Run.Rate))
	}
	return s + fmt.Sprintf(", %s seconds in all", number(r.Seconds))
}
