package product_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/product"
)

// Records go through broker, trainer and shards by each road, in both precisions.
func TestTrain(t *testing.T) {
	var said bytes.Buffer
	r := &bench.Runner{Progress: &said, OursOnly: true}
	got, err := r.Run(t.Context(), []bench.Benchmark{product.Train(product.TrainOptions{Model: "movies", N: 1500})})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 6 {
		t.Fatalf("%d figures", len(got))
	}
	for i, res := range got {
		if !(float64(res.Value) > 0) || !strings.Contains(res.Name, product.Vias[i%3]) {
			t.Errorf("%+v", res)
		}
	}
}

func TestTrainRefusesUnknownNames(t *testing.T) {
	for _, o := range []product.TrainOptions{{Model: "x"}, {Via: []string{"pigeon"}}} {
		if _, err := new(bench.Runner).Run(t.Context(), []bench.Benchmark{product.Train(o)}); !errors.Is(err, bench.ErrUnknown) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
