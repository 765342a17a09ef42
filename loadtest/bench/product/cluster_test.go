package product

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
)

// TestBenchCluster runs the two benchmarks that need a whole stack, at the least size.
func TestBenchCluster(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{
		EndToEnd(StartCluster, []EndToEndCase{{N: 200, Rounds: 1}}),
		Predict(StartCluster, []PredictCase{{Batch: 3, Callers: 2, Each: 10 * time.Millisecond, Rounds: 1}},
			[]OpenCase{{Candidates: 5, Rate: 100, Ratings: 200, Each: 50 * time.Millisecond, Rounds: 1}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 8 || got[0].Name != "end-to-end/n=200" || got[3].Name != "predict/batch=3,callers=2 p99" || got[7].Name != "predict/candidates=5,calls=100/s beside 200 ratings/s p99" {
		t.Errorf("%+v", got)
	}
}
