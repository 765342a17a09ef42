package bench

import (
	"testing"
	"time"
)

// TestBenchCluster runs the two benchmarks that need a whole stack, at the least size.
func TestBenchCluster(t *testing.T) {
	r := Runner{}
	got, err := r.Run(t.Context(), []Benchmark{
		EndToEnd(startCluster, []EndToEndCase{{N: 200, Rounds: 1}}),
		Predict(startCluster, []PredictCase{{Batch: 3, Callers: 2, Each: 10 * time.Millisecond, Rounds: 1}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0].Name != "end-to-end/n=200" || got[3].Name != "predict/batch=3,callers=2 p99" {
		t.Errorf("%+v", got)
	}
}
