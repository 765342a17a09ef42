package layout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
)

func TestCompileRefuses(t *testing.T) {
	dims := []int{1, 4}
	base := layout.Config{Shards: 2, Features: []layout.Feature{
		{Name: "a", Table: "t", SliceDims: dims},
		{Name: "n", Table: "t", SliceDims: dims, Pooling: layout.FirstN, MaxSequenceLength: 3},
		{Name: "m", Table: "t", SliceDims: dims, Pooling: layout.FirstN, MaxSequenceLength: 2},
	}}
	slice := func(name string, start, end int) layout.Slice {
		return layout.Slice{Feature: name, Start: start, End: end}
	}
	out := func(typ layout.OutType, shapes [][]int, s ...layout.Slice) func(c *layout.Config) {
		return func(c *layout.Config) {
			c.Outputs = []layout.Output{{Name: "o", Type: typ, Slices: s, Shapes: shapes}}
		}
	}
	feature := func(change func(f *layout.Feature)) func(c *layout.Config) {
		return func(c *layout.Config) {
			c.Features = slices.Clone(c.Features)
			change(&c.Features[0])
		}
	}
	for _, tc := range []struct {
		name   string
		change func(c *layout.Config)
		want   string // "" means it compiles
	}{
		{"as it is", func(c *layout.Config) {}, ""},
		{"no shards", func(c *layout.Config) { c.Shards = 0 }, "0 shards"},
		{"too many shards", func(c *layout.Config) { c.Shards = 1 << 20 }, "1048576 shards"},
		{"no features", func(c *layout.Config) { c.Features = nil }, "no feature"},
		{"limits", func(c *layout.Config) { c.Limits.FIDs = -1 }, "limits"},
		{"nameless", feature(func(f *layout.Feature) { f.Name = "" }), "must be named"},
		{"tableless", feature(func(f *layout.Feature) { f.Table = "" }), "must be named"},
		{"twice", feature(func(f *layout.Feature) { f.Name = "m" }), `"m" is configured twice`},
		{"no dims", feature(func(f *layout.Feature) { f.SliceDims = nil }), "has no slice_dims"},
		{"negative dim", feature(func(f *layout.Feature) { f.SliceDims = []int{4, -1} }), "must each be"},
		{"huge dims", feature(func(f *layout.Feature) { f.SliceDims = slices.Repeat([]int{1 << 20}, 3) }), "at most"},
		{"pooling 2", feature(func(f *layout.Feature) { f.Pooling = 2 }), "Pooling(2) is no pooling"},
		{"firstn of 0", feature(func(f *layout.Feature) { f.Pooling = layout.FirstN }), "max_sequence_length of at least 1"},
		{"output twice", func(c *layout.Config) {
			o := layout.Output{Name: "o", Slices: []layout.Slice{slice("a", 0, 1)}}
			c.Outputs = []layout.Output{o, o}
		}, `"o" is configured twice`},
		{"no slices", out(layout.Concat, nil), "no slices"},
		{"unknown feature", out(layout.Concat, nil, slice("x", 0, 1)), `"x" is not configured`},
		{"columns beyond", out(layout.Concat, nil, slice("a", 0, 6)), "columns 0 to 6"},
		{"columns backwards", out(layout.Concat, nil, slice("a", 2, 2)), "columns 2 to 2"},
		{"out type", out(4, nil, slice("a", 0, 1)), "OutType(4) is no out_type"},
		{"stack of two widths", out(layout.Stack, nil, slice("a", 0, 1), slice("a", 0, 2)), "equal width"},
		{"addn of two widths", out(layout.AddN, nil, slice("a", 0, 1), slice("a", 0, 2)), "equal width"},
		{"addn of firstn", out(layout.AddN, nil, slice("n", 0, 1)), "ADDN cannot add FIRSTN"},
		{"concat of sum and firstn", out(layout.Concat, nil, slice("a", 0, 1), slice("n", 0, 1)), "FIRSTN slices go together"},
		{"stack of two lengths", out(layout.Stack, nil, slice("m", 0, 1), slice("n", 0, 1)), "FIRSTN slices go together"},
		{"none of all kinds", out(layout.None, nil, slice("m", 0, 1), slice("n", 0, 5), slice("a", 1, 5)), ""},
		{"concat of firstn", out(layout.Concat, [][]int{{-1, 3, 6}}, slice("n", 0, 1), slice("n", 0, 5)), ""},
		{"reshaped", out(layout.Concat, [][]int{{-1, 2, 3, 3}}, slice("n", 0, 1), slice("n", 0, 5)), ""},
		{"fixed batch", out(layout.Concat, [][]int{{7, 1}}, slice("a", 0, 1)), ""},
		{"a shape too few", out(layout.None, [][]int{{-1, 1}}, slice("a", 0, 1), slice("a", 0, 1)), "1 shapes are given for 2"},
		{"a wrong shape", out(layout.Concat, [][]int{{-1, 2}}, slice("a", 0, 1)), "does not hold samples"},
		{"an empty shape", out(layout.Concat, [][]int{{}}, slice("a", 0, 1)), "does not hold samples"},
		{"a second -1", out(layout.Concat, [][]int{{-1, -1}}, slice("a", 0, 1)), "does not hold samples"},
		{"batch 0", out(layout.Concat, [][]int{{0, 1}}, slice("a", 0, 1)), "does not hold samples"},
		{"beyond memory", func(c *layout.Config) {
			c.Features = []layout.Feature{{Name: "n", Table: "t", SliceDims: []int{1 << 20}, Pooling: layout.FirstN, MaxSequenceLength: 1 << 20}}
			out(layout.None, nil, slice("n", 0, 1<<20))(c)
		}, "beyond"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := base
			tc.change(&c)
			_, err := layout.Compile(c)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestFixedBatch(t *testing.T) {
	cfg := small()
	cfg.Outputs[0].Shapes = [][]int{{3, 1}}
	p := compile(t, cfg)
	if _, err := p.Forward(nil, smallRows(t, p, layout.V3), nil); err == nil || !strings.Contains(err.Error(), "say -1") {
		t.Fatalf("two samples for a shape of three: %v", err)
	}
	if _, err := p.Gradient(nil, smallRows(t, p, layout.V3), [][]float32{make([]float32, 2)}, nil); err == nil || !strings.Contains(err.Error(), "say -1") {
		t.Fatalf("two samples for a shape of three: %v", err)
	}
}

func TestShardRefuses(t *testing.T) {
	cfg := small()
	cfg.Features[1].Table = "u"
	cfg.Features[1].SliceDims = []int{1}
	p, other := compile(t, cfg), compile(t, cfg)
	var s layout.Shards
	for _, tc := range []struct {
		b    *layout.Batch
		v    layout.Version
		want string
	}{
		{other.NewBatch(), layout.V3, "another plan"},
		{p.NewBatch(), 6, "version 6"},
		{p.NewBatch(), 0, "version 0"},
		{p.NewBatch(), layout.V1, `one width in table "u"`},
	} {
		if err := p.Shard(&s, tc.b, layout.ShardOptions{Version: tc.v}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

// Offsets of version 4 and 5 come with sizes of 31 bits.
func TestShardTooManyFloats(t *testing.T) {
	p := compile(t, layout.Config{Shards: 1, Features: []layout.Feature{{Name: "a", Table: "t", SliceDims: []int{1 << 20}}}})
	b := p.NewBatch()
	if err := b.Reset(1); err != nil {
		t.Fatal(err)
	}
	ids := make([]uint64, 1<<12)
	if err := b.Row(0, 0, false, ids[:1<<11]); err != nil {
		t.Fatal(err)
	}
	var s layout.Shards
	for _, v := range []layout.Version{layout.V4, layout.V5} {
		if err := p.Shard(&s, b, layout.ShardOptions{Version: v}); err == nil || !strings.Contains(err.Error(), `shard 0 of table "t" gets 2147483648 floats`) {
			t.Errorf("version %d: %v", v, err)
		}
	}
	if err := p.Shard(&s, b, layout.ShardOptions{Version: layout.V3}); err != nil {
		t.Error(err)
	}
	if err := p.Shard(&s, b, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
		t.Errorf("one distinct id: %v", err)
	}
	if err := b.Reset(1); err != nil {
		t.Fatal(err)
	}
	if err := b.Row(0, 0, false, ids); err != nil {
		t.Fatal(err)
	}
	if err := p.Shard(&s, b, layout.ShardOptions{Version: layout.V3}); err == nil {
		t.Error("version 3 says 2^32 floats in 32 bits")
	}
}

// The figures that follow from the encodings alone.
func TestGoldenOffsets(t *testing.T) {
	p := compile(t, layout.Config{Shards: 3, Features: []layout.Feature{
		{Name: "a", Table: "t0", SliceDims: []int{16}}, {Name: "b", Table: "t1", SliceDims: []int{16}},
	}})
	b := p.NewBatch()
	if err := b.ResetColumns(9); err != nil {
		t.Fatal(err)
	}
	if err := b.Column(0, 9, false); err != nil {
		t.Fatal(err)
	}
	if err := b.Column(1, 1, true); err != nil {
		t.Fatal(err)
	}
	if err := b.Row(1, 0, false, []uint64{2, 5, 8, 11, 14, 17, 20, 23}); err != nil { // all on shard 2
		t.Fatal(err)
	}
	var s layout.Shards
	for v, want := range map[layout.Version]uint64{layout.V1: 21474836487, layout.V3: 21474836592} {
		if err := p.Shard(&s, b, layout.ShardOptions{Version: v}); err != nil {
			t.Fatal(err)
		}
		if s.FIDOffset[7] != want {
			t.Errorf("version %d: table 1, shard 2 of 3, row 7 is %d, want %d", v, s.FIDOffset[7], want)
		}
	}
	if s.NFLOffset[1] != 0x80000009 {
		t.Errorf("row 9, shared, is %#x", s.NFLOffset[1])
	}
}

func TestFIDs(t *testing.T) {
	for _, tc := range []struct{ got, want uint64 }{
		{layouttest.MakeV1(3, 5), 0x00C0000000000005},
		{layout.V2FromV1(0x00C0000000000005), 0x0003000000000005},
		{layouttest.MakeV2(202, 1), 56857945295552513},
		{layouttest.MakeV2(layout.MaxSlotV2, 1<<63-1), 1<<63 - 1},
		{layout.V2FromV1(1<<64 - 1), 1023<<48 | (1<<48 - 1)},
		{uint64(layout.SlotV1(1<<64 - 1)), layout.MaxSlotV1},
	} {
		if tc.got != tc.want {
			t.Errorf("%#x, want %#x", tc.got, tc.want)
		}
	}
}

// Shards are fid mod n of unsigned numbers, whatever n is.
func TestShardIsUnsignedModulus(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7, 8, 10, 63, 64, 65, 1000, 65535, 65536} {
		p := compile(t, layout.Config{Shards: n, Features: []layout.Feature{{Name: "a", Table: "t", SliceDims: []int{1}}}})
		b := p.NewBatch()
		if err := b.Reset(1); err != nil {
			t.Fatal(err)
		}
		var ids []uint64
		for i := range uint64(64) {
			for _, d := range []uint64{0, 1, ^uint64(0), uint64(n), -uint64(n)} {
				ids = append(ids, 1<<i+d, -(1<<i)+d, (1<<63)/uint64(n)*uint64(n)*2+d)
			}
		}
		if err := b.Row(0, 0, false, ids); err != nil {
			t.Fatal(err)
		}
		var s layout.Shards
		if err := p.Shard(&s, b, layout.ShardOptions{Version: layout.V1}); err != nil {
			t.Fatal(err)
		}
		for i, fid := range ids {
			if got, want := s.FIDOffset[i]>>32, fid%uint64(n); got != want {
				t.Fatalf("%d mod %d = %d, want %d", fid, n, got, want)
			}
		}
	}
}

func TestNames(t *testing.T) {
	p := compile(t, layout.Config{Shards: 2, Features: []layout.Feature{
		{Name: "slot_9", Table: "z", SliceDims: []int{1}}, {Name: "fc_slot_9", Table: "b", SliceDims: []int{1}},
		{Name: "fc_slot_1024", Table: "b", SliceDims: []int{1}}, {Name: "slot_x", Table: "b", SliceDims: []int{1}},
	}})
	if got := p.Tables(); !slices.Equal(got, []string{"b", "z"}) || p.Blocks() != 4 || p.Shards() != 2 {
		t.Errorf("tables %v, %d blocks, %d shards", got, p.Blocks(), p.Shards())
	}
	if got := p.Features(); !slices.Equal(got, []string{"fc_slot_1024", "fc_slot_9", "slot_9", "slot_x"}) {
		t.Errorf("features %v", got)
	}
	// One id may be two features'.
	b := p.NewBatch()
	if err := b.ReadInstances([][]byte{bytesField(1, fixed64s([]uint64{layouttest.MakeV1(9, 4), layouttest.MakeV1(8, 4)}))}); err != nil {
		t.Fatal(err)
	}
	for f, want := range [][]uint64{nil, {layouttest.MakeV2(9, 4)}, {layouttest.MakeV2(9, 4)}, nil} {
		if !slices.Equal(b.FIDs(f, 0), want) {
			t.Errorf("feature %d has %v, want %v", f, b.FIDs(f, 0), want)
		}
	}
}
