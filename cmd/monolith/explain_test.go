package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// explained is what monolith explain --json prints.
type explained struct {
	RequestID   string
	Predictions []explainedScore
	Deltas      []explainedDelta
	Facts       []struct {
		Seq  uint64
		Type string
	}
}

type explainedScore struct {
	Row      int
	Model    string
	Version  int64
	Score    float64
	Inputs   map[string]int64
	Rows     []explainedRow
	DenseSeq uint64
	Missing  []string
}

type explainedRow struct {
	Table   string
	ID      int64
	SyncSeq uint64
}

type explainedDelta struct {
	Seq         uint64
	Shard       uint32
	Epoch, Step uint64
	Ranges      []struct {
		Partition int32
		From, To  int64
	}
}

// TestExplain goes from a request id back to the ratings behind the rows that it read,
// by the command alone.
func TestExplain(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas = 1
	w := opsServe(t, cfg)
	w.rate(300)
	w.learnt()
	w.agree()
	client, err := scenario.Dial(w.entry)
	w.must("dial the entry", err)
	defer client.Close()
	// The second pair was never rated; the first was by opsRating(10).
	known := opsRating(10)
	users, movies := []int64{known.User, 1 << 40}, []int64{known.Movie, 1 << 41}
	scores, err := predictPairs(client, w.soon(), host.ModelName, "why-1", users, movies)
	w.must("Predict", err)
	e := explanation(w, "why-1", len(users))
	records := ratingsByOffset(w)
	for _, p := range e.Predictions {
		if p.Model != host.ModelName || p.Version < 1 || float32(p.Score) != float32(scores[p.Row]) || p.Inputs["user"] != users[p.Row] || p.Inputs["movie"] != movies[p.Row] ||
			len(p.Rows) != 2 || p.DenseSeq == 0 || len(p.Missing) > 0 {
			t.Errorf("prediction %+v, the answer was %v", p, scores)
		}
		for _, row := range p.Rows {
			switch {
			case p.Row == 0:
				e.rated(t, row, known, records)
			case row.SyncSeq != 0:
				t.Errorf("row %+v was never rated", row)
			}
		}
	}
	e.inOrder(t)
	code, out, stderr := w.tool("explain", "why-1", "--kafka", w.Config.Kafka)
	for _, want := range []string{"request why-1", fmt.Sprintf("user %d (table user)", known.User), fmt.Sprintf("movie %d (table movie)", known.Movie), "written by delta", "never learnt", "loadAccepted", "planned"} {
		if !strings.Contains(out, want) {
			t.Errorf("the text lacks %q: %d %s\n%s", want, code, stderr, out)
		}
	}
	if code, _, stderr := w.tool("explain", "nobody-asked", "--kafka", w.Config.Kafka); code != exitFailure || !strings.Contains(stderr, `no impression of request "nobody-asked"`) {
		t.Errorf("an unknown request: %d %s", code, stderr)
	}
}

// explanation asks until all impressions of the request have been written.
func explanation(w *opsWorld, request string, impressions int) (e explained) {
	w.t.Helper()
	w.until("the impressions", func() (bool, string) {
		code, out, stderr := w.tool("explain", request, "--json", "--kafka", w.Config.Kafka)
		if code != exitOK {
			return false, stderr
		}
		e = explained{}
		w.must("read the explanation", json.NewDecoder(strings.NewReader(out)).Decode(&e))
		return len(e.Predictions) == impressions, out
	})
	return e
}

// ratingsByOffset is the topic, by partition and offset.
func ratingsByOffset(w *opsWorld) map[int32]map[int64]rating.Rating {
	w.t.Helper()
	records := map[int32]map[int64]rating.Rating{}
	_, _, err := kafka.Plain.Scan(w.soon(), w.Brokers(), host.RatingsTopic, func(r kafka.Record) error {
		v, err := rating.Decode(r.Value)
		if records[r.Partition] == nil {
			records[r.Partition] = map[int64]rating.Rating{}
		}
		records[r.Partition][r.Offset] = v
		return err
	})
	w.must("read the ratings", err)
	return records
}

// rated checks that the delta behind a row learnt a rating of it, from records that are there.
func (e explained) rated(t *testing.T, row explainedRow, known rating.Rating, records map[int32]map[int64]rating.Rating) {
	t.Helper()
	found := false
	for _, d := range e.Deltas {
		if d.Seq != row.SyncSeq {
			continue
		}
		if d.Epoch == 0 || d.Step == 0 || len(d.Ranges) == 0 {
			t.Errorf("delta %+v", d)
		}
		for _, g := range d.Ranges {
			for at := g.From; at < g.To; at++ {
				r, ok := records[g.Partition][at]
				if !ok {
					t.Errorf("delta %d names offset %d of partition %d, which is not there", d.Seq, at, g.Partition)
				}
				found = found || row.Table == "user" && r.User == known.User || row.Table == "movie" && r.Movie == known.Movie
			}
		}
	}
	if !found {
		t.Errorf("nothing behind delta %d rates %s %d", row.SyncSeq, row.Table, row.ID)
	}
}

// inOrder checks that facts and deltas come by sequence, and that the facts which put the
// model there are among them.
func (e explained) inOrder(t *testing.T) {
	t.Helper()
	var types []string
	for i, f := range e.Facts {
		types = append(types, f.Type)
		if i > 0 && f.Seq <= e.Facts[i-1].Seq {
			t.Errorf("facts out of order: %+v", e.Facts)
		}
	}
	for _, want := range []string{"declared", "loadAccepted", "planned", "ready"} {
		if !slices.Contains(types, want) {
			t.Errorf("the facts are %v, without %s", types, want)
		}
	}
	if !slices.IsSortedFunc(e.Deltas, func(a, b explainedDelta) int { return cmp.Compare(a.Seq, b.Seq) }) {
		t.Errorf("deltas out of order: %+v", e.Deltas)
	}
}
