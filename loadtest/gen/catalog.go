package gen

import (
	"math/rand/v2"

	"github.com/monolith-go/monolith/loadtest/rating"
)

// simulated is the catalog of a simulator. A movie depends on the seed and its id alone, so
// whoever asks, and whenever, hears the same.
type simulated struct{ seed uint64 }

const (
	firstYear = 1950
	lastYear  = 2019
	decades   = (lastYear - firstYear + 1) / 10
)

// kinds are how many of a hundred movies have how many genres.
var kinds = [...]int{1: 40, 2: 40, 3: 20}

var (
	titleFirst = []string{"Silent", "Crimson", "Hidden", "Golden", "Broken", "Distant", "Endless", "Frozen", "Burning", "Secret", "Lost", "Wild",
		"Quiet", "Paper", "Midnight", "Northern", "Hollow", "Restless", "Velvet", "Second", "Electric", "Stolen", "Perfect", "Borrowed"}
	titleSecond = []string{"Harbor", "Garden", "Witness", "River", "Promise", "Mirror", "Highway", "Orchestra", "Winter", "Stranger", "Castle", "Letter",
		"Summer", "Horizon", "Kingdom", "Shadow", "Carnival", "Island", "Detective", "Voyage", "Machine", "Wedding", "Frontier", "Lullaby"}
)

func (c simulated) Movie(id int64) (rating.Movie, bool) {
	if id < 1 {
		return rating.Movie{}, false
	}
	rng := rand.New(rand.NewPCG(c.seed, uint64(id)))
	m := rating.Movie{
		Title: titleFirst[rng.IntN(len(titleFirst))] + " " + titleSecond[rng.IntN(len(titleSecond))],
		Year:  firstYear + rng.IntN(lastYear-firstYear+1),
	}
	n, at := 1, rng.IntN(100)
	for at >= kinds[n] {
		at -= kinds[n]
		n++
	}
	for _, g := range rng.Perm(len(rating.Genres))[:n] {
		m.Genres = append(m.Genres, rating.Genres[g])
	}
	return m, true
}

// Catalog knows the simulated movies, those that have not opened yet among them.
func (s *Simulator) Catalog() rating.Catalog { return simulated{s.cfg.Seed} }
