package gen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/monolith-go/monolith/loadtest/rating"
)

// SimulatorConfig describes an audience. The zero value of a field is its default.
type SimulatorConfig struct {
	Seed  uint64 // the same seed is the same ratings, on every machine of one architecture
	Count int    // ratings in all; 0: without end

	Users       int     // users there at the start; 300
	Movies      int     // movies there at the start; 600
	NewUser     float64 // chance that a session is a new user's; 0.1
	NewMovie    float64 // chance, per rating, that a movie opens; 0.01
	Session     float64 // mean number of ratings a user gives in a row; 20
	Zipf        float64 // exponent of popularity: the k-th most popular movie draws k^-Zipf; 0.9
	Dim         int     // latent dimensions of taste; 4
	Taste       float64 // deviation of the taste term of the log-odds; 0.9
	GenreTaste  float64 // deviation of what a user thinks of one genre, in the log-odds; 0.8
	DecadeTaste float64 // deviation of what a user thinks of one decade, likewise; 0.4
	UserBias    float64 // deviation of a user's generosity in the log-odds; 1.2
	MovieBias   float64 // deviation of a movie's quality in the log-odds; 1.2
	MovieDrift  float64 // ratings of one movie after which its quality is mostly forgotten; 300
	UserDrift   float64 // ratings of one user after which its tastes are mostly forgotten; 100
	Start       int64   // first timestamp; 1600000000
	SecondsEach float64 // mean seconds between two ratings; 30
}

func (c SimulatorConfig) withDefaults() SimulatorConfig {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Users == 0 {
		c.Users = 300
	}
	if c.Movies == 0 {
		c.Movies = 600
	}
	if c.Dim == 0 {
		c.Dim = 4
	}
	if c.Start == 0 {
		c.Start = 1_600_000_000
	}
	def(&c.NewUser, 0.1)
	def(&c.NewMovie, 0.01)
	def(&c.Session, 20)
	def(&c.Zipf, 0.9)
	def(&c.Taste, 0.9)
	def(&c.GenreTaste, 0.8)
	def(&c.DecadeTaste, 0.4)
	def(&c.UserBias, 1.2)
	def(&c.MovieBias, 1.2)
	def(&c.MovieDrift, 300)
	def(&c.UserDrift, 100)
	def(&c.SecondsEach, 30)
	return c
}

// Validate reports the first setting that describes no audience.
func (c SimulatorConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Count < 0, c.Users < 1, c.Movies < 1, c.Dim < 1:
		return fmt.Errorf("simulator: count %d must not be negative; users %d, movies %d and dimensions %d must be at least 1", c.Count, c.Users, c.Movies, c.Dim)
	case !(c.NewUser > 0 && c.NewUser <= 1), !(c.NewMovie > 0 && c.NewMovie <= 1):
		return fmt.Errorf("simulator: the chances of a new user (%v) and movie (%v) must lie in (0, 1]", c.NewUser, c.NewMovie)
	case !(c.Session >= 1), !(c.Zipf > 0), !(c.MovieDrift > 0), !(c.UserDrift > 0), !(c.SecondsEach > 0):
		return fmt.Errorf("simulator: session %v must be at least 1; zipf %v, drifts %v and %v and seconds %v must be positive", c.Session, c.Zipf, c.MovieDrift, c.UserDrift, c.SecondsEach)
	case !(c.Taste >= 0), !(c.GenreTaste >= 0), !(c.DecadeTaste >= 0), !(c.UserBias >= 0), !(c.MovieBias >= 0):
		return fmt.Errorf("simulator: the deviations %v, %v, %v, %v and %v must not be negative", c.Taste, c.GenreTaste, c.DecadeTaste, c.UserBias, c.MovieBias)
	}
	return nil
}

// being is a user or a movie: a bias and a place in the space of tastes. Both drift
// as a stationary first-order process: forgetting, and as much fresh noise.
type being struct {
	bias  float64
	place []float64

	genres, decades []float64 // a user's opinions of each, which stay

	of     []int // a movie's genres: where they are in genres
	decade int   // and its decade in decades
}

// Simulator draws each rating from a probability it knows, so the best possible AUC
// of its ratings is known too. Sessions of one user follow each other; users and
// movies join; what users like and how good a movie is thought to be drifts.
type Simulator struct {
	cfg    SimulatorConfig
	rng    *rand.Rand
	users  []being
	movies []being   // in order of popularity rank
	ids    []int64   // movie id by rank
	cum    []float64 // cumulated popularity by rank
	made   int
	user   int                // of the running session
	left   int                // ratings it still gives
	rated  map[int64]struct{} // by movie id
	now    float64
	best   float64
	scale  float64 // of the dot product, so that its deviation is cfg.Taste
	offset float64 // of the log-odds: a little more is liked than not
}

// NewSimulator returns the audience at its beginning.
func NewSimulator(cfg SimulatorConfig) (*Simulator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Simulator{
		cfg:    cfg,
		rng:    rand.New(rand.NewPCG(cfg.Seed, 0x6d6f6e6f6c697468)),
		now:    float64(cfg.Start),
		scale:  cfg.Taste / math.Sqrt(float64(cfg.Dim)),
		offset: 0.1,
	}
	for range cfg.Users {
		s.users = append(s.users, s.newUser())
	}
	for range cfg.Movies {
		s.openMovie()
	}
	return s, nil
}

