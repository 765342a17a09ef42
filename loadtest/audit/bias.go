package audit

import (
	"math"

	"github.com/monolith-go/monolith/loadtest/rating"
)

// biasRate is the learning rate of a Bias, the best of those tried on MovieLens at all lags.
const biasRate = 0.6

// Bias is what a recommender has to beat: one number per user and one per movie, and one for
// all, learnt by Adagrad. It is not safe for concurrent use.
type Bias struct {
	rate          float64
	all           float64
	users, movies map[int64]*weight
}

type weight struct{ w, squares float64 }

// NewBias knows nothing.
func NewBias() *Bias {
	return &Bias{rate: biasRate, users: map[int64]*weight{}, movies: map[int64]*weight{}}
}

func (b *Bias) of(m map[int64]*weight, id int64) *weight {
	w := m[id]
	if w == nil {
		w = &weight{squares: 0.1}
		m[id] = w
	}
	return w
}

// Score is the log-odds that the user likes the movie.
func (b *Bias) Score(user, movie int64) float64 {
	z := b.all
	if w := b.users[user]; w != nil {
		z += w.w
	}
	if w := b.movies[movie]; w != nil {
		z += w.w
	}
	return z
}

// Learn takes a rating in.
func (b *Bias) Learn(r rating.Rating) {
	g := -1 / (1 + math.Exp(-b.Score(r.User, r.Movie)))
	if r.Label() {
		g++
	}
	b.all += 0.01 * g
	for _, w := range [...]*weight{b.of(b.users, r.User), b.of(b.movies, r.Movie)} {
		w.squares += g * g
		w.w += b.rate * g / math.Sqrt(w.squares)
	}
}
