package publisher

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/publish"
)

// effort bounds one exact search, in placements tried: some milliseconds. A fleet for
// which that is too little has many containers, and then the quick way seldom fails.
const effort = 20_000

// first places one replica of everything that has none. The quick way takes the hardest
// to place first; where it ends with something left over, all ways are searched, at last
// with what the plan in force has placed and nobody serves yet moved as well: that costs
// a copy, and nobody notices. What answers is never moved to make room.
func (p *packer) first() (problem string) {
	var open []demand
	for _, d := range p.demands {
		if p.have[d.sub] == 0 {
			open = append(open, d)
		}
	}
	p.hardest(open)
	greedy := map[string]*offer{}
	var left []demand
	for _, d := range open {
		if p.place(d) {
			at := p.at[d.sub]
			greedy[d.sub] = p.by[at[len(at)-1].container]
		} else if len(p.at[d.sub]) == 0 { // one that waits for its successor may wait longer
			left = append(left, d)
		}
	}
	if len(left) == 0 {
		return ""
	}
	problem = p.nowhere(left[0])
	for _, d := range open {
		if o := greedy[d.sub]; o != nil {
			p.take(d, o)
		}
	}
	open = slices.DeleteFunc(open, func(d demand) bool { return len(p.at[d.sub]) > 0 })
	p.hardest(open)
	budget := effort
	if p.search(open, &budget) {
		return ""
	}
	moved := p.release()
	if len(moved) == 0 {
		return problem
	}
	open = append(open, moved...)
	p.hardest(open)
	budget = effort
	if p.search(open, &budget) {
		return ""
	}
	return problem
}

// hardest orders demands by how few containers could take them, then by size.
func (p *packer) hardest(open []demand) {
	choices := map[string]int{}
	for _, d := range open {
		for i := range p.offers {
			if p.fits(&p.offers[i], d) {
				choices[d.sub]++
			}
		}
	}
	slices.SortStableFunc(open, func(a, b demand) int {
		return cmp.Or(cmp.Compare(choices[a.sub], choices[b.sub]), cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.sub, b.sub))
	})
}

// search places one replica of each, or leaves all as it was.
func (p *packer) search(open []demand, budget *int) bool {
	if len(open) == 0 {
		return true
	}
	d := open[0]
	var where []*offer
	for i := range p.offers {
		if p.fits(&p.offers[i], d) {
			where = append(where, &p.offers[i])
		}
	}
	better := p.better(d)
	slices.SortFunc(where, func(a, b *offer) int {
		return cmp.Or(before(p.planned(a.id, d.sub), p.planned(b.id, d.sub)), better(a, b))
	})
	type alike struct {
		kind  string
		shard int32
		free  int64
	}
	tried := map[alike]bool{}
	for _, o := range where {
		// Two that differ in nothing but their names need no second try.
		same := alike{o.kind, o.shard, o.free}
		if len(o.serving) == 0 && tried[same] {
			continue
		}
		if *budget--; *budget < 0 {
			return false
		}
		p.put(d, o)
		if p.search(open[1:], budget) {
			return true
		}
		p.take(d, o)
		if len(o.serving) == 0 {
			tried[same] = true
		}
	}
	return false
}

// release takes back what the plan in force has placed once, on a container that does
// not serve it yet.
func (p *packer) release() (moved []demand) {
	for _, d := range p.demands {
		at := p.at[d.sub]
		if len(at) == 0 || p.have[d.sub] != len(at) ||
			slices.ContainsFunc(at, func(x placed) bool { return p.by[x.container].serving[d.sub] }) {
			continue
		}
		for range at {
			x := p.at[d.sub][len(p.at[d.sub])-1]
			p.take(d, p.by[x.container])
		}
		moved = append(moved, d)
	}
	return moved
}

// planned is true where the plan in force has put the sub-model.
func (p *packer) planned(container, sub string) bool {
	return slices.ContainsFunc(p.current.GetAssignments(), func(a *publish.Assignment) bool {
		_, has := a.GetSubModels()[sub]
		return has && a.GetContainer() == container
	})
}

// nowhere says why d cannot be placed, with the figure that is missing.
func (p *packer) nowhere(d demand) string {
	need := fmt.Sprintf("no live container can take %s (%d bytes)", d.sub, d.bytes)
	fix := fmt.Sprintf("start a serving container that offers shard %s with that much memory free", p.offered(d))
	if o := p.roomiest(d); o != nil {
		has, lacks := o.against(d.bytes)
		return fmt.Sprintf("%s: %s has most room, %d bytes, %d are missing: %s", need, o.id, has, lacks, fix)
	}
	if len(p.unnamed) > 0 {
		return fmt.Sprintf("%s: spec_replicas names %s, which is not there: start it, or load without spec_replicas", need, strings.Join(p.unnamed, ", "))
	}
	return need + ": " + fix
}

// roomiest is the container with most room of those that could take d and do not.
func (p *packer) roomiest(d demand) (best *offer) {
	for i := range p.offers {
		if o := &p.offers[i]; p.takes(o, d) && !p.holds(o.id, d.sub) && (best == nil || o.free > best.free) {
			best = o
		}
	}
	return best
}

func (p *packer) offered(d demand) string {
	if d.kind != "ps" {
		return "any, for " + d.kind
	}
	if p.num != p.shards {
		return fmt.Sprintf("0 to %d or -1", p.shards-1)
	}
	return fmt.Sprintf("%d or -1", d.task)
}

// shortage says what is missing to place everything as often as asked.
func (p *packer) shortage() string {
	var short []string
	for _, d := range p.demands {
		have := p.have[d.sub]
		if have >= d.want {
			continue
		}
		text := fmt.Sprintf("%s is placed %d of %d times", d.sub, have, d.want)
		if o := p.roomiest(d); o == nil {
			text += fmt.Sprintf(": no further container offers shard %s", p.offered(d))
		} else {
			has, lacks := o.against(d.bytes)
			text += fmt.Sprintf(": of the %d bytes that one more needs, %s has most free, %d, and %d are missing", d.bytes, o.id, has, lacks)
		}
		short = append(short, text)
	}
	if len(p.unnamed) > 0 {
		short = append(short, fmt.Sprintf("spec_replicas names %s, which is not there", strings.Join(p.unnamed, ", ")))
	}
	short = append(short, p.unfit...)
	const told = 3
	if n := len(short); n > told {
		short = append(short[:told], fmt.Sprintf("and %d more are short", n-told))
	}
	return strings.Join(short, "; ")
}
