// Package planted makes ratings that follow a rule, for tests of whether a ready model learns. By every rule but
// LR's own, who rates and what is rated say nothing each by itself: a table of biases stays at an AUC of 0.5.
package planted

import "math/rand/v2"

const users, movies = 30, 40

// Rating is one, with what is known before it.
type Rating struct {
	User, Movie int64
	Liked       []int64 // movies; may be empty
	Stars       float64 // 3.5 and more is liked, 4.5 and more loved
}

// Draw makes a rating by the rule for a ready model, by the name of its file without ".yaml".
func Draw(r *rand.Rand, name string) Rating {
	x := Rating{User: 1 + r.Int64N(users), Movie: 1 + r.Int64N(movies)}
	likes := false
	switch name {
	case "lr": // half of the users like much, half of the movies are liked
		likes = r.Float64() < []float64{0.1, 0.5, 0.9}[x.User%2+x.Movie%2]
	case "din": // what is of the group of any movie that was liked
		for range r.IntN(4) {
			x.Liked = append(x.Liked, 1+r.Int64N(movies))
		}
		for _, m := range x.Liked {
			likes = likes || m%4 == x.Movie%4
		}
	case "dien": // what is of the half of the movie at the end of the list; those before are noise
		for range 1 + r.IntN(4) {
			x.Liked = append(x.Liked, 1+r.Int64N(movies))
		}
		likes = x.Liked[len(x.Liked)-1]%2 == x.Movie%2
	default: // one half of the users likes what the other dislikes
		likes = (x.User+x.Movie)%2 == 0
	}
	switch {
	case !likes:
		x.Stars = 2
	case x.Movie/2%2 == 0:
		x.Stars = 4
	default:
		x.Stars = 5
	}
	return x
}

// IDs are those of a field of the record.
func (x Rating) IDs(field string) []int64 {
	switch field {
	case "userId":
		return []int64{x.User}
	case "movieId":
		return []int64{x.Movie}
	case "liked":
		return x.Liked
	}
	return nil
}
