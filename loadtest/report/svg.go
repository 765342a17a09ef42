package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// size is a plot's view box, chosen near the size in which the page shows it, so that
// text keeps its size. Colours are CSS variables: one drawing serves light and dark.
type size struct{ w, h float64 }

var (
	wide = size{992, 340} // across the page
	half = size{480, 260} // two in a row
)

const (
	marginT, marginB = 14.0, 46.0
	labelGap         = 15.0 // least distance between two labels at the lines' ends
	textWidth        = 6.8  // of a character, about, to size the margins

	colorOnline, colorFrozen, colorNeutral = "var(--a)", "var(--b)", "var(--c)"
)

// axis maps values onto pixels; ticks carry their own text.
type axis struct {
	lo, hi float64 // values at from and to
	from   float64
	to     float64
	ticks  []tickMark
	title  string
}

type tickMark struct {
	at   float64
	text string
}

func (a axis) px(v float64) float64 { return a.from + (v-a.lo)/(a.hi-a.lo)*(a.to-a.from) }

// niceStep is 1, 2 or 5 times a power of ten, so that span has about n steps.
func niceStep(span float64, n int) float64 {
	if !(span > 0) || math.IsInf(span, 0) {
		return 1
	}
	raw := span / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range [...]float64{1, 2, 5} {
		if m*mag >= raw*0.999 {
			return m * mag
		}
	}
	return 10 * mag
}

// linear is an axis over [lo, hi]. With grow, its ends move out to whole steps.
func linear(lo, hi float64, n int, grow bool, title string, text func(float64) string) axis {
	if !(hi > lo) {
		hi = lo + 1
	}
	step := niceStep(hi-lo, n)
	if grow {
		lo, hi = math.Floor(lo/step+1e-9)*step, math.Ceil(hi/step-1e-9)*step
	}
	a := axis{lo: lo, hi: hi, title: title}
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+step*1e-9; k++ {
		a.ticks = append(a.ticks, tickMark{k * step, text(k * step)})
	}
	return a
}

