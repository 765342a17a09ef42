package inspect

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
)

// Rows are what a batch asks of one embedding table: each id's row is read from a random
// place in memory, and in training written back.
type Rows struct {
	Table     string  `json:"table"`
	IDs       int     `json:"ids"`        // of a sample; a feature whose ids are pooled counts as one
	Bytes     int     `json:"bytes"`      // of a row as memory holds it: whole cache lines
	PerSecond float64 `json:"per_second"` // rows that this machine's memory gathers at most, all processors together
	Seconds   float64 `json:"seconds"`    // for the batch, at most that fast
}

const (
	cacheLine   = 64
	gathered    = 128 << 20 // bytes to gather from: more than any cache
	gatherBatch = 2048      // rows that one call names
)

// RowCosts measures for about d a table what the rows of a batch of samples take in
// training, or with serving in a Predict. An index, locks and the optimizer come on top.
func RowCosts(spec *model.ModelSpec, batch int, serving bool, d time.Duration) ([]Rows, error) {
	ids := idsByTable(spec)
	var all []Rows
	for _, t := range spec.GetTables() {
		cfg, err := modelspec.TableConfig(spec, t.GetName(), serving)
		if err != nil {
			return nil, err
		}
		l, _ := entrydump.LayoutOf(cfg)
		r := Rows{Table: t.GetName(), IDs: ids[t.GetName()], Bytes: (4*(l.Dim+l.Slots) + cacheLine - 1) / cacheLine * cacheLine}
		if r.PerSecond, err = gatherRate(r.Bytes, serving, d); err != nil {
			return nil, err
		}
		r.Seconds = float64(batch*r.IDs) / r.PerSecond
		all = append(all, r)
	}
	return all, nil
}

// idsByTable counts the ids of a sample that go to each table: the length of a sequence, the
// combinations of a crossed feature, two rows for each where a vocabulary has a divisor, and one for any other, whose length no spec says.
func idsByTable(spec *model.ModelSpec) map[string]int {
	of := map[string]int{}
	for _, f := range spec.GetFeatures() {
		n := 1
		if f.GetPooling() == model.Feature_FIRSTN {
			n = int(f.GetMaxSequenceLength())
		}
		for _, name := range f.GetCross() {
			n *= max(of["feature "+name], 1)
		}
		of["feature "+f.GetName()] = n
		of[f.GetTable()] += n * modelspec.VocabularyOf(f).Rows()
	}
	return of
}

// gatherRate is how many rows of width bytes memory gives a second, or in training gives and
// then updates where they are. Each processor has rows of its own.
func gatherRate(width int, serving bool, d time.Duration) (float64, error) {
	threads := runtime.GOMAXPROCS(0)
	rates, errs := make([]float64, threads), make([]error, threads)
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() { rates[i], errs[i] = gather(width, serving, d, threads, uint64(i)) })
	}
	all.Wait()
	sum := 0.
	for _, r := range rates {
		sum += r
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("measure rows of %d bytes: %w", width, err)
	}
	return sum, nil
}

func gather(width int, serving bool, d time.Duration, threads int, seed uint64) (float64, error) {
	rows := gathered / width / threads
	c, err := table.NewCeiling(rows, width)
	if err != nil {
		return 0, err
	}
	places := make([]uint32, 64*gatherBatch)
	for k, rng := 0, rand.New(rand.NewPCG(1, seed)); k < len(places); k++ {
		places[k] = rng.Uint32N(uint32(rows))
	}
	out, n := make([]byte, gatherBatch*width), 0
	start := time.Now()
	for k := 0; n == 0 || time.Since(start) < d; k = (k + gatherBatch) % len(places) {
		c.Gather(places[k:k+gatherBatch], out)
		if !serving {
			c.Update(places[k : k+gatherBatch])
		}
		n += gatherBatch
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
