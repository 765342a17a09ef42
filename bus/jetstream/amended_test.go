package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus/internal/wire"
)

// An age that an operator gave the letters stays, and ids are remembered no longer than that; a
// stream without an age gets the one that is wanted, and one that is to have none loses it.
func TestTheAgeOfAStreamThatThereIs(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name             string
		have, want, flag time.Duration
		age, remembered  time.Duration
	}{
		{"an operator's", 7 * day, 180 * day, 0, 7 * day, wire.Window},
		{"an operator's short one", wire.Window / 2, 180 * day, 0, wire.Window / 2, wire.Window / 2},
		{"of an earlier build, none", 0, 180 * day, 0, 180 * day, wire.Window},
		{"none is wanted", 7 * day, 0, 0, 0, wire.Window},
		{"asked for", 7 * day, 30 * day, 30 * day, 30 * day, wire.Window},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &Bus{cfg: Config{LetterMaxAge: tc.flag}}
			got := b.amended(jetstream.StreamConfig{MaxAge: tc.have, Duplicates: time.Minute}, jetstream.StreamConfig{MaxAge: tc.want, Duplicates: wire.Window}, false)
			if got.MaxAge != tc.age || got.Duplicates != tc.remembered {
				t.Errorf("age %v, ids for %v; want %v, %v", got.MaxAge, got.Duplicates, tc.age, tc.remembered)
			}
		})
	}
}

// A stream that denies deletes does so for ever, as the server would refuse to change; one that is to
// deny them and does not yet, is told to.
func TestWhetherAStreamDeniesDeletes(t *testing.T) {
	for _, have := range []bool{false, true} {
		for _, want := range []bool{false, true} {
			got := (&Bus{}).amended(jetstream.StreamConfig{DenyDelete: have}, jetstream.StreamConfig{DenyDelete: want}, false)
			if got.DenyDelete != (have || want) {
				t.Errorf("it does: %t, it is to: %t, it will: %t", have, want, got.DenyDelete)
			}
		}
	}
}
