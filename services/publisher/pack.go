package publisher

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
)

// offer is a live serving container as the packer sees it.
type offer struct {
	id      string
	shard   int32           // of ps it offers itself for; -1: any
	kind    string          // "ps" or "entry": takes only those; "": anything
	free    uint64          // bytes for what is not placed there yet; unlimited: not reported
	load    uint64          // bytes that all plans have placed there
	serving map[string]bool // sub-models of this model that are AVAILABLE there
}

const unlimited = math.MaxUint64

// takes says whether the container may hold sub-model sub of shard.
func (o offer) takes(sub string, shard uint32) bool {
	if sub == entry {
		return o.kind == "" || o.kind == entry
	}
	return (o.kind == "" || o.kind == "ps") && (o.shard < 0 || uint32(o.shard) == shard)
}

const entry = "entry"

func psName(shard uint32) string { return "ps_" + strconv.FormatUint(uint64(shard), 10) }

// demand is one sub-model that has to be placed.
type demand struct {
	sub   string
	shard uint32
	bytes uint64
	want  int // replicas; the first is needed, the others are welcome
}

// placed is one replica of one sub-model on one container.
type placed struct {
	container string
	replica   uint32
}

// pack decides who serves what of one load: the entry and every shard on at least one
// container each, up to load.Replicas where containers allow, two replicas of one
// sub-model never on the same. sizes are by sub-model, offers are live containers,
// current is the plan in force, if any. What current placed on a container that is still
// offered stays; a replica that is no longer wanted there stays too while it is the last
// one available. It returns the plan, without its cause, or why there is none.
func pack(load *model.Load, sizes map[string]uint64, offers []offer, current *publish.Planned) (*publish.Planned, string) {
	p := newPacker(offers)
	demands := p.demands(load, sizes)
	for _, d := range demands {
		p.keep(d, current)
	}
	// First one of each, the hardest to place first; then the further replicas in turn.
	first := slices.Clone(demands)
	slices.SortStableFunc(first, func(a, b demand) int {
		return cmp.Or(cmp.Compare(p.choices(a), p.choices(b)), cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.sub, b.sub))
	})
	for _, d := range first {
		if p.have[d.sub] == 0 && !p.place(d) && len(p.at[d.sub]) == 0 {
			return nil, fmt.Sprintf("no live container can take %s (%d bytes): start a serving container that offers shard %s with that much memory free",
				d.sub, d.bytes, offered(d))
		}
	}
	for level := 2; level <= int(max(load.GetReplicas(), 1)); level++ {
		for _, d := range demands {
			if d.want >= level && p.have[d.sub] < level {
				p.place(d)
			}
		}
	}
	return p.plan(load, demands), ""
}

func offered(d demand) string {
	if d.sub == entry {
		return "any, for entry"
	}
	return strconv.FormatUint(uint64(d.shard), 10) + " or -1"
}

type packer struct {
	offers []offer
	by     map[string]*offer
	at     map[string][]placed
	have   map[string]int // placed where they belong; at may hold one more that is only waiting for its successor
}

func newPacker(offers []offer) *packer {
	p := &packer{offers: slices.Clone(offers), by: map[string]*offer{}, at: map[string][]placed{}, have: map[string]int{}}
	slices.SortFunc(p.offers, func(a, b offer) int { return cmp.Compare(a.id, b.id) })
	for i := range p.offers {
		p.by[p.offers[i].id] = &p.offers[i]
	}
	return p
}

// demands lists the entry and then the shards. The entry is wanted once, and once more
// for each further container that offers itself for entries alone.
func (p *packer) demands(load *model.Load, sizes map[string]uint64) []demand {
	replicas := int(max(load.GetReplicas(), 1))
	entries := 0
	for _, o := range p.offers {
		if o.kind == entry {
			entries++
		}
	}
	out := []demand{{sub: entry, bytes: sizes[entry], want: min(max(entries, 1), replicas)}}
	for i := range uint32(load.GetNumShard()) {
		out = append(out, demand{sub: psName(i), shard: i, bytes: sizes[psName(i)], want: replicas})
	}
	return out
}

