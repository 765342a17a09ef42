package lineage

import (
	"cmp"
	"slices"
)

// MaxGone bounds the spans of ids that a job is known to have deleted: of more, the oldest go.
const MaxGone = 512

// Gone is what the job has said it deleted, from every disk that it could reach.
type Gone struct {
	Checkpoints Spans `json:"checkpoints,omitempty"`
	Exports     Spans `json:"exports,omitempty"` // versions
}

// Spans are ids, ascending; no two of them touch.
type Spans []Span

// Span is the ids from From to To.
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Has says whether id is one of them.
func (all Spans) Has(id int64) bool {
	i := all.at(id)
	return i < len(all) && all[i].From <= id && id <= all[i].To
}

// at is the first span that ends at id or behind it.
func (all Spans) at(id int64) int {
	i, _ := slices.BinarySearchFunc(all, id, func(s Span, id int64) int { return cmp.Compare(s.To, id) })
	return i
}

// with is all and id; readers keep all.
func (all Spans) with(id int64) Spans {
	i := all.at(id - 1) // the first that id may touch
	if i == len(all) || id < all[i].From-1 {
		out := slices.Insert(slices.Clone(all), i, Span{id, id})
		return out[max(0, len(out)-MaxGone):]
	}
	out := slices.Clone(all)
	out[i] = Span{min(out[i].From, id), max(out[i].To, id)}
	if i+1 < len(out) && out[i+1].From == out[i].To+1 {
		out[i].To = out[i+1].To
		out = slices.Delete(out, i+1, i+2)
	}
	return out
}

// deleted notes what a checkpoint's fact says is gone.
func (g *Gone) deleted(checkpoints, exports []int64) {
	for _, id := range checkpoints {
		g.Checkpoints = g.Checkpoints.with(id)
	}
	for _, version := range exports {
		g.Exports = g.Exports.with(version)
	}
}
