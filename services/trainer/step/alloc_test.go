//go:build !race

package step

import (
	"fmt"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// Once a ring's steps have seen batches of their size, a trainer's own part of a step allocates
// nothing: to read records, plan their rows, take the answers in, compute, check, and make the applies.
func TestAStepAllocatesNothing(t *testing.T) {
	const batch = 64
	e, err := New(modelspec.MovieRanking(), 2, batch)
	if err != nil {
		t.Fatal(err)
	}
	var spans []Span
	for k := range 5 {
		s := Span{From: int64(k * batch), To: int64((k + 1) * batch)}
		for i := range batch - k {
			s.Recs = append(s.Recs, kafka.Record{Offset: s.From + int64(i), Time: time.Unix(964982703, 0),
				Value: fmt.Appendf(nil, `{"userId":%d,"movieId":%d,"rating":%d.0,"timestamp":964982703}`, i*7%610, i*(k+1)*2467%168252, i%6)})
		}
		spans = append(spans, s)
	}
	var values [][]float32
	for _, v := range e.Variables() {
		values = append(values, modelspec.InitVariable(e.Spec(), v))
	}
	w, err := e.Weights(1, values)
	if err != nil {
		t.Fatal(err)
	}
	steps, lanes := []*Step{e.NewStep(), e.NewStep(), e.NewStep()}, nn.NewLanes(2)
	defer lanes.Expect(1)()
	turn := 0
	step := func() {
		st := steps[turn%len(steps)]
		if err := st.Load(spans[turn%len(spans)]); err != nil || st.Unfit != nil {
			t.Fatal(err, st.Unfit)
		}
		turn++
		for shard := range 2 {
			p, _ := st.Asks(shard, rowwire.LookupRequest{Model: trainertest.Job, Shard: uint32(shard)})
			for _, rows := range p.rows {
				for i := range rows {
					rows[i] = 0.01
				}
			}
		}
		l, err := lanes.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Train(l, st.Batch, w)
		lanes.Put(l)
		if err == nil {
			err = st.takeable()
		}
		if err != nil {
			t.Fatal(err)
		}
		for shard := range 2 {
			if r := st.Tells(shard, rowwire.ApplyRequest{Job: trainertest.Job, Shard: uint32(shard)})[0]; len(r.Tables) == 0 || len(r.Dense) == 0 {
				t.Fatalf("shard %d is told nothing", shard)
			}
		}
	}
	for range 3 * len(spans) {
		step()
	}
	if n := testing.AllocsPerRun(10, func() {
		for range 3 * len(spans) {
			step()
		}
	}); n > 0 {
		t.Errorf("%v allocations in %d steps", n, 3*len(spans))
	}
}
