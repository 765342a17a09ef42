package learning

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/replay"
)

// batch is the ratings of a step where nothing else is said.
const batch = 256

// Spaces into which MD5 hashes ids, as parts of as many places as there are ids: the larger lose the part of users
// and movies that the paper's did, 7.7 % and 2.9 %; in the others a third and a sixth are lost.
var spaces = []struct {
	name          string
	users, movies float64
}{{"hashed as in the paper", 6.1, 17}, {"hashed into few", 1.2, 2.8}}

// CollisionsResult is the AUC on a held-out fifth by epoch.
type CollisionsResult struct {
	Epochs int             `json:"epochs"`
	Arms   []CollisionsArm `json:"arms"` // the first has no collisions
}

// CollisionsArm is one way to find an id's row.
type CollisionsArm struct {
	Name   string      `json:"name"`
	Users  float64     `json:"users_lost"`  // the part of ids that share a row with another before them
	Movies float64     `json:"movies_lost"` // means over the seeds
	AUC    []Estimate  `json:"auc"`         // by epoch
	Loss   []Estimate  `json:"loss"`        // of AUC to the first arm, seed by seed
	BySeed [][]float64 `json:"by_seed"`     // by epoch
}

// Collisions learns DeepFM on ratings of which a fifth, drawn by the seed, is held out.
func Collisions(ctx context.Context, recs []rating.Record, seeds, epochs int) (*CollisionsResult, error) {
	res := &CollisionsResult{Epochs: epochs, Arms: make([]CollisionsArm, 1+len(spaces))}
	res.Arms[0].Name = "a row for each id"
	for i, s := range spaces {
		res.Arms[1+i].Name = s.name
	}
	for i := range res.Arms {
		res.Arms[i].BySeed = make([][]float64, epochs)
	}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		train, test := split(recs, seed)
		for i := range res.Arms {
			a := &res.Arms[i]
			in, out := train, test
			if i > 0 {
				users, movies := hashing(recs, seed, spaces[i-1].users, spaces[i-1].movies)
				in, out = rehashed(train, users, movies), rehashed(test, users, movies)
				a.Users += lost(users) / float64(seeds)
				a.Movies += lost(movies) / float64(seeds)
			}
			got, err := byEpoch(ctx, in, out, seed, epochs)
			if err != nil {
				return nil, err
			}
			for e, auc := range got {
				a.BySeed[e] = append(a.BySeed[e], auc)
			}
		}
	}
	for i := range res.Arms {
		for e, bySeed := range res.Arms[i].BySeed {
			res.Arms[i].AUC = append(res.Arms[i].AUC, NewEstimate(bySeed))
			if i > 0 {
				res.Arms[i].Loss = append(res.Arms[i].Loss, NewEstimate(Differences(res.Arms[0].BySeed[e], bySeed)))
			}
		}
	}
	return res, nil
}

// split draws a fifth of the ratings.
func split(recs []rating.Record, seed uint64) (train, test []rating.Record) {
	rng := rand.New(rand.NewPCG(seed, 5))
	for _, r := range recs {
		if rng.IntN(5) == 0 {
			test = append(test, r)
		} else {
			train = append(train, r)
		}
	}
	return train, test
}

// hashing is where the ids of users and of movies go.
func hashing(recs []rating.Record, seed uint64, ofUsers, ofMovies float64) (users, movies map[int64]int64) {
	users, movies = map[int64]int64{}, map[int64]int64{}
	for _, r := range recs {
		users[r.User], movies[r.Movie] = 0, 0
	}
	for kind, ids := range []map[int64]int64{users, movies} {
		size := uint64([]float64{ofUsers, ofMovies}[kind] * float64(len(ids)))
		for id := range ids {
			sum := md5.Sum(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seed), uint64(id)))
			ids[id] = int64(binary.LittleEndian.Uint64(sum[:]) % size)
		}
	}
	return users, movies
}

// lost is the part of ids that have no row of their own.
func lost(ids map[int64]int64) float64 {
	rows := map[int64]bool{}
	for _, row := range ids {
		rows[row] = true
	}
	return 1 - float64(len(rows))/float64(len(ids))
}

func rehashed(recs []rating.Record, users, movies map[int64]int64) []rating.Record {
	all := slices.Clone(recs)
	for i := range all {
		all[i].User, all[i].Movie = users[all[i].User], movies[all[i].Movie]
	}
	return all
}

// byEpoch is the AUC on test after each epoch of train, shuffled each time.
func byEpoch(ctx context.Context, train, test []rating.Record, seed uint64, epochs int) (all []float64, err error) {
	spec, err := ready("deepfm", seed)
	if err != nil {
		return nil, err
	}
	l, err := replay.New(spec, batch)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 7))
	train = slices.Clone(train)
	for range epochs {
		rng.Shuffle(len(train), func(i, j int) { train[i], train[j] = train[j], train[i] })
		for step := range slices.Chunk(train, batch) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if _, err := l.Learn(step...); err != nil {
				return nil, err
			}
		}
		var scores []float64
		for some := range slices.Chunk(test, batch) {
			s, err := l.Score(some...)
			if err != nil {
				return nil, err
			}
			for _, x := range s {
				scores = append(scores, float64(x))
			}
		}
		all = append(all, eval.AUC(scores, liked(test)))
	}
	return all, nil
}
