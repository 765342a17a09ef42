package table

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/optim"
)

// However rows come and go, an entry lies in its home or in its one other bucket, and its
// home says so: that is all that lookups look at.
func TestEntriesLieInOneOfTwoBuckets(t *testing.T) {
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{LearningRate: 1}, Initializer: Zeros{}}))
	s, r := &tab.shards[7], rand.New(rand.NewPCG(7, 7))
	var ids []int64
	zero := []float32{0}
	far, longest := 0, 0
	check := func() {
		seen := 0
		far = 0
		look := func(base *bucket, n uint32) {
			k := log2(n)
			for i := range n + tail(n) {
				b := bucketAt(unsafe.Pointer(base), i)
				for place, w := range b.word {
					if b.state>>place&1 == 0 {
						continue
					}
					seen++
					d := uint32(w & maxDistance)
					if d == 0 {
						continue
					}
					far++
					if d != other(w, k) || bucketAt(unsafe.Pointer(base), i-d).state&elsewhere == 0 {
						t.Fatalf("an entry lies %d behind its home: its other bucket is %d behind", d, other(w, k))
					}
				}
			}
		}
		look((*bucket)(s.head.cur), s.head.n)
		if s.head.next != nil {
			look((*bucket)(s.head.next), s.head.nextN)
		}
		if seen != len(ids) || seen != s.used {
			t.Fatalf("%d entries of %d ids, the shard counts %d", seen, len(ids), s.used)
		}
	}
	for i := range 60_000 {
		if len(ids) > 0 && r.IntN(4) == 0 {
			at := r.IntN(len(ids))
			if tab.Remove(ids[at:at+1]) != 1 {
				t.Fatalf("id %d has no row", ids[at])
			}
			ids[at] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
		} else {
			id := crafted(7, 0, 0, r.Uint64())
			if err := tab.Assign([]int64{id}, zero, 1, 0); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			longest = max(longest, len(s.moves))
		}
		if i%2000 == 0 {
			check()
		}
	}
	check()
	if far == 0 || longest < 20 {
		t.Errorf("%d entries are not at home, and room was never farther than %d buckets: nothing was tested", far, longest)
	}
	out := make([]float32, len(ids))
	if found, err := tab.Lookup(ids, out, nil); err != nil || found != len(ids) {
		t.Fatal(found, err)
	}
}

// While a shard grows, its rows are those of both arrays, whoever lists them.
func TestAGrowingShardListsAllRows(t *testing.T) {
	tab := plainTable(t, 1)
	s := &tab.shards[9]
	growing, grew := 0, 0
	for n := 1; n <= 900; n++ {
		before := s.head.n
		if err := tab.Assign([]int64{crafted(9, 0, 0, uint64(n)*golden)}, []float32{1}, 1, 0); err != nil {
			t.Fatal(err)
		}
		if got := len(tab.ids()); got != n {
			t.Fatalf("%d of %d rows are listed", got, n)
		}
		if rows, more := tab.Rows(NoID, n); len(rows) != n || more {
			t.Fatalf("a page has %d of %d rows", len(rows), n)
		}
		if s.head.next != nil {
			growing++
		}
		if s.head.n != before {
			grew++
		}
	}
	if growing < 20 || grew < 5 {
		t.Errorf("the shard grew %d times, and was listed %d times meanwhile: nothing was tested", grew, growing)
	}
}

// A shard begins to grow when nine tenths of its places are taken, and not before.
func TestWhenAShardGrows(t *testing.T) {
	for _, n := range []uint32{20, 100, 300} {
		tab := plainTable(t, 1)
		s := &tab.shards[0]
		tab.reset(s, n)
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for s.head.next == nil && s.head.n == n {
			if err := tab.Assign([]int64{crafted(0, 0, 0, r.Uint64())}, []float32{1}, 1, 0); err != nil {
				t.Fatal(err)
			}
		}
		if before := s.used - 1; before != int(n)*perBucket*9/10 {
			t.Errorf("a shard of %d buckets grew with %d entries", n, before)
		}
	}
}

