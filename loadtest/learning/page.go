package learning

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"text/template"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/loadtest/report"
)

//go:embed page.tmpl
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"estimate": func(e Estimate) string { return fmt.Sprintf("%.4f ± %.4f", e.Mean, e.Half) },
	"gain":     func(e Estimate) string { return fmt.Sprintf("%+.4f ± %.4f", e.Mean, e.Half) },
	"percent":  func(part float64) float64 { return 100 * part },
	"add":      func(a, b int) int { return a + b },
}).Parse(pageText))

// Claim is what a run should show.
type Claim struct {
	Sentence string `json:"sentence"`
	Holds    bool   `json:"holds"`
}

// Goals of a run beside TensorFlow.
const (
	mostApart    = 0.0005 // of AUC
	leastSpeedup = 10
	mostLoad     = 1 // of others, beside which speeds say something
)

// Claims judges what was measured.
func (r *Result) Claims() (all []Claim) {
	add := func(holds bool, format string, args ...any) {
		all = append(all, Claim{fmt.Sprintf(format, args...), holds})
	}
	if t := r.TensorFlow; t != nil {
		apart := math.Abs(t.Ours.AUC - t.Theirs.AUC)
		add(apart <= mostApart, "AUC within %v of TensorFlow's: %.6f apart", mostApart, apart)
		if !(r.Load <= mostLoad) {
			add(false, "Speeds prove nothing: others worked on the machine, at a load of %s before the run", report.Number(r.Load))
		} else {
			add(t.Speeds[0].Speedup() >= leastSpeedup, "%d times the ratings a second of TensorFlow's loop, in a job's steps of %d: %.1f times", leastSpeedup, t.Speeds[0].Batch, t.Speeds[0].Speedup())
		}
	}
	if s := r.Sync; s != nil {
		never, worst := true, math.Inf(1)
		for _, row := range s.Rows[1:] {
			never, worst = never && row.Gain.Mean >= 0, min(worst, row.Gain.Mean)
		}
		add(never, "AUC never falls as synchronisation gets more frequent: the least gain of a step is %+.4f", worst)
	}
	if c := r.Collisions; c != nil {
		for _, arm := range c.Arms[1:] {
			above, least := true, math.Inf(1)
			for _, loss := range arm.Loss {
				above, least = above && loss.Mean > 0, min(least, loss.Mean)
			}
			add(above, "A row for each id is above ids %s at every epoch: at least %+.4f", arm.Name, least)
		}
	}
	if f := r.Features; f != nil {
		last := f.Models[len(f.Models)-1]
		add(last.Gain.Mean-last.Gain.Half > 0, "DeepFM with genres and history is above that of two features, its interval too: %+.4f ± %.4f", last.Gain.Mean, last.Gain.Half)
	}
	return all
}

// Write puts learning.md into dir, and its plots and the result into learning below it.
func Write(dir string, r *Result) error {
	files, err := r.files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "learning"), 0o755); err != nil {
		return err
	}
	for name, data := range files {
		write := func(to *os.File) error { _, err := to.Write(data); return err }
		if err := durable.Replace(filepath.Join(dir, name), 0o644, write); err != nil {
			return err
		}
	}
	return nil
}

// files are what Write writes, by name.
func (r *Result) files() (map[string][]byte, error) {
	var text bytes.Buffer
	if err := page.Execute(&text, r); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"learning.md": text.Bytes(), "learning/learning.json": append(data, '\n')}
	for name, chart := range r.charts() {
		files["learning/"+name+".svg"] = []byte(chart.SVG())
	}
	return files, nil
}

// charts draws what there is.
func (r *Result) charts() map[string]report.Chart {
	all := map[string]report.Chart{}
	if t := r.TensorFlow; t != nil {
		c := report.Chart{Title: "Loss of a rating before it was learnt, here and in TensorFlow", X: "ratings", Y: "loss"}
		for _, of := range []struct {
			name   string
			losses []float64
		}{{"ours", t.Ours.Losses}, {"TensorFlow", t.Theirs.Losses}} {
			l := report.Line{Name: of.name, Dashed: of.name != "ours"}
			for i, loss := range of.losses {
				l.Points = append(l.Points, [2]float64{float64((i + 1) * t.Window), loss})
			}
			c.Lines = append(c.Lines, l)
		}
		all["tensorflow"] = c
	}
	if s := r.Sync; s != nil {
		var l report.Line
		for _, row := range s.Rows {
			l.Points = append(l.Points, [2]float64{float64(row.Every), row.AUC.Mean})
		}
		l.Name = "served"
		all["sync"] = report.Chart{Title: "AUC of the served copy by ratings between two synchronisations", X: "ratings between two synchronisations", Y: "AUC", Lines: []report.Line{l}}
	}
	if k := r.Collisions; k != nil {
		c := report.Chart{Title: "AUC on held-out ratings by epoch", X: "epoch", Y: "AUC"}
		for _, arm := range k.Arms {
			l := report.Line{Name: arm.Name}
			for e, auc := range arm.AUC {
				l.Points = append(l.Points, [2]float64{float64(e + 1), auc.Mean})
			}
			c.Lines = append(c.Lines, l)
		}
		all["collisions"] = c
	}
	return all
}
