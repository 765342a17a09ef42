package main

import (
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

	var e struct {
		RequestID   string
		Predictions []struct {
			Row     int
			Model   string
			Version int64
			Score   float64
			Inputs  map[string]int64
			Rows    []struct {
				Table   string
				ID      int64
				SyncSeq uint64
			}
			DenseSeq uint64
			Missing  []string
		}
		Deltas []struct {
			Seq         uint64
			Shard       uint32
			Epoch, Step uint64
			Ranges      []struct {
				Partition int32
				From, To  int64
			}
		}
		Facts []struct {
			Seq  uint64
			Type string
		}
	}
	w.until("the impressions", func() (bool, string) {
		code, out, stderr := w.tool("explain", "why-1", "--json", "--kafka", w.Config.Kafka)
		if code != exitOK {
			return false, stderr
		}
		d := json.NewDecoder(strings.NewReader(out))
		e.Predictions, e.Deltas, e.Facts = nil, nil, nil
		w.must("read the explanation", d.Decode(&e))
		return len(e.Predictions) == 2, out
	})
	records := map[int32]map[int64]rating.Rating{}
	_, _, err = kafka.Scan(w.soon(), w.Brokers(), host.RatingsTopic, func(r kafka.Record) error {
		v, err := rating.Decode(r.Value)
		if records[r.Partition] == nil {
			records[r.Partition] = map[int64]rating.Rating{}
		}
		records[r.Partition][r.Offset] = v
		return err
	})
	w.must("read the ratings", err)
	for _, p := range e.Predictions {
		if p.Model != host.ModelName || p.Version < 1 || float32(p.Score) != float32(scores[p.Row]) || p.Inputs["user"] != users[p.Row] || p.Inputs["movie"] != movies[p.Row] ||
			len(p.Rows) != 2 || p.DenseSeq == 0 || len(p.Missing) > 0 {
			t.Errorf("prediction %+v, the answer was %v", p, scores)
		}
		for _, row := range p.Rows {
			if p.Row == 1 {
				if row.SyncSeq != 0 {
					t.Errorf("row %+v was never rated", row)
				}
				continue
			}
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
	}
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
	if !slices.IsSortedFunc(e.Deltas, func(a, b struct {
		Seq         uint64
		Shard       uint32
		Epoch, Step uint64
		Ranges      []struct {
			Partition int32
			From, To  int64
		}
	}) int {
		return int(int64(a.Seq) - int64(b.Seq))
	}) {
		t.Errorf("deltas out of order: %+v", e.Deltas)
	}
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
