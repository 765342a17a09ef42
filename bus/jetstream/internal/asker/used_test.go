package asker

import (
	"strconv"
	"testing"
	"time"
)

// What is remembered is bounded: whoever asks very often is refused until the span is over, and
// what was used stays used.
func TestHowManySignaturesAreRemembered(t *testing.T) {
	var u used
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	for i := range maxUsed {
		if first, err := u.first(strconv.Itoa(i), now); !first || err != nil {
			t.Fatalf("signature %d: %v, %v", i, first, err)
		}
	}
	if _, err := u.first("one more", now.Add(2*Fresh-1)); err == nil {
		t.Error("more are remembered than the bound")
	}
	if first, err := u.first("one more", now.Add(2*Fresh)); !first || err != nil {
		t.Errorf("in the next span: %v, %v", first, err)
	}
	if first, err := u.first("0", now.Add(2*Fresh)); first || err != nil {
		t.Errorf("what was used in the span before: %v, %v", first, err)
	}
}