// plain writes a tick with no more decimals than it needs.
func plain(v float64) string {
	if v == math.Trunc(v) {
		return count(int64(v))
	}
	s := fmt.Sprintf("%.6f", v)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

func twoDecimals(v float64) string {
	return fmt.Sprintf("%.2f", v)
}

// canvas is a plot under way.
type canvas struct {
	size
	b                        strings.Builder
	x, y                     axis
	left, right, top, bottom float64 // of the plotting area
	label                    []endLabel
}

type endLabel struct {
	y     float64
	text  string
	color string
}

// newCanvas draws the axes; names are the longest label at a line's end.
func newCanvas(sz size, x, y axis, names string) *canvas {
	widest := 0
	for _, t := range y.ticks {
		widest = max(widest, len(t.text))
	}
	c := &canvas{
		size: sz, left: 34 + textWidth*float64(widest), right: sz.w - max(24, 14+7.4*float64(len(names))),
		top: marginT, bottom: sz.h - marginB,
	}
	x.from, x.to, y.from, y.to = c.left, c.right, c.bottom, c.top
	c.x, c.y = x, y
	for _, t := range y.ticks {
		py := c.y.px(t.at)
		c.f(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, c.left, c.right, py, py)
		c.f(`<text class="tick" x="%.1f" y="%.1f" text-anchor="end">%s</text>`, c.left-8, py+4, t.text)
	}
	c.f(`<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, c.left, c.right, c.bottom, c.bottom)
	for _, t := range x.ticks {
		px := c.x.px(t.at)
		c.f(`<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, px, px, c.bottom, c.bottom+4)
		c.f(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, px, c.bottom+18, t.text)
	}
	c.f(`<text class="title" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, (c.left+c.right)/2, c.h-8, html.EscapeString(x.title))
	c.f(`<text class="title" transform="translate(13 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, (c.top+c.bottom)/2, html.EscapeString(y.title))
	return c
}

func (c *canvas) f(format string, args ...any) {
	fmt.Fprintf(&c.b, format, args...)
	c.b.WriteByte('\n')
}

type point struct{ x, y float64 }

// line draws points, broken where y is unknown, and keeps its name for the end. A lone
// point between two gaps is drawn as a dot.
func (c *canvas) line(points []point, color, name string, dashed bool) {
	var d strings.Builder
	style := ""
	if dashed {
		style = ` stroke-dasharray="5 4"`
	}
	pen, run := "M", 0
	var last *point
	dot := func() {
		if run == 1 {
			c.f(`<circle cx="%.1f" cy="%.1f" r="2" fill="%s"/>`, c.x.px(last.x), c.y.px(last.y), color)
		}
		run = 0
	}
	for i := range points {
		p := &points[i]
		if math.IsNaN(p.y) || math.IsInf(p.y, 0) {
			pen = "M"
			dot()
			continue
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", pen, c.x.px(p.x), c.y.px(p.y))
		pen, last = "L", p
		run++
	}
	if last == nil {
		return
	}
	dot()
	c.f(`<path class="line" d="%s" stroke="%s"%s/>`, d.String(), color, style)
	c.label = append(c.label, endLabel{c.y.px(last.y), name, color})
}

// across marks a level of y over the whole width.
func (c *canvas) across(y float64, text string) {
	py := c.y.px(y)
	c.f(`<line class="mark" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, c.left, c.right, py, py)
	c.f(`<text class="note" x="%.1f" y="%.1f">%s</text>`, c.left+6, py-5, html.EscapeString(text))
}

// down marks a place of x over the whole height; its text stands in the given row from
// the top, on the side with more room.
func (c *canvas) down(x float64, row int, text string) {
	px := c.x.px(x)
	c.f(`<line class="mark" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, px, px, c.top, c.bottom)
	anchor, dx := "start", 5.0
	if px > (c.left+c.right)/2 {
		anchor, dx = "end", -5
	}
	c.f(`<text class="note" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, px+dx, c.top+10+14*float64(row), anchor, html.EscapeString(text))
}

// event is down for what went wrong.
func (c *canvas) event(x float64, row int, text string) {
	px := c.x.px(x)
	c.f(`<line class="event" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, px, px, c.top, c.bottom)
	anchor, dx := "start", 5.0
	if px > (c.left+c.right)/2 {
		anchor, dx = "end", -5
	}
	c.f(`<text class="note bad" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, px+dx, c.top+10+14*float64(row), anchor, html.EscapeString(text))
}

// svg ends the plot: the labels at the lines' ends are moved apart until none overlap.
func (c *canvas) svg(title string) string {
	labels := c.label
	slices.SortStableFunc(labels, func(a, b endLabel) int { return cmp.Compare(a.y, b.y) })
	for i := range labels { // down from the top edge, then up from the bottom edge
		low := c.top
		if i > 0 {
			low = labels[i-1].y + labelGap
		}
		labels[i].y = max(labels[i].y, low)
	}
	for i := len(labels) - 1; i >= 0; i-- {
		high := c.bottom
		if i+1 < len(labels) {
			high = labels[i+1].y - labelGap
		}
		labels[i].y = min(labels[i].y, high)
	}
	for _, l := range labels {
		c.f(`<text class="name" x="%.1f" y="%.1f" style="fill:%s">%s</text>`, c.right+8, l.y+4, l.color, html.EscapeString(l.text))
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`+"\n<title>%[3]s</title>\n%s</svg>\n",
		c.w, c.h, html.EscapeString(title), c.b.String())
}

// plotStyle is what every plot needs, inside a page or alone.
const plotStyle = `
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; font-size: 12px; fill: var(--ink2); font-variant-numeric: tabular-nums; }
svg .name { font-weight: 600; }
svg .note { font-size: 11px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .axis { stroke: var(--ink2); stroke-width: 1; }
svg .mark { stroke: var(--ink2); stroke-width: 1; stroke-dasharray: 2 3; }
svg .event { stroke: var(--bad); stroke-width: 1; }
svg .bad { fill: var(--bad); }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
`

// colours, light first.
const plotColors = `
:root { --paper: #ffffff; --panel: #f6f7f9; --ink: #16191d; --ink2: #59626d; --rule: #e1e5ea; --a: #1f5fbf; --b: #b8500b; --c: #6b7280; --good: #1a7a45; --bad: #b3261e; color-scheme: light; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --panel: #1d2127; --ink: #e8ebef; --ink2: #a0a9b5; --rule: #2e343c; --a: #79abf5; --b: #f0985a; --c: #9aa3ae; --good: #5fcf92; --bad: #ff8a80; color-scheme: dark; } }
`

// standalone is svg as a file of its own.
func standalone(svg string) string {
	end := strings.Index(svg, ">") + 1
	return svg[:end] + "\n<style>" + plotColors + plotStyle + "</style>\n" +
		`<rect width="100%" height="100%" fill="var(--paper)"/>` + svg[end:]
}
