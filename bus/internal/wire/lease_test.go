package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
)

func TestCheckLease(t *testing.T) {
	for _, tc := range []struct {
		name, holder string
		ttl          time.Duration
		ok           bool
	}{
		{"b.writer", "me", MinLease, true},
		{"b.writer", "me", MinLease - 1, false},
		{"b.writer", "me", 0, false},
		{"", "me", time.Minute, false},
		{"b.writer", "", time.Minute, false},
	} {
		err := CheckLease(tc.name, tc.holder, tc.ttl)
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, events.ErrInvalid) {
			t.Errorf("CheckLease(%q, %q, %v) = %v", tc.name, tc.holder, tc.ttl, err)
		}
	}
}

// The keys are those of earlier builds: another key would be another lease.
func TestLeaseKeysStay(t *testing.T) {
	for name, want := range map[string]string{
		"azAZ09-_":         "azAZ09-_",
		"`{@[/:=":          "=60=7B=40=5B=2F=3A=3D",
		"demo.job.shard-0": "demo.job.shard-0",
		".a":               "=2Ea",
		"a.":               "a=2E",
		"a..b":             "a.=2Eb",
		"ä":                "=C3=A4",
	} {
		if got := LeaseKey(name); got != want {
			t.Errorf("LeaseKey(%q) = %s, want %s", name, got, want)
		}
	}
}
