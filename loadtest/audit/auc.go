package audit

import (
	"math"
	"strconv"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// AUCs are the learning figures recomputed.
type AUCs struct {
	Online, Frozen, Best float64 // NaN: unknown
	Scored               int64   // ratings with an online score
	Compared             int64   // behind the figures
	Missing              int64   // ratings whose record names a request without impression
}

// Source is the ratings as they were read; nil when they are not to be had again.
type Source interface {
	Next() (rating.Rating, bool)
	Best() (float64, bool)
}

// joined is a rating of the second half with what was said of it beforehand; NaN: nothing.
type joined struct {
	index                int
	liked                bool
	online, frozen, best float64
	asked                int64 // when online was answered, Unix microseconds
}

// Learning joins the ratings that the stream sent with the impressions of the two
// models, and computes the AUC of the ratings from index half on, as the report does:
// over those that both models scored, or the online one when nothing is frozen. best
// (nil: unknown) is the true probability by index.
func Learning(t *Topic, s *Scores, stream, model, frozen string, half int, best func(index int) (float64, bool)) AUCs {
	all, out := join(t, s, stream, model, frozen, half, best)
	var online, cold, ideal []float64
	var kept []bool
	anyFrozen, anyBest := false, false
	for _, x := range all {
		anyFrozen, anyBest = anyFrozen || !math.IsNaN(x.frozen), anyBest || !math.IsNaN(x.best)
		online, cold, ideal, kept = append(online, x.online), append(cold, x.frozen), append(ideal, x.best), append(kept, x.liked)
	}
	out.Compared = int64(len(kept))
	out.Online, out.Frozen, out.Best = eval.AUC(online, kept), math.NaN(), math.NaN()
	if anyFrozen {
		out.Frozen = eval.AUC(cold, kept)
	}
	if anyBest {
		out.Best = eval.AUC(ideal, kept)
	}
	return out
}

// join finds the ratings of the second half that were scored, and by the frozen copy too where
// there is one. It counts what was scored, and what left no impression, of the whole stream.
func join(t *Topic, s *Scores, stream, model, frozen string, half int, best func(index int) (float64, bool)) (kept []joined, out AUCs) {
	anyFrozen := false
	var all []joined
	for _, rec := range t.Records {
		index, r, ok := rated(rec, stream)
		if !ok {
			continue
		}
		x := joined{index: index, liked: r.Label(), online: math.NaN(), frozen: math.NaN(), best: math.NaN()}
		key, asked := impression.KeyOf(rec.Headers)
		if asked {
			if v, ok := s.answers.Answer(impression.Of{Model: model}, key); ok {
				x.online, x.asked = v.Score, v.TimeUS
				out.Scored++
			} else {
				out.Missing++
			}
		}
		if index < half {
			continue
		}
		if v, ok := s.answers.Answer(impression.Of{Model: frozen}, key); ok && frozen != "" && asked {
			x.frozen = v.Score
		} else if v, ok := s.byPair[pair{frozen, r.User, r.Movie}]; ok && frozen != "" {
			x.frozen = v // scored afterwards under another request, see scenario.Scores.Backfill
		}
		if best != nil {
			if p, ok := best(index); ok {
				x.best = p
			}
		}
		anyFrozen = anyFrozen || !math.IsNaN(x.frozen)
		all = append(all, x)
	}
	for _, x := range all {
		if !math.IsNaN(x.online) && !(anyFrozen && math.IsNaN(x.frozen)) {
			kept = append(kept, x)
		}
	}
	return kept, out
}

// rated reads a record of the stream.
func rated(rec kafka.Record, stream string) (index int, r rating.Rating, ok bool) {
	if rec.Headers[rating.HeaderStream] != stream {
		return 0, r, false
	}
	r, err := rating.Decode(rec.Value)
	index, ierr := strconv.Atoi(rec.Headers[rating.HeaderIndex])
	return index, r, err == nil && ierr == nil
}
