package modelspec

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
)

func TestTrainable(t *testing.T) {
	with := func(dim uint32, units ...uint32) *model.ModelSpec {
		s := MovieRanking()
		for _, t := range s.Tables {
			t.Dim = dim
		}
		s.Layers = nil
		for i, n := range append(units, 1) {
			l := &model.DenseLayer{Name: string(rune('a' + i)), Units: n, Activation: model.Activation_RELU}
			if i == len(units) {
				l.Activation = model.Activation_SIGMOID
			}
			s.Layers = append(s.Layers, l)
		}
		return s
	}
	const most = MaxBand
	for _, tc := range []struct {
		name string
		spec *model.ModelSpec
		want string
	}{
		{"the demo's", MovieRanking(), ""},
		{"a kernel of the greatest size", with(32, most/64), ""},
		{"one unit more", with(32, most/64+1), ""},
		{"512 by 512", with(32, 512, 512), ""},
		{"a ready DeepFM", with(208, 1024), ""},
		{"many that fit alone", with(32, 448, 448, 448, 448, 448, 448, 448, 448, 448, 448, 448, 448), ""},
		{"not valid", with(0), "dim 0"},
	} {
		err := Trainable(tc.spec)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestHash: the hash of a declaration stands in facts, so it stays what it was.
func TestHash(t *testing.T) {
	const golden = "fd281e953046f6f0e8a50d3f89aa18c0570e1f5812cd1f297fa39d073aad439f"
	s := MovieRanking()
	if got := Hash(s); got != golden {
		t.Errorf("the demo's spec hashes to %s, it was %s when it was released", got, golden)
	}
	if Hash(proto.CloneOf(s)) != golden {
		t.Error("a clone hashes otherwise")
	}
	s.Label.Threshold = 4.5
	if Hash(s) == golden {
		t.Error("another threshold is not told apart")
	}
}
