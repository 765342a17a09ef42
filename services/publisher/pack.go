package publisher

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
)

// offer is a live serving container as the packer sees it.
type offer struct {
	id      string
	shard   int32           // of ps it offers itself for; -1: any
	replica int32           // its number within that shard
	kind    string          // "ps", "entry" or "dense": takes only those; "": ps and entry
	free    int64           // bytes for what is not placed there yet, negative where too much is; unlimited: not reported
	load    uint64          // bytes that all plans have placed there
	serving map[string]bool // sub-models of this model that are AVAILABLE there, in any version
}

const (
	unlimited = math.MaxInt64
	entry     = "entry"
	dense     = "dense"
)

func psName(shard uint32) string { return "ps_" + strconv.FormatUint(uint64(shard), 10) }

// demand is one sub-model that has to be placed.
type demand struct {
	sub   string
	kind  string // ps, entry or dense
	task  uint32 // i of ps_<i>
	bytes uint64
	want  int // replicas; the first is needed, the others are welcome
}

// placed is one replica of one sub-model on one container.
type placed struct {
	container      string
	shard, replica uint32
}

// pack decides who serves what of one load: every sub-model on at least one container,
// up to as many as asked where containers allow, two replicas of one sub-model never on
// the same. sizes are the export's sub-models, offers the live containers, current is
// the plan in force, if any. What current placed on a container that is still offered
// stays; a replica that is no longer wanted there stays too while it is the last one
// available. Without a plan, problem says why; with one, it says what is missing to
// place everything as often as asked, "" for nothing. The plan carries no cause.
func pack(load *model.Load, sizes map[string]uint64, offers []offer, current *publish.Planned) (p *publish.Planned, problem string) {
	k := newPacker(load, sizes, offers, current)
	if k.num == 0 {
		return nil, fmt.Sprintf("%s holds no ps_0: give the exported_models folder of an export", load.GetModelDir())
	}
	for _, d := range k.demands {
		if problem := k.keep(d); problem != "" {
			return nil, problem
		}
	}
	if problem := k.first(); problem != "" {
		return nil, problem
	}
	most := 1
	for _, d := range k.demands {
		most = max(most, d.want)
	}
	for level := 2; level <= most; level++ {
		for _, d := range k.demands {
			if d.want >= level && k.have[d.sub] < level {
				k.place(d)
			}
		}
	}
	return k.plan(), k.shortage()
}

// packer is one run of pack.
type packer struct {
	load    *model.Load
	current *publish.Planned
	num     uint32 // ps sub-models of the export
	shards  uint32 // serving shards over which they are spread
	demands []demand
	offers  []offer
	by      map[string]*offer
	barred  map[string]bool // containers that the load does not name
	unnamed []string        // replicas that the load names and nobody is
	unfit   []string        // sub-models of the export that nobody can serve, each with the reason
	at      map[string][]placed
	have    map[string]int // placed where they belong; at may hold one more that is only waiting for its successor
}

func newPacker(load *model.Load, sizes map[string]uint64, offers []offer, current *publish.Planned) *packer {
	p := &packer{
		load: load, current: current, offers: slices.Clone(offers), by: map[string]*offer{},
		barred: map[string]bool{}, at: map[string][]placed{}, have: map[string]int{},
	}
	slices.SortFunc(p.offers, func(a, b offer) int { return cmp.Compare(a.id, b.id) })
	for i := range p.offers {
		p.by[p.offers[i].id] = &p.offers[i]
	}
	if spec := load.GetSpecReplicas(); len(spec) > 0 {
		named := map[string]bool{}
		for _, o := range p.offers {
			for _, name := range []string{o.id, fmt.Sprintf("%d:%d", o.shard, o.replica)} {
				named[name] = true
			}
			p.barred[o.id] = !slices.Contains(spec, o.id) && !slices.Contains(spec, fmt.Sprintf("%d:%d", o.shard, o.replica))
		}
		p.unnamed = slices.DeleteFunc(slices.Clone(spec), func(s string) bool { return named[s] })
	}
	for sub := range sizes {
		if kind, _, ok := roleOf(sub); ok && kind == "ps" {
			p.num++
		}
	}
	p.shards = p.num
	if n := load.GetNumShard(); n > 0 {
		p.shards = uint32(n)
	}
	if p.num > 0 {
		p.demands = p.demand(sizes)
	}
	return p
}

// roleOf is what a sub-model serves as: entry is entry 0, ps_3 is ps 3. Nothing serves
// other folders of an export.
func roleOf(sub string) (kind string, task uint32, ok bool) {
	kind, digits, numbered := strings.Cut(sub, "_")
	if numbered {
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || strconv.FormatUint(n, 10) != digits {
			return "", 0, false
		}
		task = uint32(n)
	}
	return kind, task, kind == "ps" && numbered || kind == entry && !numbered || kind == dense
}

