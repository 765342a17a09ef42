package filter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/kernels/filter"
)

func sliding(t testing.TB, capacity uint64, splits int, th filter.Thresholds) *filter.SlidingCounter {
	t.Helper()
	f, err := filter.NewSlidingCounter(filter.SlidingConfig{Capacity: capacity, Splits: splits, Thresholds: th})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSlidingAdmitsFromThresholdPlusOne(t *testing.T) {
	f := sliding(t, 10000, 7, filter.Thresholds{Default: 3, Slots: map[uint32]uint32{5: 0, 6: 1, 7: 15}})
	for i, want := range []bool{false, false, false, true, true} {
		if got := f.Admit(77, 1); got != want {
			t.Errorf("occurrence %d: %v", i+1, got)
		}
	}
	for name, tc := range map[string]struct {
		id    int64
		count uint32
		want  []bool // by repeated calls
	}{
		"what counts was before the request": {78, 10, []bool{false, true}},
		"threshold 0":                        {5<<48 | 9, 1, []bool{true, true}},
		"threshold 1":                        {6<<48 | 9, 1, []bool{false, true}},
		"asking does not count":              {79, 0, []bool{false, false, false, false, false}},
		"huge counts end at 15":              {7 << 48, math.MaxUint32, []bool{false, true, true}},
		"threshold 15":                       {7<<48 | 1, 14, []bool{false, false, true}},
		"a negative id":                      {-1, 2, []bool{false, false, true}},
	} {
		for i, want := range tc.want {
			if got := f.Admit(tc.id, tc.count); got != want {
				t.Errorf("%s: call %d says %v", name, i+1, got)
			}
		}
	}
}

// Exact counts are the second opinion while nothing has to be forgotten.
func TestSlidingAgainstExactCounts(t *testing.T) {
	const ids = 20000
	f := sliding(t, 100000, 7, filter.Thresholds{Default: 4})
	r := rand.New(rand.NewPCG(1, 2))
	seen, early := map[int64]uint32{}, 0
	for range 100000 {
		id, n := int64(r.IntN(ids))<<20, uint32(1+r.IntN(2))
		got, want := f.Admit(id, n), seen[id] >= 4
		seen[id] += n
		if want && !got {
			t.Fatalf("id %d is refused after %d occurrences", id, seen[id]-n)
		}
		if got && !want {
			early++
		}
	}
	if early > 100000*3/100 {
		t.Errorf("%d admitted too early", early)
	}
	if s := f.Stats(); s.Elements < ids*9/10 || s.Elements > 100000*7/6 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// What the comment on SlidingCounter states about unseen ids, with the ring all full.
func TestSlidingFalsePositives(t *testing.T) {
	for _, splits := range []int{5, 7, 20} {
		const capacity = 200000
		f := sliding(t, capacity, splits, filter.Thresholds{Default: 1})
		for id := range int64(3 * capacity) {
			f.Admit(id, 1)
		}
		wrong, probes := 0, 50000
		for i := range probes {
			if f.Admit(1<<40+int64(i), 0) {
				wrong++
			}
		}
		rate, bound := float64(wrong)/float64(probes), float64(splits)*16/4096
		t.Logf("%d splits: %.2f %% of unseen ids pass, the bound is %.2f %%; %+v", splits, 100*rate, 100*bound, f.Stats())
		if rate > bound {
			t.Errorf("%d splits: %.4f, the bound is %.4f", splits, rate, bound)
		}
		if s := f.Stats(); float64(s.Failures) > 3*capacity/1000 || float64(s.Bytes) > 3.1*capacity*float64(splits)/float64(splits-1) {
			t.Errorf("%d splits: %+v", splits, s)
		}
	}
}

// The latest ids are remembered, those of long ago are not.
func TestSlidingForgets(t *testing.T) {
	const capacity = 60000
	f := sliding(t, capacity, 7, filter.Thresholds{Default: 1})
	for id := range int64(4 * capacity) {
		f.Admit(id, 1)
	}
	count := func(from, to int64) (n int) {
		for id := from; id < to; id++ {
			if f.Admit(id, 0) {
				n++
			}
		}
		return n
	}
	if n := count(4*capacity-capacity*5/6, 4*capacity); n < capacity*5/6*95/100 {
		t.Errorf("only %d of the latest %d are remembered", n, capacity*5/6)
	}
	if n := count(0, capacity); n > capacity*4/100 {
		t.Errorf("%d of the first %d are still remembered", n, capacity)
	}
}

func TestSlidingState(t *testing.T) {
	th := filter.Thresholds{Default: 2}
	f := sliding(t, 5000, 6, th)
	r := rand.New(rand.NewPCG(5, 6))
	draw := func() (int64, uint32) { return int64(r.IntN(20000)), uint32(1 + r.IntN(2)) }
	for range 30000 {
		f.Admit(draw())
	}
	data, err := f.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	g := sliding(t, 5000, 6, th)
	g.Admit(1, 1)
	if err := g.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	if again, _ := g.MarshalBinary(); !bytes.Equal(data, again) || f.Stats().Elements != g.Stats().Elements {
		t.Error("a second trip differs")
	}
	for range 20000 { // both go on as one
		id, n := draw()
		if f.Admit(id, n) != g.Admit(id, n) {
			t.Fatal("they part")
		}
	}
	empty, _ := sliding(t, 1<<30, 7, th).MarshalBinary()
	if len(empty) > 1<<14 {
		t.Errorf("an empty counter takes %d bytes", len(empty))
	}
}

// The hash is ours for ever: these bytes were written by the first version.
func TestSlidingStateIsStable(t *testing.T) {
	f := sliding(t, 300, 5, filter.Thresholds{Default: 1})
	for id := range int64(40) {
		f.Admit(id*id<<30, uint32(id))
	}
	data, _ := f.MarshalBinary()
	if got := crc32.ChecksumIEEE(data); got != 0x8f87edc2 {
		t.Errorf("the state's checksum is %#x", got)
	}
}

func TestProbabilistic(t *testing.T) {
	for _, tc := range []struct {
		equal            bool
		count, threshold uint32
		want             float64
	}{
		{false, 1, 4, .25}, {false, 3, 4, .75}, {false, 4, 4, 1}, {false, 9, 4, 1}, {false, 0, 4, 0}, {false, 1, 0, 1},
		{true, 1, 4, 1 - math.Pow(.05, .25)}, {true, 4, 4, .95}, {true, 8, 4, 1 - .05*.05}, {true, 0, 4, 0}, {true, 1, 0, 1},
	} {
		f, err := filter.NewProbabilistic(tc.equal, 9, filter.Thresholds{Default: 1 << 30, Slots: map[uint32]uint32{3: tc.threshold}})
		if err != nil {
			t.Fatal(err)
		}
		const n = 40000
		in := 0
		for i := range int64(n) {
			if f.Admit(3<<48|i%10, tc.count) {
				in++
			}
		}
		if got := float64(in) / n; math.Abs(got-tc.want) > .01 {
			t.Errorf("%+v: %.3f", tc, got)
		}
	}
	f, _ := filter.NewProbabilistic(true, 9, filter.Thresholds{Default: 3})
	for range 100 {
		f.Admit(1, 1)
	}
	data, _ := f.MarshalBinary()
	g, _ := filter.NewProbabilistic(true, 9, filter.Thresholds{Default: 3})
	other, _ := filter.NewProbabilistic(true, 8, filter.Thresholds{Default: 3})
	if err := errors.Join(g.UnmarshalBinary(data), other.UnmarshalBinary(data)); err != nil {
		t.Fatal(err)
	}
	differ := false
	for id := range int64(200) {
		a, b, c := f.Admit(id, 1), g.Admit(id, 1), other.Admit(id, 1)
		if a != b {
			t.Fatal("they part")
		}
		differ = differ || a != c
	}
	if !differ {
		t.Error("the seed does not count")
	}
}

func TestNone(t *testing.T) {
	var f filter.None
	data, err := f.MarshalBinary()
	if err != nil || !f.Admit(1, 1) || !f.Admit(1, 0) || f.UnmarshalBinary(data) != nil {
		t.Error("none")
	}
}

func TestRefusals(t *testing.T) {
	for says, cfg := range map[string]filter.SlidingConfig{
		"of 299 ids":                     {Capacity: 299, Splits: 7},
		"of 4294967297 ids":              {Capacity: 1<<32 + 1, Splits: 7},
		"of 4 splits":                    {Capacity: 300, Splits: 4},
		"of 65 splits":                   {Capacity: 300, Splits: 65},
		"threshold is 16":                {Capacity: 300, Splits: 7, Thresholds: filter.Thresholds{Default: 16}},
		"threshold of slot 3 is 4000000": {Capacity: 300, Splits: 7, Thresholds: filter.Thresholds{Slots: map[uint32]uint32{3: 4000000}}},
	} {
		if _, err := filter.NewSlidingCounter(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// seal gives a changed body the checksum it needs to be looked into.
func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

func TestBadStates(t *testing.T) {
	f := sliding(t, 1000, 5, filter.Thresholds{Default: 1})
	for id := range int64(500) {
		f.Admit(id, 1)
	}
	data, _ := f.MarshalBinary()
	body := data[:len(data)-4]
	none, _ := filter.None{}.MarshalBinary()
	other, _ := sliding(t, 1001, 5, filter.Thresholds{}).MarshalBinary()
	change := func(at int, to byte) []byte {
		b := bytes.Clone(body)
		b[at] = to
		return seal(b)
	}
	for name, tc := range map[string]struct {
		data []byte
		says string
	}{
		"empty":           {nil, "no filter's"},
		"foreign":         {[]byte("something else altogether"), "no filter's"},
		"cut":             {data[:len(data)/2], "checksum"},
		"another kind":    {none, "another kind"},
		"another version": {change(4, 2), "version 2"},
		"another size":    {other, "keep both"},
		"head":            {change(10, 9), "head"},
		"short":           {seal(body[:len(body)-3]), "ends early"},
		"long":            {seal(append(bytes.Clone(body), 0)), "behind its end"},
	} {
		err := f.UnmarshalBinary(tc.data)
		if !errors.Is(err, filter.ErrState) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range data { // every bit counts
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if f.UnmarshalBinary(bad) == nil {
			t.Fatalf("a changed byte %d passes", i)
		}
	}
	if again, _ := f.MarshalBinary(); !bytes.Equal(again, data) {
		t.Error("a refused state changed the filter")
	}
}

func FuzzUnmarshal(f *testing.F) {
	s := sliding(f, 300, 5, filter.Thresholds{Default: 2})
	for id := range int64(200) {
		s.Admit(id, 1)
	}
	data, _ := s.MarshalBinary()
	f.Add(data[:len(data)-4])
	f.Add([]byte("MFIL\x01\x00"))
	f.Add([]byte("MFIL\x01\x02\x05"))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, _ := filter.NewProbabilistic(false, 1, filter.Thresholds{Default: 3})
		s := sliding(t, 300, 5, filter.Thresholds{Default: 2})
		for _, f := range []filter.Filter{filter.None{}, p, s} {
			if f.UnmarshalBinary(seal(body)) != nil {
				continue
			}
			for id := range int64(50) { // what was taken can be worked with
				f.Admit(id, 1)
			}
			again, err := f.MarshalBinary()
			if err != nil || f.UnmarshalBinary(again) != nil {
				t.Fatal("its own state is refused")
			}
		}
	})
}

func TestConcurrently(t *testing.T) {
	p, _ := filter.NewProbabilistic(false, 1, filter.Thresholds{Default: 3})
	s := sliding(t, 50000, 7, filter.Thresholds{Default: 7})
	for _, f := range []filter.Filter{p, s} {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for id := range int64(5000) {
					f.Admit(id, 1)
				}
				data, err := f.MarshalBinary()
				if err != nil {
					t.Error(err)
				}
				if err := filter.Filter(p).UnmarshalBinary(data); f == filter.Filter(p) && err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	late := 0
	for id := range int64(5000) { // four of each were counted, none lost
		if s.Admit(id, 4) {
			late++
		}
		if !s.Admit(id, 0) {
			t.Fatalf("id %d has fewer than 8 occurrences", id)
		}
	}
	if late > 150 {
		t.Errorf("%d ids had too many", late)
	}
}

func BenchmarkSlidingAdmit(b *testing.B) {
	f := sliding(b, 10_000_000, 7, filter.Thresholds{Default: 5})
	r := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		f.Admit(int64(r.Uint64N(1<<24)), 1)
	}
}
