package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/monolith-go/monolith/loadtest/report"
)

// WriteJSON writes the results as one JSON list.
func WriteJSON(w io.Writer, rs []Result) error {
	if rs == nil {
		rs = []Result{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rs)
}

// WriteTable writes the results as a table that is also Markdown.
func WriteTable(w io.Writer, rs []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| what\t| value\t| spread\t| unit\t| baseline\t| its value\t| spread\t| ratio\t| target\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rs {
		fmt.Fprintf(t, "| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n", r.Name, short(r.Value), between(r.Low, r.High, r.Rounds), r.Unit,
			r.Baseline, short(r.BaselineValue), between(r.BaselineLow, r.BaselineHigh, r.Rounds), ratio(r.Ratio), r.outcome())
	}
	return t.Flush()
}

// String is the result in one line.
func (r Result) String() string {
	s := fmt.Sprintf("%s: %s %s", r.Name, short(r.Value), r.Unit)
	if r.BaselineValue.Known() {
		s += fmt.Sprintf(", %s %s, ratio %s", r.Baseline, short(r.BaselineValue), ratio(r.Ratio))
	}
	return s
}

func (r Result) target() string {
	sign := "≥ "
	if r.Better == Lower {
		sign = "≤ "
	}
	var parts []string
	if r.Target.Known() {
		parts = append(parts, sign+ratio(r.Target))
	}
	if r.Bound.Known() {
		parts = append(parts, sign+short(r.Bound)+" "+r.Unit)
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, ", ")
}

func (r Result) outcome() string {
	if r.Met != nil && !*r.Met {
		return r.target() + " MISSED"
	}
	return r.target()
}

func between(low, high report.Figure, rounds int) string {
	if !low.Known() {
		return "–"
	}
	if rounds == 1 {
		return "one round"
	}
	return short(low) + "–" + short(high)
}

func ratio(f report.Figure) string {
	if !f.Known() {
		return "–"
	}
	return strconv.FormatFloat(float64(f), 'f', 2, 64)
}

// short writes three digits of small figures, and large ones whole with thousands apart.
func short(f report.Figure) string {
	v := float64(f)
	switch {
	case !f.Known():
		return "–"
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	var parts []string
	for len(s) > 3 {
		parts, s = append(parts, s[len(s)-3:]), s[:len(s)-3]
	}
	for i := len(parts) - 1; i >= 0; i-- {
		s += " " + parts[i]
	}
	return strings.TrimSpace(s)
}
