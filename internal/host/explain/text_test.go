package explain

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// People read the ids that they know, feature by feature; records of servers before features were
// written have the table alone.
func TestRowsAreNamedByFeature(t *testing.T) {
	e := &Explanation{RequestID: "r", Predictions: []explained{{Impression: &impression.Impression{
		RequestID: "r", Model: "m", Version: 3, DenseSeq: 9, Scores: map[string]float32{"like": 0.25, "share": 0.5},
		Inputs: map[string]impression.IDs{"user": {7}, "history": {50, 3}}, More: map[string]int{"history": 44},
		Rows: []impression.Row{
			{Feature: "user", Table: "user", ID: modelspec.FID(1, 7), Shard: 1, Replica: 2, SyncSeq: 5},
			{Feature: "history", Table: "movie", ID: modelspec.FID(2, 50), SyncSeq: 6}, {Feature: "history", Table: "movie", ID: modelspec.FID(2, 3)},
			{Feature: "country", Table: "user", ID: modelspec.FID(3, modelspec.HashID([]byte("fr"))), Text: "fr", SyncSeq: 6},
			{Table: "movie", ID: modelspec.FID(2, 8), SyncSeq: 6},
		},
	}}}}
	var b strings.Builder
	if err := e.Text(&b); err != nil {
		t.Fatal(err)
	}
	const want = `scored 0.2500 (like), 0.5000 (share) at 1970-01-01T00:00:00Z
    user 7 (table user): from replica 2 of shard 1, written by delta 5
    history 50 (table movie): from replica 0 of shard 0, written by delta 6
    history 3 (table movie): never learnt by shard 0, so zeros or the export's row
    history: 44 more rows, which the impression does not list
    country "fr" (table user): from replica 0 of shard 0, written by delta 6
    row 8 of table movie: from replica 0 of shard 0, written by delta 6
    dense variables: delta 9
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("%s\nlacks\n%s", b.String(), want)
	}
}
