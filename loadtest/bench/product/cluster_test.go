package product

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
)

// TestBenchCluster runs the benchmarks that need a whole stack, at the least size.
func TestBenchCluster(t *testing.T) {
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{
		EndToEnd(StartCluster, []EndToEndCase{{N: 200, Rounds: 1}}),
		Predict(StartCluster, []PredictCase{{Batch: 3, Callers: 2, Each: 10 * time.Millisecond, Rounds: 1}},
			[]OpenCase{{Candidates: 5, Rate: 100, Ratings: 200, Each: 50 * time.Millisecond, Rounds: 1}}),
		FanOut(StartCluster, []FanOutCase{{Candidates: 5, Callers: 2, Rate: 100, Each: 50 * time.Millisecond, Rounds: 1}}),
		REST(StartCluster, []RESTCase{{Batch: 3, Callers: 2, Each: 10 * time.Millisecond, Rounds: 1}}),
		Overload(StartCluster, []OverloadCase{{Batch: 3, Callers: 2, Times: 2, Deadline: time.Second, Each: 50 * time.Millisecond, Rounds: 1}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 16 || got[0].Name != "end-to-end/n=200" || got[3].Name != "predict/batch=3,callers=2 p99" || got[7].Name != "predict/candidates=5,calls=100/s beside 200 ratings/s p99" ||
		got[8].Name != "fan-out/candidates=5,callers=2,calls=100/s rate" || got[11].Name != "rest/batch=3,callers=2 rate" || got[15].Name != "overload/batch=3,times=2,deadline=1s answered p99" {
		t.Errorf("%+v", got)
	}
}
