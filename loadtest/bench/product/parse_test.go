package product

import (
	"encoding/json"
	"testing"

	"github.com/monolith-go/monolith/internal/input"
)

// What is measured of each format is the same samples, whole.
func TestParsedSamplesAreTheSame(t *testing.T) {
	all := drawParsed(parseBatch)
	for _, format := range []input.Format{input.JSON, input.Example, input.MonolithExample, input.ExampleBatch, input.Instance} {
		records, err := parseRecords(format, all)
		if err != nil {
			t.Fatal(err)
		}
		p, err := newParser(format, records)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.fill(); err != nil {
				t.Fatalf("%v: %v", format, err)
			}
		}
		if p.batch.Len() != len(all) {
			t.Fatalf("%v: %d samples, want %d", format, p.batch.Len(), len(all))
		}
		for i, s := range all {
			for f, id := range s.ids {
				if got := p.batch.IDs(f, i); len(got) != 1 || got[0] != id {
					t.Fatalf("%v: sample %d, feature %d is %v, want %d", format, i, f, got, id)
				}
			}
			if got := p.batch.Labels(0)[i]; got != s.label {
				t.Fatalf("%v: sample %d has the label %g, want %g", format, i, got, s.label)
			}
		}
		if format == input.JSON { // exact for encoding/json's float64, too
			var fields map[string]any
			if err := json.Unmarshal(records[0], &fields); err != nil || int64(fields["fc_slot_26"].(float64)) != all[0].ids[25] {
				t.Errorf("encoding/json reads %v, %v", fields["fc_slot_26"], err)
			}
		}
	}
	if _, err := parseRecords(input.Format(99), all); err == nil {
		t.Error("records of no format")
	}
}
