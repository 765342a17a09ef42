package rows

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// Versions of a table have rows in common however they were learnt, and none where rows are kept otherwise.
func TestWhatTablesShare(t *testing.T) {
	compensated := func(lambda float32) *optim.DC {
		dc, err := optim.NewDC(lambda, optim.SGD{LearningRate: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		return dc
	}
	segments := func(o optim.Optimizer, c table.Compressor) []table.Segment {
		return []table.Segment{{Dim: 4, Optimizer: o, Compressor: c}, {Dim: 2, Optimizer: o, Compressor: c}}
	}
	first := table.Config{Name: "t", Serving: true, Segments: segments(compensated(0.5), compress.FP32{})}
	for name, tc := range map[string]struct {
		next  table.Config
		share bool
	}{
		"the same":           {first, true},
		"an equal optimizer": {table.Config{Name: "t", Serving: true, Segments: segments(compensated(0.5), compress.FP32{})}, true},
		"another optimizer":  {table.Config{Name: "t", Serving: true, Segments: segments(optim.SGD{LearningRate: 1}, compress.FP32{})}, true},
		"another compressor": {table.Config{Name: "t", Serving: true, Segments: segments(compensated(0.5), compress.FP16{})}, false},
	} {
		var all Tables
		a, err := all.next(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Whole(); err != nil {
			t.Fatal(err)
		}
		b, err := all.next(tc.next)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Of() == b.Of(); got != tc.share {
			t.Errorf("%s: shared is %v", name, got)
		}
	}
}
