package fairness

import (
	"log/slog"
	"testing"
	"time"
)

// When a trainer keeps to its quota, and when it takes what the others leave.
func TestFairness(t *testing.T) {
	const ttl = 10 * time.Second
	begin := time.Unix(1000, 0)
	f := Fairness{TTL: ttl, Log: slog.New(slog.DiscardHandler)}
	for i, tc := range []struct {
		after       time.Duration // since the begin
		rivals      string
		quota, held int
		back        int
		orphans     bool // at one look of each lease time
	}{
		{0, "a b", 2, 0, 0, false},
		{0, "a b", 2, 2, 0, false},
		{0, "a b", 2, 5, 3, false},
		{2*ttl - 1, "a b", 2, 3, 1, false},
		{2 * ttl, "a b", 2, 3, 0, true},
		{10*ttl - 1, "a b", 2, 3, 0, true},
		{10 * ttl, "a b", 2, 2, 0, true}, // nothing to give: nobody is kept from what is free
		{11 * ttl, "a b", 2, 4, 2, false},
		{13*ttl - 1, "a b", 2, 3, 1, false},
		{13 * ttl, "a b", 2, 3, 0, true},
		{14 * ttl, "a b c", 1, 3, 2, false}, // another set of trainers
		{16*ttl - 1, "a b c", 1, 1, 0, false},
		{16 * ttl, "a b c", 1, 1, 0, true},
		{24 * ttl, "a b c", 1, 3, 2, false}, // it has held them for long enough
	} {
		orphans := 0
		for look := range 2 * PerTTL {
			back, more := f.Look(begin.Add(tc.after), tc.rivals, tc.quota, tc.held)
			if back != tc.back {
				t.Errorf("%d, look %d: %d of %d are given back, want %d", i, look, back, tc.held, tc.back)
			}
			if more {
				orphans++
			}
		}
		if want := map[bool]int{false: 0, true: 2}[tc.orphans]; orphans != want {
			t.Errorf("%d: %d of %d looks take what is free, want %d", i, orphans, 2*PerTTL, want)
		}
	}
}
