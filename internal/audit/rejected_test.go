package audit

import (
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
)

// Letters that had no room count with their summary.
func TestCountRejectedWithSummaries(t *testing.T) {
	b := mem.New(mem.LetterLimit(16 << 10))
	defer b.Close()
	for i := range uint64(20) {
		p := bus.Parked{Reason: "no JSON", By: "trainer", Stream: "kafka:ratings/0", StreamSeq: i, Subject: "ratings", Data: make([]byte, 300)}
		if _, err := b.DeadLetters().Park(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	byReason, csv, kafka, err := CountRejected(t.Context(), b.DeadLetters(), "ratings")
	if err != nil || csv != 0 || kafka != 20 || byReason["no JSON"] == 0 || byReason["no JSON"] == 20 {
		t.Fatalf("%d of CSV, %d of Kafka, %v, %v; want 20 of Kafka, some of them in a summary", csv, kafka, byReason, err)
	}
}