// demand lists what is to be placed: entry, dense and then ps in counting order. An
// entry (and dense) is wanted once, and once more for each further container that
// offers itself for those alone. A load that names its replicas wants all on all of them.
func (p *packer) demand(sizes map[string]uint64) []demand {
	replicas := int(max(p.load.GetReplicas(), 1))
	var out []demand
	for _, sub := range slices.Sorted(maps.Keys(sizes)) {
		kind, task, ok := roleOf(sub)
		if !ok {
			p.unfit = append(p.unfit, fmt.Sprintf("%q is served by nobody: sub-models are entry, ps_<n> and dense_<n>", sub))
			continue
		}
		d := demand{sub: sub, kind: kind, task: task, bytes: sizes[sub]}
		if bytes, same := p.plannedBytes(sub); same {
			d.bytes = bytes
		}
		alone, named := 0, 0
		for i := range p.offers {
			if p.offers[i].kind == kind {
				alone++
			}
			if p.takes(&p.offers[i], d) {
				named++
			}
		}
		if kind == dense && named == 0 {
			p.unfit = append(p.unfit, fmt.Sprintf("%q is served by nobody: start a serving container with --server-type dense, whose model server knows it", sub))
			continue
		}
		switch {
		case len(p.load.GetSpecReplicas()) > 0:
			d.want = max(named, 1)
		case kind == "ps":
			d.want = replicas * int(p.homes(task))
		default:
			d.want = min(max(alone, 1), replicas)
		}
		out = append(out, d)
	}
	rank := map[string]int{entry: 0, dense: 1, "ps": 2}
	slices.SortFunc(out, func(a, b demand) int {
		return cmp.Or(cmp.Compare(rank[a.kind], rank[b.kind]), cmp.Compare(a.task, b.task))
	})
	return out
}

// plannedBytes is the size that the plan in force was made with, if it names the same
// version: exports do not change, and a restart must not say the same with other words.
func (p *packer) plannedBytes(sub string) (bytes uint64, same bool) {
	for _, a := range p.current.GetAssignments() {
		if path, ok := a.GetSubModels()[sub]; ok && path == p.path(sub) {
			return a.GetBytes()[sub], true
		}
	}
	return 0, false
}

func (p *packer) path(sub string) string {
	return filepath.Join(p.load.GetModelDir(), sub, strconv.FormatInt(p.load.GetVersion(), 10))
}

// Sub-model ps_<i> is at home on every shard that is i modulo the smaller of the two
// numbers: on shard i where as many serve as were exported, on one of them with others
// where fewer serve, on several where more do.
func (p *packer) home(shard int32, task uint32) bool {
	m := min(p.num, p.shards)
	return shard >= 0 && uint32(shard) < p.shards && uint32(shard)%m == task%m
}

// homes counts the shards on which a ps sub-model is at home.
func (p *packer) homes(task uint32) uint32 {
	m := min(p.num, p.shards)
	return (p.shards - task%m + m - 1) / m
}

// takes says whether the container may hold the sub-model. Dense sub-models are only for
// who asks for them: the built-in model server knows none. Where as many shards serve as
// were exported, a container of a shard takes that one alone; else memory decides, and
// every shard may hold what is not at home there.
func (p *packer) takes(o *offer, d demand) bool {
	if p.barred[o.id] || (o.kind != "" || d.kind == dense) && o.kind != d.kind {
		return false
	}
	if d.kind != "ps" || o.shard < 0 || p.home(o.shard, d.task) {
		return true
	}
	return p.num != p.shards && uint32(o.shard) < p.shards
}

func (p *packer) fits(o *offer, d demand) bool {
	return p.takes(o, d) && o.room(d.bytes) && !p.holds(o.id, d.sub)
}

func (p *packer) holds(container, sub string) bool {
	return slices.ContainsFunc(p.at[sub], func(x placed) bool { return x.container == container })
}

