// Package fairness keeps each of a job's trainers to its share of the partitions.
package fairness

import (
	"log/slog"
	"time"
)

// PerTTL is how often the leases are looked at in a lease time.
const PerTTL = 6

// Fairness says when a trainer keeps to its quota, by how long the trainers have been the
// same.
type Fairness struct {
	TTL time.Duration // of a lease
	Log *slog.Logger

	rivals string    // the trainers, and the number of partitions
	steady time.Time // when they last changed
	looks  int
}

// Look says how many of the partitions held are to be given back, and whether free ones may
// be taken beyond the quota.
func (f *Fairness) Look(now time.Time, rivals string, quota, held int) (back int, orphans bool) {
	if rivals != f.rivals {
		f.rivals, f.steady = rivals, now
		f.Log.Info("share of the partitions", "trainers", rivals, "quota", quota)
	}
	if now.Sub(f.steady) >= 10*f.TTL && held > quota {
		f.steady = now // give the late ones another chance
	}
	f.looks++
	if now.Sub(f.steady) < 2*f.TTL {
		return max(0, held-quota), false
	}
	return 0, f.looks%PerTTL == 0
}
