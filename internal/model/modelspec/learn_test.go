package modelspec_test

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/modelspec/modelspectest"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/densetest"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// example is one record of the movie-ranking model.
type example struct {
	user, movie int64
	label       float32
}

// learner is a whole model in one place.
type learner struct {
	spec   *model.ModelSpec
	tables []*table.Table // by feature
	params [][]float32
	slots  [][]float32
	tower  *densetest.Tower
	opt    optim.Optimizer
	ws     densetest.Workspace
	x      []float32
}

// step is what one batch changes.
type step struct {
	ids   [2][]int64
	rows  [2][]float32
	dense [][]float32
	last  int // index of the batch's last example
}

func newLearner(t testing.TB, spec *model.ModelSpec) *learner {
	t.Helper()
	l := &learner{spec: spec, opt: modelspec.DenseOptimizer(spec)}
	for _, f := range spec.Features {
		tab, err := modelspec.NewTable(spec, f.Table)
		if err != nil {
			t.Fatal(err)
		}
		l.tables = append(l.tables, tab)
	}
	for _, v := range modelspec.Variables(spec) {
		l.params = append(l.params, modelspec.InitVariable(spec, v))
		slots := make([]float32, l.opt.SlotSize(v.Size))
		l.opt.InitSlots(slots)
		l.slots = append(l.slots, slots)
	}
	var err error
	if l.tower, err = modelspectest.NewTower(spec); err != nil {
		t.Fatal(err)
	}
	return l
}

