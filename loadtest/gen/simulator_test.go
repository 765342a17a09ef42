package gen

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/loadtest/rating"
)

func simulate(t *testing.T, cfg SimulatorConfig) (rs []rating.Rating, best []float64) {
	t.Helper()
	s, err := NewSimulator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, ok := s.Next()
		if !ok {
			return rs, best
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("rating %d: %v", len(rs), err)
		}
		p, known := s.Best()
		if !known {
			t.Fatalf("rating %d: the true probability is unknown", len(rs))
		}
		rs, best = append(rs, r), append(best, p)
	}
}

// learner is a small factorization machine trained by SGD: what it can learn, the
// real model can too.
type learner struct {
	rate  float64
	users map[int64]*[5]float64 // bias and four factors
	films map[int64]*[5]float64
	draw  uint64
}

func (l *learner) row(m map[int64]*[5]float64, id int64) *[5]float64 {
	v := m[id]
	if v == nil {
		v = new([5]float64)
		for i := 1; i < 5; i++ {
			l.draw = l.draw*6364136223846793005 + 1442695040888963407
			v[i] = (float64(l.draw>>40)/(1<<24) - 0.5) * 0.2
		}
		m[id] = v
	}
	return v
}

func (l *learner) score(r rating.Rating) float64 {
	u, m := l.row(l.users, r.User), l.row(l.films, r.Movie)
	odds := u[0] + m[0]
	for i := 1; i < 5; i++ {
		odds += u[i] * m[i]
	}
	return 1 / (1 + math.Exp(-odds))
}

func (l *learner) learn(r rating.Rating) {
	g := -l.score(r)
	if r.Label() {
		g++
	}
	g *= l.rate
	u, m := l.row(l.users, r.User), l.row(l.films, r.Movie)
	u[0] += g
	m[0] += g
	for i := 1; i < 5; i++ {
		u[i], m[i] = u[i]+g*m[i], m[i]+g*u[i]
	}
}

func TestOnlineBeatsFrozenBelowBest(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		rs, best := simulate(t, SimulatorConfig{Seed: seed, Count: 60_000})
		online := &learner{rate: 0.15, users: map[int64]*[5]float64{}, films: map[int64]*[5]float64{}}
		frozen := &learner{rate: 0.15, users: map[int64]*[5]float64{}, films: map[int64]*[5]float64{}}
		var so, sf, sb []float64
		var labels []bool
		for i, r := range rs {
			if i >= len(rs)/2 {
				so, sf, sb = append(so, online.score(r)), append(sf, frozen.score(r)), append(sb, best[i])
				labels = append(labels, r.Label())
			} else {
				frozen.learn(r)
			}
			online.learn(r)
		}
		ao, af, ab := eval.AUC(so, labels), eval.AUC(sf, labels), eval.AUC(sb, labels)
		t.Logf("seed %d: online %.3f, frozen %.3f, best possible %.3f", seed, ao, af, ab)
		if ao < af+0.05 {
			t.Errorf("seed %d: online %.3f does not beat frozen %.3f by 0.05: tastes drift too slowly", seed, ao, af)
		}
		if ao >= ab {
			t.Errorf("seed %d: a learner reached %.3f, above the best possible %.3f", seed, ao, ab)
		}
		if ao < 0.70 {
			t.Errorf("seed %d: online %.3f: the simulated tastes cannot be learnt", seed, ao)
		}
	}
}

func TestBestIsCalibrated(t *testing.T) {
	rs, best := simulate(t, SimulatorConfig{Seed: 7, Count: 50_000})
	var n, liked, sum [10]float64
	for i, r := range rs {
		b := min(int(best[i]*10), 9)
		n[b]++
		sum[b] += best[i]
		if r.Label() {
			liked[b]++
		}
	}
	for b := range n {
		if n[b] < 500 {
			continue
		}
		p := sum[b] / n[b]
		bound := 4 * math.Sqrt(p*(1-p)/n[b])
		if got := liked[b] / n[b]; math.Abs(got-p) > bound {
			t.Errorf("of %v ratings with probability about %.3f, %.3f are liked (more than %.3f away)", n[b], p, got, bound)
		}
	}
}