// A shard in which ids find no room is doubled, unless it is all but empty: then they
// share so much of their hash that no size helps.
func TestWhenAShardIsDoubled(t *testing.T) {
	for _, tc := range []struct {
		n    uint32
		used int
		want uint32
	}{
		{1, 0, 2}, {64, 0, 128}, {64, 400, 128}, {65, 15, 0}, {65, 16, 130}, {65, 17, 130}, {128, 31, 0}, {128, 32, 256},
		{maxHomes / 2, maxHomes, maxHomes}, {maxHomes/2 + 1, maxHomes, 0}, {maxHomes / 2, maxHomes/8 - 1, 0},
	} {
		if got := doubled(tc.n, tc.used); got != tc.want {
			t.Errorf("%d buckets with %d entries become %d, want %d", tc.n, tc.used, got, tc.want)
		}
	}
}

// Rows are written burst by burst where they are of one shard: a lock is taken once for
// many of them.
func TestALockServesABurst(t *testing.T) {
	for _, b := range runnable() {
		tab := plainTable(t, 1)
		tab.backend = b
		p := new(plan)
		ids := []int64{crafted(4, 0, 0, 1)} // the shard that comes first
		for i := range uint64(2*burst + 4) {
			ids = append(ids, crafted(5, 0, 0, i*golden))
		}
		for range 2 { // new rows, and rows that are there
			if err := tab.plan("write", p, ids, nil); err != nil {
				t.Fatal(err)
			}
			var sizes []int
			seen := 0
			if err := tab.write(p, false, func(slots []slot, from int) {
				if from != seen {
					t.Errorf("backend %d: rows from %d came behind %d", b, from, seen)
				}
				sizes = append(sizes, len(slots))
				seen += len(slots)
			}); err != nil {
				t.Fatal(err)
			}
			want := []int{1, burst - 1, burst, 5}
			if b == plain {
				want = []int{1, burst, burst, 4}
			}
			if !slices.Equal(sizes, want) {
				t.Errorf("backend %d: %d rows of two shards were written as %v, want %v", b, len(ids), sizes, want)
			}
		}
	}
}

// Where the greater array has no room for all that is at home in one bucket, none of it
// moves, and it moves as a whole once there is room.
func TestAHomeMovesAsAWhole(t *testing.T) {
	tab := plainTable(t, 1)
	s := &tab.shards[0]
	tab.reset(s, 4)
	var ids []int64
	for i := range uint64(5) {
		ids = append(ids, crafted(0, 4, 3, i*golden)) // at home in bucket 2 of 4, and 4 of 8
	}
	if err := tab.Assign(ids, make([]float32, len(ids)), 1, 0); err != nil {
		t.Fatal(err)
	}
	h := s.head
	s.next = tab.mem.Get(bucketBytes(8), true)
	h.next, h.nextN, h.nextK, h.split = s.next.At, 8, log2(8), 2
	for i := range 8 + tail(8) { // full of entries that could only go to buckets as full
		b := bucketAt(h.next, i)
		b.state = inUse
		for place := range b.word {
			b.word[place] = uint64(min(i, 1))
		}
	}
	home := bucketAt(h.next, 4)
	before := bucketAt(h.cur, 2).state
	for free := range len(ids) + 1 {
		home.state = inUse &^ (1<<free - 1)
		all := free == len(ids)
		if tab.migrate(s, 1) != all {
			t.Fatalf("room for %d of %d entries: they have moved: %v", free, len(ids), !all)
		}
		if all {
			break
		}
		if home.state != inUse&^(1<<free-1) || bucketAt(h.cur, 2).state != before || h.split != 2 {
			t.Fatalf("room for %d of %d entries: some have moved", free, len(ids))
		}
	}
	if home.state&inUse != inUse || bucketAt(h.cur, 2).state&inUse != 0 || h.split != 3 {
		t.Error("not all entries have moved")
	}
	for i, id := range ids {
		if row, ok := s.find(hashOf(id)); !ok || row != uint32(i) {
			t.Errorf("id %d is row %d, %v, want %d", id, row, ok, i)
		}
	}
}
