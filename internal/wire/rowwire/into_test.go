package rowwire

import (
	"slices"
	"testing"
)

// An answer lands in the memory that is meant for it, and in no other.
func TestAnswersLandWhereTheyAreAwaited(t *testing.T) {
	memory, seqs := make([]float32, 6), make([]uint64, 3)
	values := [][]float32{memory[:4], memory[4:]}
	decode := func(r *LookupResponse, answer LookupResponse) {
		t.Helper()
		var e encoder
		answer.encode(&e)
		if err := r.decode(&decoder{b: e.b}); err != nil {
			t.Fatal(err)
		}
	}
	var r LookupResponse
	r.Into(values, [][]uint64{seqs[:2], seqs[2:]})
	decode(&r, LookupResponse{Values: [][]float32{{1, 2, 3, 4}, {5, 6}}, Seqs: [][]uint64{{7, 8}, {9}}})
	if err := r.Landed(values, [][]uint64{seqs[:2], seqs[2:]}); err != nil || !slices.Equal(memory, []float32{1, 2, 3, 4, 5, 6}) || !slices.Equal(seqs, []uint64{7, 8, 9}) {
		t.Errorf("%v, %v, %v", memory, seqs, err)
	}
	if n := testing.AllocsPerRun(100, func() { r.Into(values, nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for name, tc := range map[string]struct {
		values [][]float32
		seqs   [][]uint64
	}{
		"a table less":        {[][]float32{{1, 2, 3, 4}}, nil},
		"a table more":        {[][]float32{{1, 2, 3, 4}, {5, 6}, {7, 8}}, nil},
		"a number less":       {[][]float32{{1, 2, 3, 4}, {}}, nil},
		"a number more":       {[][]float32{{1, 2, 3, 4}, {5, 6}}, nil},
		"shifted by a number": {[][]float32{{1, 2, 3}, {5, 6}}, nil},
	} {
		var r LookupResponse
		r.Into([][]float32{memory[:2], memory[2:4], memory[4:]}, nil) // of an earlier question
		clear(memory)
		r.Into([][]float32{memory[:4], memory[4:5]}, nil)
		decode(&r, LookupResponse{Values: tc.values, Seqs: tc.seqs})
		if err := r.Landed([][]float32{memory[:4], memory[4:5]}, nil); CodeOf(err) != Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if memory[5] != 0 {
			t.Errorf("%s: it was written where nobody awaited it", name)
		}
	}
	r.Into(values, nil)
	decode(&r, LookupResponse{Values: values})
	if err := r.Landed(values, [][]uint64{seqs[:2], seqs[2:]}); CodeOf(err) != Invalid {
		t.Errorf("no sequences: %v", err)
	}
	// One that was not decoded but handed over.
	r.Values = [][]float32{{6, 5, 4, 3}, {2, 1}}
	if err := r.Landed(values, nil); err != nil || !slices.Equal(memory, []float32{6, 5, 4, 3, 2, 1}) {
		t.Errorf("%v, %v", memory, err)
	}
}