func TestSimulatorIsDeterministic(t *testing.T) {
	a, _ := simulate(t, SimulatorConfig{Seed: 5, Count: 2000})
	b, _ := simulate(t, SimulatorConfig{Seed: 5, Count: 2000})
	other, _ := simulate(t, SimulatorConfig{Seed: 6, Count: 2000})
	same := 0
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("rating %d differs under the same seed: %+v and %+v", i, a[i], b[i])
		}
		if a[i] == other[i] {
			same++
		}
	}
	if same > 10 {
		t.Errorf("seeds 5 and 6 share %d of 2000 ratings", same)
	}
	// Pinned, so that a change of the simulator is seen: reports name only the seed.
	if got, want := string(a[1999].AppendJSON(nil)), `{"userId":136,"movieId":152,"rating":4.5,"timestamp":1600061492}`; got != want {
		t.Errorf("rating 1999 of seed 5 is %s, want %s", got, want)
	}
}

func TestAudienceGrowsAndIsUneven(t *testing.T) {
	rs, _ := simulate(t, SimulatorConfig{Seed: 9, Count: 20_000})
	count := map[int64]int{}
	firstHalfUser, lateUsers, lateMovies := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	for i, r := range rs {
		if i > 0 && r.Timestamp < rs[i-1].Timestamp {
			t.Fatalf("rating %d goes back in time", i)
		}
		count[r.Movie]++
		if i < len(rs)/2 {
			firstHalfUser[r.User] = true
		} else if !firstHalfUser[r.User] && r.User > 300 {
			lateUsers[r.User] = true
		}
		if r.Movie > 600 {
			lateMovies[r.Movie] = true
		}
	}
	if len(lateUsers) < 20 || len(lateMovies) < 50 {
		t.Errorf("%d new users in the second half and %d new movies: the audience does not grow", len(lateUsers), len(lateMovies))
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	if mean := len(rs) / len(count); most < 10*mean {
		t.Errorf("the most rated movie has %d ratings, the mean is %d: popularity is even", most, mean)
	}
}

// TestGenresMatter holds the catalog to what is simulated: who likes a genre now will like it
// next time.
func TestGenresMatter(t *testing.T) {
	const n = 60_000
	s, err := NewSimulator(SimulatorConfig{Seed: 3, Count: n, NewMovie: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	type pair struct{ user, genre int64 }
	sum := map[pair]float64{} // of what was liked beyond the user's own average
	mean, count := map[int64]float64{}, map[int64]float64{}
	var scores []float64
	var labels []bool
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		m, ok := s.Catalog().Movie(r.Movie)
		if !ok || m.Title == "" || m.Year < firstYear || m.Year > lastYear || len(m.Genres) < 1 || len(m.Genres) > 3 {
			t.Fatalf("movie %d is %+v, %t", r.Movie, m, ok)
		}
		liked := 0.0
		if r.Label() {
			liked = 1
		}
		score := 0.0
		for _, g := range m.Genres {
			score += sum[pair{r.User, rating.GenreID(g)}]
		}
		scores, labels = append(scores, score), append(labels, r.Label())
		beyond := liked - (mean[r.User]+1)/(count[r.User]+2)
		for _, g := range m.Genres {
			sum[pair{r.User, rating.GenreID(g)}] += beyond
		}
		mean[r.User], count[r.User] = mean[r.User]+liked, count[r.User]+1
	}
	if auc := eval.AUC(scores[n/2:], labels[n/2:]); auc < 0.55 {
		t.Errorf("what a user thought of the genres tells its next ratings with AUC %.3f: genres do not matter", auc)
	}
}

func TestSimulatorRefuses(t *testing.T) {
	for name, cfg := range map[string]SimulatorConfig{
		"negative count": {Count: -1},
		"no users":       {Users: -1},
		"chance":         {NewUser: 1.5},
		"not a number":   {Session: math.NaN()},
		"deviation":      {Taste: -1},
	} {
		if _, err := NewSimulator(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
