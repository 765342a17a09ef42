package demo

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

const (
	recommendUsers      = 3
	recommendPicks      = 10
	recommendCandidates = 300 // the most rated movies
	recommendRated      = 8   // latest ratings of a user that are told of
)

// recommend asks the model server what it would recommend a few users: the copy of half time with
// their history before their latest ratings, and the model with their history now.
func (d *driver) recommend(ctx context.Context, c *scenario.Client) error {
	recs, err := d.records()
	if err != nil {
		return err
	}
	popular := mostRated(recs)
	for _, user := range lastUsers(recs, d.learning.half) {
		u := &asking{driver: d, client: c, user: user, recs: recs}
		x, err := u.recommendation(ctx, popular)
		if err != nil {
			return fmt.Errorf("recommend to user %d: %w", user, err)
		}
		d.report.Recommendations = append(d.report.Recommendations, *x)
	}
	return nil
}

// mostRated are the movies with the most ratings, most first.
func mostRated(recs []rating.Record) []int64 {
	n := map[int64]int{}
	var ids []int64
	for _, r := range recs {
		if n[r.Movie]++; n[r.Movie] == 1 {
			ids = append(ids, r.Movie)
		}
	}
	slices.SortStableFunc(ids, func(a, b int64) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) })
	return ids[:min(len(ids), recommendCandidates)]
}

// lastUsers are those who rated last, of those with enough ratings behind half time that liked
// some movies and not others.
func lastUsers(recs []rating.Record, half int) (users []int64) {
	liked, disliked := map[int64]int{}, map[int64]int{}
	for i, r := range slices.Backward(recs) {
		if i < half {
			break
		}
		count := disliked
		if r.Label() {
			count = liked
		}
		if count[r.User]++; count[r.User] == 2 && liked[r.User] >= 2 && disliked[r.User] >= 2 {
			if users = append(users, r.User); len(users) == recommendUsers {
				break
			}
		}
	}
	return users
}

// asking is one user's recommendations.
type asking struct {
	*driver
	client *scenario.Client
	user   int64
	recs   []rating.Record
}

// candidate is a movie by its log-odds.
type candidate struct {
	movie               int64
	before, middle, now float64 // middle: by the model of now with the history of before
	wasAt               int     // place before, from 1
}

func (u *asking) recommendation(ctx context.Context, popular []int64) (*report.Recommendation, error) {
	mine := map[int64]bool{}
	var latest []rating.Record // latest first
	for i, r := range slices.Backward(u.recs) {
		if r.User != u.user {
			continue
		}
		mine[r.Movie] = true
		if i >= u.learning.half && len(latest) < recommendRated {
			latest = append(latest, r)
		}
	}
	before := latest[len(latest)-1].Features // known before the first of the latest
	past := rating.NewHistory(u.source.Catalog())
	for _, r := range u.recs {
		past.Add(r.Rating)
	}
	now := past.Of(u.user, 0, latest[0].Timestamp)
	var all []candidate
	for _, m := range popular {
		if !mine[m] {
			all = append(all, candidate{movie: m})
		}
	}
	x := &report.Recommendation{User: u.user}
	for _, r := range latest {
		title, about := u.titled(r.Movie)
		x.Rated = append(x.Rated, report.Stars{Title: title, About: about, Stars: r.Rating.Rating, Liked: r.Label()})
	}
	if len(all) == 0 {
		return x, nil
	}
	for _, ask := range []struct {
		model   string
		history rating.Features
		set     func(c *candidate, odds float64)
	}{
		{u.frozen, before, func(c *candidate, odds float64) { c.before = odds }},
		{u.spec.GetName(), before, func(c *candidate, odds float64) { c.middle = odds }},
		{u.spec.GetName(), now, func(c *candidate, odds float64) { c.now = odds }},
	} {
		scores, err := u.scores(ctx, ask.model, all, ask.history, past, latest[0].Timestamp)
		if err != nil {
			return nil, err
		}
		for i, s := range scores {
			s = min(max(s, 1e-6), 1-1e-6)
			ask.set(&all[i], math.Log(s/(1-s)))
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.before, a.before) })
	for i := range all {
		all[i].wasAt = i + 1
	}
	for _, c := range all[:min(len(all), recommendPicks)] {
		x.Before = append(x.Before, u.pick(c, c.before, false))
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.now, a.now) })
	for _, c := range all[:min(len(all), recommendPicks)] {
		x.After = append(x.After, u.pick(c, c.now, true))
	}
	return x, nil
}

// scores asks for all candidates at once, with what is known of each and the user's history.
func (u *asking) scores(ctx context.Context, model string, all []candidate, history rating.Features, past *rating.History, at int64) ([]float64, error) {
	recs := make([]rating.Record, len(all))
	for i, c := range all {
		f := past.Of(0, c.movie, at)
		f.Liked, f.Disliked, f.Recent, f.Mood, f.Streak = history.Liked, history.Disliked, history.Recent, history.Mood, history.Streak
		recs[i] = rating.Record{Rating: rating.Rating{User: u.user, Movie: c.movie, Timestamp: at}, Features: f}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return u.client.Score(ctx, u.inputs, model, "", recs)
}

func (u *asking) pick(c candidate, odds float64, after bool) report.Pick {
	p := report.Pick{Score: report.Figure(1 / (1 + math.Exp(-odds)))}
	p.Title, p.About = u.titled(c.movie)
	if after {
		p.Was, p.Learnt, p.History = c.wasAt, report.Figure(c.middle-c.before), report.Figure(c.now-c.middle)
	}
	return p
}

// titled is a movie as a person knows it.
func (d *driver) titled(movie int64) (title, about string) {
	if catalog := d.source.Catalog(); catalog != nil {
		if m, ok := catalog.Movie(movie); ok {
			about = strings.Join(m.Genres, ", ")
			if m.Year > 0 {
				about = strings.TrimSuffix(fmt.Sprintf("%d, %s", m.Year, about), ", ")
			}
			return m.Title, about
		}
	}
	return fmt.Sprintf("movie %d", movie), ""
}
