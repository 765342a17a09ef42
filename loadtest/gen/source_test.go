package gen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/loadtest/rating"
)

func TestOpenCSV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratings.csv")
	if err := os.WriteFile(path, []byte(rating.Header+"\n2,1,4.0,30\nx\n1,2,3.0,10\n1,1,2.0,30\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var broken []rating.Broken
	f, err := OpenCSV(path, func(b rating.Broken) { broken = append(broken, b) })
	if err != nil {
		t.Fatal(err)
	}
	if len(broken) != 1 || broken[0].Line != 3 || f.Total() != 3 || f.Rows() != 4 {
		t.Errorf("%d ratings in %d rows, broken %+v", f.Total(), f.Rows(), broken)
	}
	if _, known := f.Best(); known {
		t.Error("the best score of real ratings is called known")
	}
	want := []rating.Rating{
		{User: 1, Movie: 2, Rating: 3, Timestamp: 10},
		{User: 1, Movie: 1, Rating: 2, Timestamp: 30},
		{User: 2, Movie: 1, Rating: 4, Timestamp: 30},
	}
	if diff := cmp.Diff(want, drain(f)); diff != "" {
		t.Error(diff)
	}
	if _, ok := f.Next(); ok {
		t.Error("a rating after the end")
	}
	if _, err := OpenCSV(path+".none", nil); err == nil || !strings.Contains(err.Error(), ".none") {
		t.Errorf("a missing file: %v", err)
	}
}

// TestMoviesBesideRatings are the catalog; a file without them has none.
func TestMoviesBesideRatings(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ratings.csv")
	if err := os.WriteFile(path, []byte(rating.Header+"\n1,7,4.0,30\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenCSV(path, nil)
	if err != nil || f.Catalog() != nil {
		t.Errorf("without movies.csv: %v, catalog %v", err, f.Catalog())
	}
	movies := filepath.Join(dir, "movies.csv")
	if err := os.WriteFile(movies, []byte(rating.MoviesHeader+"\n7,Heat (1995),Action|Crime\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenCSV(path, nil); err != nil {
		t.Fatal(err)
	}
	if m, ok := f.Catalog().Movie(7); !ok || m.Title != "Heat" {
		t.Errorf("movie 7 is %+v, %t", m, ok)
	}
	if err := os.WriteFile(movies, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCSV(path, nil); err == nil || !strings.Contains(err.Error(), movies) {
		t.Errorf("a movies.csv that is none: %v", err)
	}
}

func TestLimit(t *testing.T) {
	rs := []rating.Rating{{User: 1}, {User: 2}, {User: 3}}
	for n, want := range map[int]int{-1: 3, 0: 3, 1: 1, 3: 3, 9: 3} {
		s := Limit(Ratings(append([]rating.Rating(nil), rs...)), n)
		if s.Total() != want {
			t.Errorf("limit %d: total %d, want %d", n, s.Total(), want)
		}
		if got := len(drain(s)); got != want {
			t.Errorf("limit %d: %d ratings, want %d", n, got, want)
		}
	}
	endless, err := NewSimulator(SimulatorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := Limit(endless, 7)
	if got := len(drain(s)); got != 7 || s.Total() != 7 {
		t.Errorf("an endless source limited to 7 gave %d of %d", got, s.Total())
	}
	if _, known := s.Best(); !known {
		t.Error("a limited simulator lost its best score")
	}
}

func drain(s Source) (rs []rating.Rating) {
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		rs = append(rs, r)
	}
	return rs
}
