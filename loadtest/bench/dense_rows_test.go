package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The rows that threads read and update together are those of one call.
func TestDeepFMRows(t *testing.T) {
	const batch = 37
	m, err := newDeepFM(batch, 5000, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.pool.Close()
	twin, err := newDeepFM(batch, 5000, false)
	if err != nil {
		t.Fatal(err)
	}
	defer twin.pool.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 3 {
		ids := slices.Clone(m.next().ids)
		copy(ids[7:], ids[:30]) // equal ids, near and far
		copy(ids[batch*fmFields/2:], ids[:100])
		if err := m.lookup(ids); err != nil {
			t.Fatal(err)
		}
		want := make([]float32, len(ids)*fmDim)
		if _, err := twin.table.Lookup(ids, want, nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.emb, want) {
			t.Fatalf("round %d: rows differ from those of one lookup", round)
		}
		for i := range m.demb {
			m.demb[i] = rng.Float32() - 0.5
		}
		if err := m.apply(ids); err != nil {
			t.Fatal(err)
		}
		if err := twin.table.Optimize(ids, m.demb, 1); err != nil {
			t.Fatal(err)
		}
	}
	m.demb[3] = float32(1e38)
	m.demb[3] *= 10
	if err := m.apply(m.rows.ids); err == nil {
		t.Error("an infinite gradient was applied")
	}
}

func TestDistance(t *testing.T) {
	if threads() < 2 {
		t.Skip("SKIPPED: one processor")
	}
	if d := distance(); d <= 0 {
		t.Errorf("a cache line went there and back in %v", d)
	}
}
