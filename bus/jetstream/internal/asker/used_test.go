package asker

import (
	"strconv"
	"testing"
	"time"
)

// What is remembered is bounded: whoever asks very often is refused until the span is over, and
// what was used stays used.
func TestHowManySignaturesAreRemembered(t *testing.T) {
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	u := used{now: make(map[string]bool, maxUsed), since: now}
	for i := range maxUsed - 1 {
		u.now[strconv.Itoa(i)] = true
	}
	if first, err := u.first("the last", now); !first || err != nil {
		t.Errorf("the last that is remembered: %v, %v", first, err)
	}
	if _, err := u.first("one more", now.Add(2*Fresh-1)); err == nil {
		t.Error("more are remembered than the bound")
	}
	if first, err := u.first("one more", now.Add(2*Fresh)); !first || err != nil {
		t.Errorf("in the next span: %v, %v", first, err)
	}
	if first, err := u.first("the last", now.Add(2*Fresh)); first || err != nil {
		t.Errorf("what was used in the span before: %v, %v", first, err)
	}
}
