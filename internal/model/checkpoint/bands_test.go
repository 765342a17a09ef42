package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func count(from, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(from + i)
	}
	return v
}

// banded is a shard with a whole variable and two bands of another.
func banded() *Shard {
	shape := []uint32{3, 4}
	return &Shard{
		Manifest: Manifest{Job: "j", Shards: 2},
		Dense:    map[string]Variable{"bias": {Shape: []uint32{2}, Values: []float32{1, 2}, Slots: []float32{3, 4}}},
		Bands: []Band{
			{Name: "kernel", At: 8, Variable: Variable{Shape: shape, Values: count(8, 4), Slots: count(100, 4)}},
			{Name: "kernel", At: 0, Variable: Variable{Shape: shape, Values: count(0, 4), Slots: count(200, 8)}},
		},
	}
}

func TestBandsAreReadBack(t *testing.T) {
	s := banded()
	dir := filepath.Join(t.TempDir(), "ckpt")
	m, err := WriteShard(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	if hash, err := HashShard(s); err != nil || hash != m.Hash || m.Format != 4 {
		t.Errorf("format %d, hash %s, of what is in memory %s, %v", m.Format, m.Hash, hash, err)
	}
	got, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Band{s.Bands[1], s.Bands[0]}
	if diff := cmp.Diff(want, got.Bands); diff != "" || !slices.Equal(got.Dense["bias"].Slots, []float32{3, 4}) {
		t.Errorf("in order (-want +got):\n%s", diff)
	}
	if v, ok := got.Band("kernel", 8); !ok || v.Values[0] != 8 {
		t.Errorf("at 8 of the kernel: %+v", v)
	}
	if v, ok := got.Band("bias", 0); !ok || v.Values[0] != 1 {
		t.Errorf("the bias: %+v", v)
	}
	for _, at := range []int{4, 9} {
		if _, ok := got.Band("kernel", at); ok {
			t.Errorf("there is a band at %d", at)
		}
	}
	if e := Export(s); e.Bands[0].Slots != nil || e.Bands[0].Values[0] != 8 || s.Bands[0].Slots == nil {
		t.Errorf("exported: %+v", e.Bands)
	}
	whole, err := os.ReadFile(filepath.Join(dir, denseName))
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)-9] ^= 1
	if err := os.WriteFile(filepath.Join(dir, denseName), whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadShard(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a bit is another: %v", err)
	}
}

func TestBandsThatContradictThemselves(t *testing.T) {
	for name, change := range map[string]func(*Shard){
		"the variable is there, too": func(s *Shard) { s.Dense["kernel"] = Variable{Shape: []uint32{1}, Values: []float32{1}} },
		"beyond the end":             func(s *Shard) { s.Bands[0].At = 9 },
		"below the start":            func(s *Shard) { s.Bands[0].At = -1 },
		"one over the other":         func(s *Shard) { s.Bands[0].At = 3 },
		"empty":                      func(s *Shard) { s.Bands[0].Values = nil },
		"too large":                  func(s *Shard) { s.Bands[0].Shape = []uint32{1 << 15, 1 << 15} },
	} {
		s := banded()
		change(s)
		if _, err := WriteShard(filepath.Join(t.TempDir(), "c"), s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := HashShard(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is hashed: %v", name, err)
		}
	}
}

// A manifest that is whole by all its checksums and places a band beyond its variable is refused.
func TestBandsThatAManifestMisplaces(t *testing.T) {
	for at, ok := range map[int]bool{7: true, 8: true, 9: false, 12: false, 16: false, -1: false} {
		dir := filepath.Join(t.TempDir(), "c")
		s := banded()
		m, err := WriteShard(dir, s)
		if err != nil {
			t.Fatal(err)
		}
		m.Bands[1].At, s.Bands[0].At = at, at
		m.Hash = contentHash(nil, nil, m.Variables, s.Dense, []Band{s.Bands[1], s.Bands[0]})
		text, err := seal(&m, &m.Sum)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ManifestName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadShard(dir); ok != (err == nil) || !ok && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("the band at %d of variable", at))) {
			t.Errorf("4 values at %d of 12: %v", at, err)
		}
	}
}

// The entry of an export has its variables as a whole, from whichever shards the bands come.
func TestJoin(t *testing.T) {
	shape := []uint32{3, 4}
	band := func(at, n int) Band {
		return Band{Name: "kernel", At: at, Variable: Variable{Shape: shape, Values: count(at, n), Slots: count(0, n)}}
	}
	dense := map[string]Variable{"bias": {Shape: []uint32{1}, Values: []float32{1}}}
	if err := Join(dense, []Band{band(8, 4), band(0, 4), band(4, 4)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Variable{Shape: shape, Values: count(0, 12)}, dense["kernel"]); diff != "" || len(dense) != 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	other := band(4, 8)
	other.Shape = []uint32{4, 3}
	for name, bands := range map[string][]Band{
		"a gap":              {band(0, 4), band(8, 4)},
		"no beginning":       {band(4, 8)},
		"no end":             {band(0, 4), band(4, 4)},
		"one over the other": {band(0, 8), band(4, 8)},
		"another shape":      {band(0, 4), other},
	} {
		if err := Join(map[string]Variable{}, bands); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Join(map[string]Variable{"kernel": {}}, []Band{band(0, 12)}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("it is there as a whole, too: %v", err)
	}
}
