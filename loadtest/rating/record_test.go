package rating

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHistory shows that a record tells of what was before it and nothing else, and that it
// can be read as the rating it is.
func TestHistory(t *testing.T) {
	h := NewHistory(Movies{7: {Title: "Heat", Year: 1995, Genres: []string{"Action", "Crime"}}})
	var got []string
	for _, r := range []Rating{{1, 7, 4, 964982703}, {2, 7, 1, 964982703}, {1, 8, 2, 964982704}, {1, 7, 5, 964982705}} {
		rec := h.Add(r)
		line := rec.AppendJSON(nil)
		if !json.Valid(line) {
			t.Fatalf("%s is no JSON", line)
		}
		if back, err := Decode(line); err != nil || back != r {
			t.Errorf("Decode(%s) = %v, %v", line, back, err)
		}
		got = append(got, string(line))
	}
	want := []string{
		`{"userId":1,"movieId":7,"rating":4.0,"timestamp":964982703,"genres":[1,6],"genre":1,"mix":33,"year":1995,"decade":1990,"age":5,"hour":18,"mood":0,"streak":1}`,
		`{"userId":2,"movieId":7,"rating":1.0,"timestamp":964982703,"genres":[1,6],"genre":1,"mix":33,"year":1995,"decade":1990,"age":5,"hour":18,"mood":0,"streak":1}`,
		`{"userId":1,"movieId":8,"rating":2.0,"timestamp":964982704,"genre":0,"mix":0,"year":0,"decade":0,"age":0,"hour":18,"liked":[7],"mood":32,"streak":3,"recent":[1]}`,
		`{"userId":1,"movieId":7,"rating":5.0,"timestamp":964982705,"genres":[1,6],"genre":1,"mix":33,"year":1995,"decade":1990,"age":5,"hour":18,"liked":[7],"disliked":[8],"mood":33,"streak":5,"recent":[0,3]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory(nil)
	var rec Record
	for i := range 3 * HistoryLength {
		rec = h.Add(Rating{User: 1, Movie: int64(i), Rating: float64(i%2) * 5})
	}
	if len(rec.Recent) != HistoryLength || len(rec.Liked)+len(rec.Disliked) != HistoryLength {
		t.Errorf("a record tells of %d ratings: %d liked, %d disliked; want %d", len(rec.Recent), len(rec.Liked), len(rec.Disliked), HistoryLength)
	}
	if want := int64(3*HistoryLength - 2); rec.Disliked[0] != want {
		t.Errorf("the latest disliked movie is %d, want %d", rec.Disliked[0], want)
	}
}

// TestIDsAreTheRecords holds IDs to what AppendJSON writes, field by field.
func TestIDsAreTheRecords(t *testing.T) {
	h := NewHistory(Movies{7: {Title: "Heat", Year: 1995, Genres: []string{"Action", "Crime"}}})
	for i := range 4 {
		rec := h.Add(Rating{User: 1, Movie: 6 + int64(i%2), Rating: 1 + float64(i), Timestamp: 964982703})
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(rec.AppendJSON(nil), &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"userId", "movieId", "timestamp", "genres", "genre", "mix", "mood", "streak", "year", "decade", "age", "hour", "liked", "disliked", "recent"} {
			var want []int64
			if raw := fields[name]; raw != nil && json.Unmarshal(raw, &want) != nil {
				want = []int64{0}
				if err := json.Unmarshal(raw, &want[0]); err != nil {
					t.Fatal(err)
				}
			}
			if got, ok := rec.IDs(name); !ok || !slices.Equal(got, want) {
				t.Errorf("record %d: IDs(%s) = %v, %t; the record has %v", i, name, got, ok, want)
			}
		}
	}
	if _, ok := (Record{}).IDs("rating"); ok {
		t.Error("the label is handed out as a feature")
	}
}