// keep takes over what the current plan has placed, without a look at memory: it lies
// there already.
func (p *packer) keep(d demand, current *publish.Planned) {
	type candidate struct {
		placed
		fits, serves bool
	}
	var all []candidate
	seen := map[string]bool{}
	numbers := map[uint32]bool{}
	for _, a := range current.GetAssignments() {
		o := p.by[a.GetContainer()]
		if _, has := a.GetSubModels()[d.sub]; !has || o == nil || seen[o.id] || numbers[a.GetReplica()] {
			continue
		}
		seen[o.id], numbers[a.GetReplica()] = true, true
		all = append(all, candidate{placed{o.id, a.GetReplica()}, o.takes(d.sub, d.shard), o.serving[d.sub]})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(before(a.fits, b.fits), before(a.serves, b.serves), cmp.Compare(a.replica, b.replica))
	})
	available := false
	for _, c := range all {
		if c.fits && p.have[d.sub] < d.want {
			p.at[d.sub] = append(p.at[d.sub], c.placed)
			p.have[d.sub]++
			available = available || c.serves
		}
	}
	// The last one that answers stays until another one does.
	for _, c := range all {
		if c.serves && !available {
			p.at[d.sub] = append(p.at[d.sub], c.placed)
			available = true
		}
	}
}

// before orders true first.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// choices counts the containers that could take d.
func (p *packer) choices(d demand) (n int) {
	for i := range p.offers {
		if p.fits(&p.offers[i], d) {
			n++
		}
	}
	return n
}

func (p *packer) fits(o *offer, d demand) bool {
	return o.takes(d.sub, d.shard) && d.bytes <= o.free &&
		!slices.ContainsFunc(p.at[d.sub], func(x placed) bool { return x.container == o.id })
}

// place puts one more replica of d on the best container: one that offers itself for
// nothing else, then the least loaded, then by id.
func (p *packer) place(d demand) bool {
	var best *offer
	for i := range p.offers {
		o := &p.offers[i]
		if p.fits(o, d) && (best == nil || cmp.Or(before(o.kind != "", best.kind != ""), before(o.shard >= 0, best.shard >= 0), cmp.Compare(o.load, best.load)) < 0) {
			best = o
		}
	}
	if best == nil {
		return false
	}
	if best.free != unlimited {
		best.free -= d.bytes
	}
	best.load += max(d.bytes, 1)
	var number uint32
	for slices.ContainsFunc(p.at[d.sub], func(x placed) bool { return x.replica == number }) {
		number++
	}
	p.at[d.sub] = append(p.at[d.sub], placed{best.id, number})
	p.have[d.sub]++
	return true
}

// plan writes down what was placed: one assignment per replica of a sub-model, in the
// order of demands and replicas.
func (p *packer) plan(load *model.Load, demands []demand) *publish.Planned {
	out := &publish.Planned{
		ModelName: load.GetModelName(), ModelDir: load.GetModelDir(), Version: load.GetVersion(),
		NumPs: uint32(load.GetNumShard()), Job: load.GetJob(),
	}
	for _, d := range demands {
		at := p.at[d.sub]
		slices.SortFunc(at, func(a, b placed) int { return cmp.Compare(a.replica, b.replica) })
		for _, x := range at {
			out.Assignments = append(out.Assignments, &publish.Assignment{
				Container: x.container, Shard: d.shard, Replica: x.replica,
				SubModels: map[string]string{d.sub: subModelDir(load, d.sub)},
				Bytes:     map[string]uint64{d.sub: d.bytes},
			})
		}
	}
	return out
}

func subModelDir(load *model.Load, sub string) string {
	return filepath.Join(load.GetModelDir(), sub, strconv.FormatInt(load.GetVersion(), 10))
}

// subModels are the folders that a load needs, entry first.
func subModels(load *model.Load) []string {
	subs := []string{entry}
	for i := range uint32(load.GetNumShard()) {
		subs = append(subs, psName(i))
	}
	return subs
}
