package jobs

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// progressEvery is the least time between two lines of progress: trainers tell their figures every ten seconds.
const progressEvery = 9 * time.Second

// Progress is how far a job is.
type Progress struct {
	Step             uint64   `json:"step"`               // since the job's first start
	Steps            int64    `json:"steps,omitempty"`    // at which it ends; absent: not known
	Samples          uint64   `json:"samples"`            // of this start
	SamplesPerSecond float64  `json:"samples_per_second"` // lately
	Loss             *float64 `json:"loss"`
	AUC              *float64 `json:"auc"`
	Seconds          float64  `json:"seconds"`                // from the first partition taken to the figures
	SecondsLeft      *float64 `json:"seconds_left,omitempty"` // then, at the mean rate of this start; absent: not known

	at time.Time // of the newest figures
}

// progress is how far a start is that began with so many steps done, of total; ok is false while nothing is learnt.
// A total of 0 is not known.
func (s course) progress(done, total int64) (p Progress, ok bool) {
	for _, f := range s.Trainers {
		if f.At.After(p.at) {
			p.at = f.At
		}
		p.Step += f.Steps
		p.Samples += f.Samples
		p.SamplesPerSecond += f.Values["samples_per_second"]
	}
	if p.Step == 0 || s.Began.IsZero() {
		return Progress{}, false
	}
	steps := float64(p.Step)
	p.Step, p.Steps = p.Step+uint64(done), total
	p.Seconds = max(0, p.at.Sub(s.Began).Seconds())
	if v, ok := s.mean("loss"); ok {
		p.Loss = known(v)
	}
	if v, ok := s.mean("auc"); ok {
		p.AUC = known(v)
	}
	if total > 0 && p.Seconds > 0 {
		left := max(0, float64(total)-float64(p.Step)) * p.Seconds / steps // steps that were learnt again count twice
		p.SecondsLeft = &left
	}
	return p, true
}

// print writes a line.
func (p Progress) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(p)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "step %d", p.Step)
	if p.Steps > 0 {
		fmt.Fprintf(&b, " of %d", p.Steps)
	}
	fmt.Fprintf(&b, ", %d samples, %.0f samples/s", p.Samples, p.SamplesPerSecond)
	if p.Loss != nil {
		fmt.Fprintf(&b, ", loss %.4f", *p.Loss)
	}
	if p.AUC != nil {
		fmt.Fprintf(&b, ", AUC %.4f", *p.AUC)
	}
	if p.SecondsLeft != nil {
		fmt.Fprintf(&b, ", %v left", time.Duration(math.Ceil(*p.SecondsLeft))*time.Second)
	}
	_, err := fmt.Fprintf(w, "%s.\n", &b)
	return err
}

// total is the step at which the job ends whose steps have that limit, 0 where the end is not known.
func (d *driver) total(limit int64) (n int64) {
	if d.stream != nil {
		return 0
	}
	batch := int64(d.cfg.Batch)
	for _, end := range d.set.Ends(batch, limit) {
		n += (end + batch - 1) / batch
	}
	return n
}