// keep takes over what the current plan has placed. What lies there already needs no
// memory; another version does, since the old one answers until the new one can. It
// returns why the new version cannot come without a gap.
func (p *packer) keep(d demand) (problem string) {
	type candidate struct {
		placed
		fits, serves, changed bool
	}
	var all []candidate
	seen, numbers := map[string]bool{}, map[uint32]bool{}
	for _, a := range p.current.GetAssignments() {
		o := p.by[a.GetContainer()]
		path, has := a.GetSubModels()[d.sub]
		if !has || o == nil || seen[o.id] || numbers[a.GetReplica()] {
			continue
		}
		seen[o.id], numbers[a.GetReplica()] = true, true
		all = append(all, candidate{placed{o.id, a.GetShard(), a.GetReplica()}, p.takes(o, d), o.serving[d.sub], path != p.path(d.sub)})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(before(a.fits, b.fits), before(a.serves, b.serves), cmp.Compare(a.replica, b.replica))
	})
	take := func(c candidate) bool {
		o := p.by[c.container]
		if c.changed && !o.room(d.bytes) {
			return false
		}
		if c.changed {
			o.spend(d.bytes)
		}
		p.at[d.sub] = append(p.at[d.sub], c.placed)
		return true
	}
	available := false
	for _, c := range all {
		if c.fits && p.have[d.sub] < d.want && take(c) {
			p.have[d.sub]++
			available = available || c.serves
		}
	}
	// The last one that answers stays until another one does.
	for _, c := range all {
		if !c.serves || available {
			continue
		}
		if !take(c) {
			has, lacks := p.by[c.container].against(d.bytes)
			problem = fmt.Sprintf("%s of version %d (%d bytes) cannot be loaded beside the version that %s serves, and no other replica answers: it has %d bytes free, %d are missing: give it that much, or more replicas to the version that is served",
				d.sub, p.load.GetVersion(), d.bytes, c.container, has, lacks)
			continue
		}
		return ""
	}
	if available {
		return ""
	}
	return problem
}

func (o *offer) room(bytes uint64) bool { return o.free >= 0 && bytes <= uint64(o.free) }

func (o *offer) spend(bytes uint64) {
	if o.free != unlimited {
		o.free -= int64(min(bytes, math.MaxInt64/4)) // so that no sum overflows
	}
}

func (o *offer) giveBack(bytes uint64) {
	if o.free != unlimited {
		o.free += int64(min(bytes, math.MaxInt64/4))
	}
}

// against says how many bytes are free, and how many more are needed.
func (o *offer) against(bytes uint64) (has, lacks uint64) {
	has = uint64(max(o.free, 0))
	return has, bytes - min(has, bytes)
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

// better orders containers for one more replica of d: one that offers itself for nothing
// else, then one of the shard where it is at home, then one of any shard, then the least
// loaded, then by id.
func (p *packer) better(d demand) func(a, b *offer) int {
	rank := func(o *offer) int {
		switch {
		case o.shard < 0:
			return 1
		case d.kind != "ps" || p.home(o.shard, d.task):
			return 0
		}
		return 2
	}
	return func(a, b *offer) int {
		return cmp.Or(before(a.kind != "", b.kind != ""), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.load, b.load), cmp.Compare(a.id, b.id))
	}
}

// place puts one more replica of d on the best container.
func (p *packer) place(d demand) bool {
	var best *offer
	better := p.better(d)
	for i := range p.offers {
		if o := &p.offers[i]; p.fits(o, d) && (best == nil || better(o, best) < 0) {
			best = o
		}
	}
	if best != nil {
		p.put(d, best)
	}
	return best != nil
}

// put places d on o, under o's own replica number where that is free.
func (p *packer) put(d demand, o *offer) {
	taken := func(n uint32) bool {
		return slices.ContainsFunc(p.at[d.sub], func(x placed) bool { return x.replica == n })
	}
	x := placed{container: o.id}
	if o.shard >= 0 && o.replica >= 0 {
		x.replica = uint32(o.replica)
	}
	for n := uint32(0); taken(x.replica); n++ {
		x.replica = n
	}
	switch m := min(p.num, p.shards); {
	case o.shard >= 0:
		x.shard = uint32(o.shard)
	case d.kind == "ps":
		x.shard = d.task%m + m*(uint32(p.have[d.sub])%p.homes(d.task))
	}
	o.spend(d.bytes)
	o.load += max(d.bytes, 1)
	p.at[d.sub] = append(p.at[d.sub], x)
	p.have[d.sub]++
}

// take undoes the last put of d.
func (p *packer) take(d demand, o *offer) {
	o.giveBack(d.bytes)
	o.load -= min(o.load, max(d.bytes, 1))
	p.at[d.sub] = p.at[d.sub][:len(p.at[d.sub])-1]
	p.have[d.sub]--
}

// plan writes down what was placed: one assignment per replica of a sub-model, in the
// order of demands and replicas.
func (p *packer) plan() *publish.Planned {
	out := &publish.Planned{
		ModelName: p.load.GetModelName(), ModelDir: p.load.GetModelDir(), Version: p.load.GetVersion(),
		NumPs: p.num, Job: p.load.GetJob(), IsSpec: len(p.load.GetSpecReplicas()) > 0,
	}
	for _, d := range p.demands {
		at := p.at[d.sub]
		slices.SortFunc(at, func(a, b placed) int { return cmp.Compare(a.replica, b.replica) })
		for _, x := range at {
			out.Assignments = append(out.Assignments, &publish.Assignment{
				Container: x.container, Shard: x.shard, Replica: x.replica,
				SubModels: map[string]string{d.sub: p.path(d.sub)},
				Bytes:     map[string]uint64{d.sub: d.bytes},
			})
		}
	}
	return out
}