func (s *Simulator) newBeing(bias float64) being {
	b := being{bias: bias * s.rng.NormFloat64(), place: make([]float64, s.cfg.Dim)}
	for i := range b.place {
		b.place[i] = s.rng.NormFloat64()
	}
	return b
}

func (s *Simulator) newUser() being {
	u := s.newBeing(s.cfg.UserBias)
	u.genres, u.decades = make([]float64, len(rating.Genres)), make([]float64, decades)
	for i := range u.genres {
		u.genres[i] = s.cfg.GenreTaste * s.rng.NormFloat64()
	}
	for i := range u.decades {
		u.decades[i] = s.cfg.DecadeTaste * s.rng.NormFloat64()
	}
	return u
}

func (s *Simulator) newMovie(id int64) being {
	m := s.newBeing(s.cfg.MovieBias)
	about, _ := s.Catalog().Movie(id)
	for _, g := range about.Genres {
		m.of = append(m.of, int(rating.GenreID(g)-1))
	}
	m.decade = (about.Year - firstYear) / 10
	return m
}

// opinion is what the user thinks of movies such as m, whichever it is.
func opinion(u, m *being) float64 {
	sum := 0.0
	for _, g := range m.of {
		sum += u.genres[g]
	}
	return sum/math.Sqrt(float64(len(m.of))) + u.decades[m.decade]
}

// openMovie adds a movie at a random rank: the one that was there moves to the end.
func (s *Simulator) openMovie() {
	n := len(s.movies)
	s.movies = append(s.movies, s.newMovie(int64(n+1)))
	s.ids = append(s.ids, int64(n+1))
	weight := math.Pow(float64(n+1), -s.cfg.Zipf)
	if n > 0 {
		weight += s.cum[n-1]
	}
	s.cum = append(s.cum, weight)
	rank := s.rng.IntN(n + 1)
	s.movies[rank], s.movies[n] = s.movies[n], s.movies[rank]
	s.ids[rank], s.ids[n] = s.ids[n], s.ids[rank]
}

// pickMovie draws a rank by popularity, and avoids what the session rated already.
func (s *Simulator) pickMovie() int {
	rank := 0
	for range 16 {
		at := s.rng.Float64() * s.cum[len(s.cum)-1]
		rank = min(sort.SearchFloat64s(s.cum, at), len(s.cum)-1)
		if _, again := s.rated[s.ids[rank]]; !again {
			break
		}
	}
	return rank
}

func (s *Simulator) drift(b *being, bias, ratings float64) {
	keep := math.Exp(-1 / ratings)
	fresh := math.Sqrt(1 - keep*keep)
	b.bias = keep*b.bias + fresh*bias*s.rng.NormFloat64()
	for i := range b.place {
		b.place[i] = keep*b.place[i] + fresh*s.rng.NormFloat64()
	}
}

// Next draws the next rating.
func (s *Simulator) Next() (rating.Rating, bool) {
	if s.cfg.Count > 0 && s.made == s.cfg.Count {
		return rating.Rating{}, false
	}
	s.made++
	if s.rng.Float64() < s.cfg.NewMovie {
		s.openMovie()
	}
	if s.left == 0 {
		s.left = 1 + int(s.rng.ExpFloat64()*(s.cfg.Session-1))
		s.rated = make(map[int64]struct{}, s.left)
		s.user = s.rng.IntN(len(s.users))
		if s.rng.Float64() < s.cfg.NewUser {
			s.users = append(s.users, s.newUser())
			s.user = len(s.users) - 1
		}
	}
	s.left--
	rank := s.pickMovie()
	s.rated[s.ids[rank]] = struct{}{}

	u, m := &s.users[s.user], &s.movies[rank]
	odds := s.offset + u.bias + m.bias + opinion(u, m)
	for i := range u.place {
		odds += s.scale * u.place[i] * m.place[i]
	}
	s.best = 1 / (1 + math.Exp(-odds))
	stars := 0.5 + 0.5*float64(s.rng.IntN(6)) // 0.5 .. 3.0
	if s.rng.Float64() < s.best {
		stars = rating.Liked + 0.5*float64(s.rng.IntN(4)) // 3.5 .. 5.0
	}
	s.now += s.rng.ExpFloat64() * s.cfg.SecondsEach
	r := rating.Rating{User: int64(s.user + 1), Movie: s.ids[rank], Rating: stars, Timestamp: int64(s.now)}
	s.drift(u, s.cfg.UserBias, s.cfg.UserDrift)
	s.drift(m, s.cfg.MovieBias, s.cfg.MovieDrift)
	return r, true
}

// Best is the probability from which the last rating was drawn.
func (s *Simulator) Best() (float64, bool) { return s.best, s.made > 0 }

// Total is how many ratings will be drawn; 0: without end.
func (s *Simulator) Total() int { return s.cfg.Count }

// SimulatorName tells the streams of two seeds apart.
func SimulatorName(seed uint64) string { return fmt.Sprintf("simulator-%d", seed) }