// logits looks up and computes a batch.
func (l *learner) logits(t testing.TB, batch []example) []float32 {
	t.Helper()
	l.x = l.x[:0]
	for _, e := range batch {
		for i, id := range []int64{e.user, e.movie} {
			dim := l.tables[i].Dim()
			l.x = append(l.x, make([]float32, dim)...)
			fid := modelspec.FID(l.spec.Features[i].Slot, id)
			if _, err := l.tables[i].Lookup([]int64{fid}, l.x[len(l.x)-dim:], nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := l.tower.Forward(l.params, l.x, len(batch), &l.ws)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gradients is a batch's step, not applied yet.
func (l *learner) gradients(t testing.TB, batch []example) step {
	t.Helper()
	logits := l.logits(t, batch)
	labels, dlogits := make([]float32, len(batch)), make([]float32, len(batch))
	for i, e := range batch {
		labels[i] = e.label
	}
	densetest.SigmoidCrossEntropy(logits, labels, dlogits)
	s := step{}
	for _, p := range l.params {
		s.dense = append(s.dense, make([]float32, len(p)))
	}
	dx := make([]float32, len(l.x))
	if err := l.tower.Backward(l.params, &l.ws, dlogits, s.dense, dx); err != nil {
		t.Fatal(err)
	}
	for b, e := range batch {
		for i, id := range []int64{e.user, e.movie} {
			dim := l.tables[i].Dim()
			s.ids[i] = append(s.ids[i], modelspec.FID(l.spec.Features[i].Slot, id))
			at := b*l.tower.In() + i*dim
			s.rows[i] = append(s.rows[i], dx[at:at+dim]...)
		}
	}
	return s
}

func (l *learner) apply(t testing.TB, s step) {
	t.Helper()
	for i, tab := range l.tables {
		if err := tab.Optimize(s.ids[i], s.rows[i], 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range s.dense {
		l.opt.Update(l.params[i], l.slots[i], g, optim.Step{})
	}
}

// progressive trains on examples in order and returns, per lag, the AUC over those from
// `from` on, each predicted before it is learnt with the parameters of lag examples ago.
func progressive(t testing.TB, spec *model.ModelSpec, examples []example, batch, from int, lags ...int) []float64 {
	t.Helper()
	head := newLearner(t, spec)
	behind := make([]*learner, len(lags))
	for i := range behind {
		behind[i] = newLearner(t, spec)
	}
	next := make([]int, len(lags)) // steps applied
	var steps []step
	scores := make([][]float32, len(lags))
	for at := 0; at < len(examples); at += batch {
		now := examples[at:min(at+batch, len(examples))]
		for i, l := range behind {
			for next[i] < len(steps) && steps[next[i]].last+lags[i] < at {
				l.apply(t, steps[next[i]])
				next[i]++
				if done := slices.Min(next); done > 0 {
					steps[done-1] = step{} // every copy has it
				}
			}
			scores[i] = append(scores[i], l.logits(t, now)...)
		}
		s := head.gradients(t, now)
		s.last = at + len(now) - 1
		head.apply(t, s)
		steps = append(steps, s)
	}
	aucs := make([]float64, len(lags))
	for i := range aucs {
		aucs[i] = auc(scores[i][from:], examples[from:])
	}
	return aucs
}

// auc is the chance that a random positive scores above a random negative.
func auc(scores []float32, examples []example) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	var rankSum, pos float64
	for lo := 0; lo < len(order); {
		hi := lo
		for hi < len(order) && scores[order[hi]] == scores[order[lo]] {
			hi++
		}
		for _, i := range order[lo:hi] {
			if examples[i].label > 0 {
				rankSum += float64(lo+hi+1) / 2
				pos++
			}
		}
		lo = hi
	}
	return (rankSum - pos*(pos+1)/2) / (pos * (float64(len(scores)) - pos))
}

// tastes draws examples whose best possible AUC is well below 1: how generous a user is,
// how good a movie is and what the user likes about it decide, and then a coin.
func tastes(seed uint64, n int) []example {
	r := rand.New(rand.NewPCG(seed, 0))
	draw := func() [][3]float64 {
		vs := make([][3]float64, 60)
		for i := range vs {
			vs[i] = [3]float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}
		}
		return vs
	}
	users, movies := draw(), draw()
	out := make([]example, n)
	for i := range out {
		u, m := r.IntN(len(users)), r.IntN(len(movies))
		z := users[u][0] + movies[m][0] + users[u][1]*movies[m][1] + users[u][2]*movies[m][2]
		out[i] = example{user: int64(u), movie: int64(m)}
		if r.Float64() < 1/(1+math.Exp(-2*z)) {
			out[i].label = 1
		}
	}
	return out
}

func TestMovieRankingLearns(t *testing.T) {
	examples := tastes(7, 8000)
	got := progressive(t, modelspec.MovieRanking(), examples, 8, len(examples)*3/4, 0, 200)
	t.Logf("AUC %.3f at lag 0, %.3f at lag 200", got[0], got[1])
	for _, a := range got {
		if a < 0.70 {
			t.Errorf("AUC %.3f, want at least 0.70", a)
		}
	}
	r := rand.New(rand.NewPCG(8, 0))
	for i := range examples { // the same ids with labels that nobody can know
		examples[i].label = float32(r.IntN(2))
	}
	if a := progressive(t, modelspec.MovieRanking(), examples[:3000], 8, 1000, 0)[0]; a > 0.56 {
		t.Errorf("AUC %.3f on labels without sense: predictions see their own labels", a)
	}
}

func readRatings(path string) ([]example, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type rating struct {
		example
		at int64
	}
	var rs []rating
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		p := strings.Split(sc.Text(), ",")
		if p[0] == "userId" {
			continue
		}
		if len(p) != 4 {
			return nil, fmt.Errorf("%d fields in %q", len(p), sc.Text())
		}
		user, err1 := strconv.ParseInt(p[0], 10, 64)
		movie, err2 := strconv.ParseInt(p[1], 10, 64)
		stars, err3 := strconv.ParseFloat(p[2], 64)
		at, err4 := strconv.ParseInt(strings.TrimSpace(p[3]), 10, 64)
		if err := cmp.Or(err1, err2, err3, err4); err != nil {
			return nil, err
		}
		rs = append(rs, rating{example{user, movie, modelspec.Labelled(modelspec.MovieRanking().GetLabel(), stars)}, at})
	}
	slices.SortFunc(rs, func(a, b rating) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.user, b.user), cmp.Compare(a.movie, b.movie))
	})
	out := make([]example, len(rs))
	for i, r := range rs {
		out[i] = r.example
	}
	return out, sc.Err()
}

// TestMovieLens trains on real ratings, for minutes: MONOLITH_LONG=1 asks for it.
func TestMovieLens(t *testing.T) {
	if os.Getenv("MONOLITH_LONG") == "" {
		t.Skip("set MONOLITH_LONG=1 to train on all of MovieLens")
	}
	examples, err := readRatings(oracle.Ratings(t))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	lags := []int{0, 200, 1000}
	got := progressive(t, modelspec.MovieRanking(), examples, 8, len(examples)/2, lags...)
	t.Logf("%d ratings in %v", len(examples), time.Since(start).Round(time.Second))
	for i, lag := range lags {
		t.Logf("AUC %.4f over the second half at a lag of %d", got[i], lag)
	}
	if got[1] < 0.72 {
		t.Errorf("AUC %.4f at a lag of 200, want at least 0.72", got[1])
	}
}
