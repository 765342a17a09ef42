package zktest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// dozens draws as many requests as a busy client has on their way.
func (d *differ) dozens(i int) []ask {
	d.bursts++
	asks := make([]ask, 16+d.rng.IntN(49))
	for k := range asks {
		switch a := d.anything(i); {
		case blurs(a) && k < len(asks)-1:
			asks[k] = d.surely()
		case d.rng.IntN(3) == 0: // half of all requests are reads else
			asks[k] = pick(d, d.create(d.path(), int32(d.rng.IntN(4)), openACL), d.setData(d.path(), d.version()))
		default:
			asks[k] = a
		}
	}
	return asks
}

// surely is a multi that cannot fail.
func (d *differ) surely() ask {
	d.inMulti = true
	defer func() { d.inMulti = false }()
	check := wire.PathVersion{Path: d.root, Version: -1}
	return joined(wire.OpMulti, []ask{
		{op: wire.OpCheck, what: fmt.Sprintf("check %+v", check), body: check.Encode},
		d.create(d.root+"/m-", int32(2+d.rng.IntN(2)), openACL),
		d.setData(d.root, -1),
	})
}

func (d *differ) laneRoot(i int) string { return fmt.Sprintf("%s/l%d", d.base, i) }

func (d *differ) isLane(path string) bool {
	for i := range clients {
		if path == d.laneRoot(i) {
			return true
		}
	}
	return false
}

// laneOf is the lane that a watch event tells of.
func (d *differ) laneOf(event string) int {
	for i := range clients {
		if at := `"` + d.laneRoot(i); strings.Contains(event, at+`"`) || strings.Contains(event, at+"/") {
			return i
		}
	}
	return anyLane
}

// lanes has every client send dozens of requests at once, each below a root of its own,
// where nobody else writes meanwhile; what they hear of one another is in the order of
// each lane.
func (d *differ) lanes() {
	d.t.Helper()
	if !d.laned {
		d.laned = true
		for i := range clients {
			d.batch(i, []ask{d.create(d.laneRoot(i), 0, openACL)})
		}
	}
	var asks [clients][]ask
	for i := range asks {
		d.root = d.laneRoot(i)
		asks[i] = d.dozens(i)
	}
	d.root = d.base
	d.zxids.lanes = true
	var xids [clients][]int32
	for i := range asks {
		xids[i] = d.send(i, asks[i])
	}
	var others [clients][2]map[int][]string // events, by whose lane they are of
	mine := func(i int, got [2]frames) [2]frames {
		for n := range got {
			if others[i][n] == nil {
				others[i][n] = map[int][]string{}
			}
			got[n].events = slices.DeleteFunc(got[n].events, func(e string) bool {
				lane := d.laneOf(e)
				if lane != i {
					others[i][n][lane] = append(others[i][n][lane], e)
				}
				return lane != i
			})
		}
		return got
	}
	for i := range asks {
		for k, a := range asks[i] {
			var got [2]frames
			for n, s := range d.sides {
				got[n] = d.until(s, i, xids[i][k], a)
			}
			d.same(i, a, mine(i, got), false)
			d.learn(a, got[0])
		}
	}
	for i := range clients {
		got := d.ping(i)
		d.same(i, ping, mine(i, got), false)
		d.ends(got)
	}
	d.zxids.lanes = false
	for i := range clients {
		a, b := others[i][0], others[i][1]
		for _, list := range a {
			d.events += len(list)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) { // maps print in the order of their keys
			d.fail("client %d hears of the other lanes\nours:      %v\nZooKeeper: %v", i, a, b)
		}
	}
}
