package course

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

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

	At time.Time `json:"-"` // of the newest figures
}

// Progress is how far a start is that began with so many steps done, of total; ok is false while nothing is learnt.
// A total of 0 is not known.
func (s State) Progress(done, total int64) (p Progress, ok bool) {
	for _, f := range s.Trainers {
		if f.At.After(p.At) {
			p.At = f.At
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
	p.Seconds = max(0, p.At.Sub(s.Began).Seconds())
	p.Loss, p.AUC = s.Known("loss"), s.Known("auc")
	if total > 0 && p.Seconds > 0 {
		left := max(0, float64(total)-float64(p.Step)) * p.Seconds / steps // steps that were learnt again count twice
		p.SecondsLeft = &left
	}
	return p, true
}

// Print writes a line.
func (p Progress) Print(w io.Writer, asJSON bool) error {
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
