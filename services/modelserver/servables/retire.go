package servables

import (
	"cmp"
	"slices"
	"time"
)

// maxEnded is how many unloaded versions keep showing END; the oldest are forgotten.
const maxEnded = 256

// retire stops versions of one model that are not wanted. One that answers goes once a
// wanted one can take its place, and rows not before the last entry has ceased to ask for
// them; what is in memory stays when its files vanish. One that loads goes at once,
// except that the first of them may go on while nothing else answers: where wishes change
// faster than a load takes, none would ever end. The caller holds mu.
func (s *Manager) retire(versions map[int64]*version, now time.Time, configured bool, wanted func(number int64) bool) {
	var first, newest *version
	answers, replaced := false, false
	for number, v := range versions {
		answers = answers || v.state == stateAvailable
		if v.state == stateAvailable && (newest == nil || v.begunAt > newest.begunAt) {
			newest = v
		}
		replaced = replaced || v.state == stateAvailable && v.settled && wanted(number)
		if v.loading() && !v.unloaded && (first == nil || v.begunAt < first.begunAt) {
			first = v
		}
	}
	for number, v := range versions {
		if v.state == stateEnd || v.unloaded {
			continue
		}
		stop := !configured
		switch {
		case stop:
		case wanted(number):
			v.unwanted = time.Time{}
		case v.loading():
			stop = answers || v != first
		case v.state == stateAvailable && !v.settled && newest != v:
			stop = true // it never had what it needs, and a newer one waits for the same
		case replaced:
			if v.unwanted.IsZero() {
				v.unwanted = now
			}
			stop = v.data == nil || v.data.ps == nil || now.Sub(v.unwanted) >= s.linger && now.Sub(v.data.ps.LastAsked()) >= s.linger
		}
		if stop {
			v.unloaded = true
			v.stop()
		}
	}
}

// forget drops the oldest of too many ended versions. The caller holds mu.
func (s *Manager) forget() {
	var ended []*version
	for _, versions := range s.models {
		for _, v := range versions {
			if v.state == stateEnd {
				ended = append(ended, v)
			}
		}
	}
	if len(ended) <= maxEnded {
		return
	}
	slices.SortFunc(ended, func(a, b *version) int { return cmp.Compare(a.endedAt, b.endedAt) })
	for _, v := range ended[:len(ended)-maxEnded] {
		delete(s.models[v.name], v.number)
		if len(s.models[v.name]) == 0 {
			delete(s.models, v.name)
		}
	}
}
