package input

import "math"

// Line is what a record says of a sample that no model reads: whose it is, when it was asked for, and how
// many there were for each that was kept.
type Line struct {
	Known bool // the record says whose
	User  int64
	Time  int64
	Rate  float32 // 1 where the record does not say
}

const (
	lineUser = iota
	lineTime
	lineRate
	lineParts
)

// declareLine has the parts of a Line found: in Monolith's formats in the line id, in others in fields of
// the same names.
func (d *Decoder) declareLine() {
	prefix := ""
	if d.options.Format.message() >= MonolithExample {
		prefix = lineName + "."
	}
	for part, name := range [lineParts]string{lineUser: "uid", lineTime: "req_time", lineRate: "sample_rate"} {
		d.lineAt[part] = d.declare(prefix + name)
	}
}

// readLine reads that of the sample that was found. What is no number there is as if it were missing: a
// record is learnt whatever stands there.
func (d *Decoder) readLine() Line {
	l := Line{Rate: 1}
	if n, ok := d.lineNumber(lineUser); ok {
		l.Known, l.User = true, n
	}
	l.Time, _ = d.lineNumber(lineTime)
	if e, ok := d.linePart(lineRate); ok {
		if f, ok := d.finite(&e); ok && math.Abs(f) <= math.MaxFloat32 {
			l.Rate = float32(f)
		}
	}
	return l
}

func (d *Decoder) lineNumber(part int) (int64, bool) {
	e, ok := d.linePart(part)
	if !ok {
		return 0, false
	}
	return d.whole(&e)
}

func (d *Decoder) linePart(part int) (element, bool) {
	if d.none(d.lineAt[part]) {
		return element{}, false
	}
	e, err := d.single(d.lineAt[part])
	return e, err == nil
}

// Lines are those of the samples of the batch that is filled, if Options ask for them; they are the decoder's,
// until the next record.
func (d *Decoder) Lines() []Line { return d.lines }
