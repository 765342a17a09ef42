package report

import (
	"fmt"
	"html/template"
	"io"
)

// Fact is a line of a page: a name and what is said of it.
type Fact struct{ Name, Value string }

// Load is a page about load on a server: one run, or two side by side.
type Load struct {
	Title, Summary string
	Figures        []Fact // large
	Settings       []Fact
	Check          string         // what must hold; "": nothing
	OK             bool           // it does
	Curves         []Curve        // at most two
	Seconds        []LatencyPoint // of a run
	Marks          []Mark         // what happened to the server meanwhile
}

// HTML writes the page, which needs nothing else.
func (l Load) HTML(w io.Writer) error {
	data := pageData{Title: l.Title, Summary: l.Summary, CSS: template.CSS(plotColors + plotStyle)}
	for _, f := range l.Figures {
		data.Tiles = append(data.Tiles, tile{Name: f.Name, Value: f.Value})
	}
	if l.Check != "" {
		data.Checks = []check{{l.Check, l.OK}}
	}
	for _, f := range l.Settings {
		data.Settings = append(data.Settings, row(f))
	}
	add := func(title, caption, svg string) {
		if svg != "" {
			data.Plots = append(data.Plots, figure{plot{Title: title, Caption: caption}, template.HTML(svg)}) // made here, its texts escaped
		}
	}
	add("Latency by percentile", "Of answered calls, from the moment each was due.", spread("Latency by percentile", l.Curves...))
	add("Latency over time", "By the second in which a call was due.", latency(l.Seconds, "milliseconds", "Latency p50 and p99 over the seconds of the run", l.Marks))
	data.Marks = happened(l.Marks)
	return page.Execute(w, data)
}

// Number writes a figure, a dash where nobody knows it.
func Number(f Figure) string {
	if !f.Known() {
		return unknown
	}
	return fmt.Sprintf("%.4g", float64(f))
}
