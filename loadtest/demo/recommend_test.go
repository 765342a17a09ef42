package demo

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/loadtest/rating"
)

// TestWhoIsRecommendedWhat takes those who rated last and liked some movies and not others, and
// the movies with the most ratings.
func TestWhoIsRecommendedWhat(t *testing.T) {
	var recs []rating.Record
	add := func(user, movie int64, stars float64) {
		recs = append(recs, rating.Record{Rating: rating.Rating{User: user, Movie: movie, Rating: stars}})
	}
	for _, stars := range []float64{5, 5, 1, 1} {
		add(1, 7, stars) // before half time
	}
	for user := int64(2); user <= 6; user++ {
		for i, stars := range []float64{5, 1, 5, 1} {
			if user == 4 {
				stars = 5 // likes all
			}
			add(user, 10+int64(i)*user%2, stars)
		}
	}
	if got := lastUsers(recs, 4); !slices.Equal(got, []int64{6, 5, 3}) {
		t.Errorf("users %v, want the last ones with two liked and two disliked movies: 6, 5, 3", got)
	}
	if got := lastUsers(recs[:4], 4); len(got) != 0 {
		t.Errorf("nobody rated behind half time, yet %v", got)
	}
	if got := mostRated(recs); !slices.Equal(got, []int64{10, 7, 11}) && !slices.Equal(got, []int64{10, 11, 7}) {
		t.Errorf("movies %v, want the most rated first", got)
	}
}
