package audit

import (
	"math"
	"strconv"

	"github.com/monolith-go/monolith/internal/model/eval"
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

// Learning joins the ratings that the stream sent with the impressions of the two
// models, and computes the AUC of the ratings from index half on, as the report does:
// over those that both models scored, or the online one when nothing is frozen. best
// (nil: unknown) is the true probability by index.
func Learning(t *Topic, s *Scores, stream, model, frozen string, half int, best func(index int) (float64, bool)) AUCs {
	type scored struct{ online, frozen, best float64 }
	var all []scored
	var labels []bool
	var out AUCs
	anyFrozen, anyBest := false, false
	for _, rec := range t.Records {
		if rec.Headers[rating.HeaderStream] != stream {
			continue
		}
		r, err := rating.Decode(rec.Value)
		index, ierr := strconv.Atoi(rec.Headers[rating.HeaderIndex])
		if err != nil || ierr != nil {
			continue
		}
		x := scored{math.NaN(), math.NaN(), math.NaN()}
		id := rec.Headers[rating.HeaderRequest]
		position, perr := strconv.Atoi(rec.Headers[rating.HeaderPosition])
		if id != "" && perr == nil {
			if v, ok := s.byRequest[request{model, id, position}]; ok {
				x.online = v
				out.Scored++
			} else {
				out.Missing++
			}
		}
		if index < half {
			continue
		}
		if v, ok := s.byRequest[request{frozen, id, position}]; ok && frozen != "" && id != "" && perr == nil {
			x.frozen = v
		} else if v, ok := s.byPair[pair{frozen, r.User, r.Movie}]; ok && frozen != "" {
			x.frozen = v // it never changes, so any answer about the pair is the answer
		}
		if best != nil {
			if p, ok := best(index); ok {
				x.best = p
			}
		}
		anyFrozen = anyFrozen || !math.IsNaN(x.frozen)
		anyBest = anyBest || !math.IsNaN(x.best)
		all, labels = append(all, x), append(labels, r.Label())
	}
	var online, cold, ideal []float64
	var kept []bool
	for i, x := range all {
		if math.IsNaN(x.online) || anyFrozen && math.IsNaN(x.frozen) {
			continue
		}
		online, cold, ideal, kept = append(online, x.online), append(cold, x.frozen), append(ideal, x.best), append(kept, labels[i])
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
