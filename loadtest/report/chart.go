package report

import "math"

// Chart is lines over one axis, as a drawing of its own.
type Chart struct {
	Title, X, Y string
	Lines       []Line
}

// Line is one of a chart's; there are at most three colours.
type Line struct {
	Name   string
	Points [][2]float64
	Dashed bool
}

// SVG draws the chart; "" where it has no points.
func (h Chart) SVG() string {
	lo, hi, first, end := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	names := ""
	for _, l := range h.Lines {
		for _, p := range l.Points {
			first, end = math.Min(first, p[0]), math.Max(end, p[0])
			lo, hi = math.Min(lo, p[1]), math.Max(hi, p[1])
		}
		if len(l.Name) > len(names) {
			names = l.Name
		}
	}
	if !(end > first) {
		return ""
	}
	c := newCanvas(wide, linear(first, end, 6, false, h.X, plain), linear(lo, hi, 5, true, h.Y, plain), names)
	for i, l := range h.Lines {
		points := make([]point, len(l.Points))
		for k, p := range l.Points {
			points[k] = point{p[0], p[1]}
		}
		c.line(points, []string{colorOnline, colorFrozen, colorNeutral}[i%3], l.Name, l.Dashed)
	}
	return standalone(c.svg(h.Title))
}
