package rows

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

// downFor is how long a replica that failed, or lacks a version, is asked only when no
// other one is left.
const downFor = 500 * time.Millisecond

// exportID tells versions apart, also those that two jobs gave one number.
type exportID struct {
	version int64
	job     string
}

// endpoint is one replica of one serving shard.
type endpoint struct {
	addr        string
	replica     int32
	outstanding atomic.Int64
	downUntil   atomic.Int64 // Unix nanoseconds
	missing     atomic.Pointer[missing]
	latency     latency
}

// missing is what a replica said it lacks, and how long that is believed.
type missing struct {
	export exportID
	until  int64 // Unix nanoseconds
}

type shardKey struct {
	model string
	shard uint32
}

type endpointKey struct {
	shardKey
	replica int32
	addr    string
}

// routes finds the replicas that may be asked for rows, from the fleet view alone.
type routes struct {
	fleet *follow.Follower[fleet.State]
	drop  func(addr string) // an address nobody has any more

	byShard atomic.Pointer[map[shardKey]*choice]
	known   map[endpointKey]*endpoint // run's own
}

// choice is the replicas of one shard. Turns are counted shard by shard: a count over
// all would give each shard the same replica every time where requests ask an even
// number of shards.
type choice struct {
	all  []*endpoint
	turn atomic.Uint64
	pace *pace // kept for as long as the shard has replicas
}

func newRoutes(f *follow.Follower[fleet.State], drop func(string)) *routes {
	r := &routes{fleet: f, drop: drop, known: map[endpointKey]*endpoint{}}
	r.byShard.Store(&map[shardKey]*choice{})
	return r
}

// run keeps the table current until ctx ends.
func (r *routes) run(ctx context.Context) {
	for {
		changed := r.fleet.Changed()
		r.rebuild()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (r *routes) rebuild() {
	byShard := map[shardKey]*choice{}
	known := map[endpointKey]*endpoint{}
	addrs := map[string]bool{}
	add := func(key endpointKey) {
		e := r.known[key]
		if e == nil {
			e = &endpoint{addr: key.addr, replica: key.replica}
		}
		known[key] = e
		addrs[key.addr] = true
		c := byShard[key.shardKey]
		if c == nil {
			c = &choice{pace: r.pace(key.shardKey)}
			if c.pace == nil {
				c.pace = &pace{}
			}
			byShard[key.shardKey] = c
		}
		c.all = append(c.all, e)
	}
	r.fleet.Read(func(s fleet.State) {
		var silent []endpointKey
		for _, x := range s.Replicas {
			p := x.Replica.V
			if p.GetServerType() != "ps" || p.GetStat() != replica.State_AVAILABLE || p.GetRowsAddress() == "" || p.GetTask() < 0 {
				continue
			}
			key := endpointKey{shardKey{p.GetModelName(), uint32(p.GetTask())}, p.GetReplica(), p.GetRowsAddress()}
			if x.Alive {
				add(key)
			} else if c := s.Containers[p.GetContainer()]; !c.Alive && !c.Left {
				silent = append(silent, key)
			}
		}
		// A shard of which no replica is heard of may answer all the same: it is whoever hears of
		// them that was cut off, more often than all of them.
		silent = slices.DeleteFunc(silent, func(key endpointKey) bool { return byShard[key.shardKey] != nil })
		for _, key := range silent {
			add(key)
		}
	})
	r.byShard.Store(&byShard)
	for key := range r.known {
		if !addrs[key.addr] {
			r.drop(key.addr)
		}
	}
	r.known = known
}

// pick chooses a replica of the shard that is not in tried: one that did not fail just
// now, nor lack the export, before one that did, then the one that is fast and has few requests out, in
// turns where several are equal. nil: none is left.
func (r *routes) pick(key shardKey, want exportID, tried []*endpoint) *endpoint {
	c := (*r.byShard.Load())[key]
	if c == nil {
		return nil
	}
	all := c.all
	now := time.Now()
	first := int(c.turn.Add(1) % uint64(len(all)))
	var best *endpoint
	var bestDown bool
	var bestCost int64
next:
	for i := range all {
		e := all[(first+i)%len(all)]
		for _, t := range tried {
			if t == e {
				continue next
			}
		}
		down, cost := e.down(want, now), (e.outstanding.Load()+1)<<e.latency.class(now)
		if best == nil || !down && bestDown || down == bestDown && cost < bestCost {
			best, bestDown, bestCost = e, down, cost
		}
	}
	return best
}

// replicas are all of the shard's.
func (r *routes) replicas(key shardKey) []*endpoint {
	if c := (*r.byShard.Load())[key]; c != nil {
		return c.all
	}
	return nil
}

// pace is how fast the shard answers, nil where nobody serves it.
func (r *routes) pace(key shardKey) *pace {
	if c := (*r.byShard.Load())[key]; c != nil {
		return c.pace
	}
	return nil
}

// down says that the replica failed just now, or lacks the export.
func (e *endpoint) down(want exportID, now time.Time) bool {
	lack := e.missing.Load()
	return e.downUntil.Load() > now.UnixNano() || lack != nil && lack.export == want && lack.until > now.UnixNano()
}

// lacks notes that the replica does not serve the export now.
func (e *endpoint) lacks(x exportID) {
	e.missing.Store(&missing{x, time.Now().Add(downFor).UnixNano()})
}

func (e *endpoint) failed() { e.downUntil.Store(time.Now().Add(downFor).UnixNano()) }
