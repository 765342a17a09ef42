package layout_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
)

// two features, one of which takes slot 3, and a table each.
func small() layout.Config {
	return layout.Config{Shards: 3, Features: []layout.Feature{
		{Name: "fc_slot_3", Table: "u", SliceDims: []int{1, 4}},
		{Name: "item", Table: "i", SliceDims: []int{1, 4}, Pooling: layout.Mean},
	}, Outputs: []layout.Output{{Name: "bias", Type: layout.AddN, Slices: []layout.Slice{
		{Feature: "fc_slot_3", Start: 0, End: 1}, {Feature: "item", Start: 0, End: 1},
	}}}}
}

func v2(ids ...uint64) []uint64 { return ids }

func TestReadVariants(t *testing.T) {
	p := compile(t, small())
	v1 := layouttest.MakeV1(3, 5)
	for _, tc := range []struct {
		name   string
		read   func(b *layout.Batch) error
		slot3  [][]uint64 // rows
		item   [][]uint64
		shared []bool // of slot3 and item
	}{
		{"examples", func(b *layout.Batch) error {
			return b.ReadExamples([][]byte{
				slices.Concat(namedFeature("fc_slot_3", feature(1, v1, v1)), namedFeature("unknown", feature(2, 9))),
				nil,
				slices.Concat(namedFeature("item", feature(2)), namedFeature("item", feature(2, 7, 8))), // an empty list is skipped
			})
		}, [][]uint64{v2(layouttest.MakeV2(3, 5), layouttest.MakeV2(3, 5)), nil, nil}, [][]uint64{nil, nil, v2(7, 8)}, []bool{false, false}},
		{"examples, unpacked, in parts, the last kind wins", func(b *layout.Batch) error {
			one := append([]byte{9}, fixed64s(v2(4))...) // field 1, 8 bytes
			parts := slices.Concat(bytesField(1, []byte("x")), bytesField(2, feature(1, v1)), bytesField(2, bytesField(2, one)),
				bytesField(2, feature(2, 6)), bytesField(1, []byte("item")))
			return b.ReadExamples([][]byte{bytesField(1, parts)})
		}, [][]uint64{nil}, [][]uint64{v2(4, 6)}, []bool{false, false}},
		{"batch", func(b *layout.Batch) error {
			return b.ReadExampleBatch(slices.Concat(
				featureList("item", false, feature(2, 1), nil, feature(2, 2, 3)),
				featureList("fc_slot_3", true, feature(1, v1), feature(1, 77)), // only element 0 counts
				bytesField(2, []byte("raw")), varintField(3, 3)))
		}, [][]uint64{v2(layouttest.MakeV2(3, 5))}, [][]uint64{v2(1), nil, v2(2, 3)}, []bool{true, false}},
		{"batch, a feature absent, a shared list empty", func(b *layout.Batch) error {
			return b.ReadExampleBatch(slices.Concat(varintField(3, 5), featureList("item", true)))
		}, [][]uint64{nil}, [][]uint64{nil}, []bool{true, true}},
		{"instances", func(b *layout.Batch) error {
			in := bytesField(1, fixed64s(v2(v1, layouttest.MakeV1(9, 1), layouttest.MakeV1(3, 6))))
			f := slices.Concat(bytesField(6, bytesField(1, fixed64s(v2(12)))), bytesField(2, fixed64s(v2(11))), bytesField(1, []byte("item")))
			return b.ReadInstances([][]byte{append(in, bytesField(9, f)...), nil})
		}, [][]uint64{v2(layouttest.MakeV2(3, 5), layouttest.MakeV2(3, 6)), nil}, [][]uint64{v2(11, 12), nil}, []bool{false, false}},
		{"instances, slot unpacked", func(b *layout.Batch) error {
			return b.ReadInstances([][]byte{append(append([]byte{9}, fixed64s(v2(v1))...), bytesField(1, fixed64s(v2(v1)))...)})
		}, [][]uint64{v2(layouttest.MakeV2(3, 5), layouttest.MakeV2(3, 5))}, [][]uint64{nil}, []bool{false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := p.NewBatch()
			for range 2 { // reused
				if err := tc.read(b); err != nil {
					t.Fatal(err)
				}
				for f, want := range [][][]uint64{tc.slot3, tc.item} {
					n, shared := b.Rows(f)
					if n != len(want) || shared != tc.shared[f] {
						t.Fatalf("feature %d has %d rows, shared %v; want %d, %v", f, n, shared, len(want), tc.shared[f])
					}
					for i := range want {
						if !slices.Equal(b.FIDs(f, i), want[i]) {
							t.Errorf("feature %d row %d is %v, want %v", f, i, b.FIDs(f, i), want[i])
						}
					}
				}
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	cfg := small()
	cfg.Limits = layout.Limits{Batch: 4, FIDs: 6}
	p := compile(t, cfg)
	item := func(f []byte) [][]byte { return [][]byte{namedFeature("item", f)} }
	for _, tc := range []struct {
		name string
		read func(b *layout.Batch) error
		want string
	}{
		{"cut short", func(b *layout.Batch) error { return b.ReadExamples([][]byte{{0x0a, 5, 1}}) }, "example 0: the message is cut short"},
		{"tag 0", func(b *layout.Batch) error { return b.ReadExamples([][]byte{nil, {0}}) }, "example 1: the message has a tag"},
		{"half an id", func(b *layout.Batch) error { return b.ReadExamples(item(bytesField(2, bytesField(1, []byte("abc"))))) }, `feature "item": the message has packed ids`},
		{"sorted_id", func(b *layout.Batch) error {
			return b.ReadExamples([][]byte{bytesField(1, slices.Concat(bytesField(1, []byte("item")), varintField(6, 2)))})
		}, `feature "item" has sorted_id 2`},
		{"floats", func(b *layout.Batch) error { return b.ReadExamples(item(bytesField(3, nil))) }, `feature "item": it holds field 3`},
		{"twice in an example", func(b *layout.Batch) error {
			return b.ReadExamples([][]byte{slices.Concat(namedFeature("item", feature(2, 1)), namedFeature("item", feature(2, 1)))})
		}, `sample 0 has feature "item" twice`},
		{"twice in a batch", func(b *layout.Batch) error {
			return b.ReadExampleBatch(slices.Concat(featureList("item", true), featureList("item", true)))
		}, `"item" is in the batch twice`},
		{"list of another length", func(b *layout.Batch) error {
			return b.ReadExampleBatch(slices.Concat(featureList("item", false, nil), varintField(3, 2)))
		}, `"item" has 1 elements in a batch of 2`},
		{"negative batch", func(b *layout.Batch) error { return b.ReadExampleBatch(varintField(3, 1<<64-1)) }, "batch size -1"},
		{"claimed batch", func(b *layout.Batch) error { return b.ReadExampleBatch(varintField(3, 1<<31-1)) }, "batch size 2147483647"},
		{"too many examples", func(b *layout.Batch) error { return b.ReadExamples(make([][]byte, 5)) }, "batch size 5"},
		{"too many ids", func(b *layout.Batch) error { return b.ReadExamples(item(feature(2, 1, 2, 3, 4, 5, 6, 7))) }, "more than the 6 ids"},
		{"too many slotted ids", func(b *layout.Batch) error {
			return b.ReadInstances([][]byte{bytesField(1, make([]byte, 8*7))})
		}, "more than the 6 ids"},
		{"instance, twice", func(b *layout.Batch) error {
			f := bytesField(9, slices.Concat(bytesField(1, []byte("fc_slot_3")), bytesField(2, fixed64s(v2(1)))))
			return b.ReadInstances([][]byte{slices.Concat(f, bytesField(1, fixed64s(v2(layouttest.MakeV1(3, 1)))))})
		}, `"fc_slot_3" twice`},
		{"instance cut short", func(b *layout.Batch) error { return b.ReadInstances([][]byte{{0x4a, 9}}) }, "instance 0: the message is cut short"},
		{"open group", func(b *layout.Batch) error { return b.ReadInstances([][]byte{{0x5b}}) }, "instance 0: the message is cut short"},
		{"closed group", func(b *layout.Batch) error { return b.ReadInstances([][]byte{{0x5c}}) }, "instance 0: the message has a tag"},
		{"deep groups", func(b *layout.Batch) error { return b.ReadInstances([][]byte{slices.Repeat([]byte{0x5b}, 1000)}) }, "nests groups too deeply"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := p.NewBatch()
			err := tc.read(b)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if err := b.ReadExamples(item(feature(2, 1))); err != nil || !slices.Equal(b.FIDs(1, 0), v2(1)) {
				t.Fatalf("the batch after an error: %v, %v", b.FIDs(1, 0), err)
			}
		})
	}
}

// A world written as bytes and read back is the world that was filled in.
func TestReadIsFill(t *testing.T) {
	for seed := range uint64(40) {
		columns := seed%2 == 0
		rng := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(rng, columns, false)
		p := compile(t, w.cfg)
		var shards layout.Shards
		opt := layout.ShardOptions{Version: layout.V5, Unique: true}
		reads := map[string]func(b *layout.Batch) error{
			"examples":  func(b *layout.Batch) error { return b.ReadExamples(w.examples()) },
			"instances": func(b *layout.Batch) error { return b.ReadInstances(w.instances()) },
		}
		if columns {
			reads = map[string]func(b *layout.Batch) error{"batch": func(b *layout.Batch) error { return b.ReadExampleBatch(w.exampleBatch()) }}
		}
		for name, read := range reads {
			b := p.NewBatch()
			if err := read(b); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
			if err := p.Shard(&shards, b, opt); err != nil {
				t.Fatal(err)
			}
			sameShards(t, &shards, w.shards(layout.V5, true))
		}
	}
}

// Whatever the bytes, reading ends in an error or in a batch that goes all the way.
func FuzzRead(f *testing.F) {
	for seed := range uint64(6) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 2)), true, false)
		w.cfg = small()
		w.rows = map[string][][]uint64{"item": w.rows[w.featureNames()[0]]}
		f.Add(w.exampleBatch(), uint8(1))
	}
	f.Add(slices.Concat(namedFeature("item", feature(2, 1, 2)), namedFeature("fc_slot_3", feature(1, 1<<63))), uint8(0))
	f.Add(slices.Concat(bytesField(1, fixed64s(v2(3<<54, 3<<54|1))), bytesField(9, slices.Concat(bytesField(1, []byte("item")), bytesField(2, fixed64s(v2(1)))))), uint8(2))
	f.Add([]byte{0x5b, 0x0b, 0x08, 1, 0x0c, 0x5c}, uint8(2))
	cfg := small()
	cfg.Limits = layout.Limits{Batch: 1000}
	p := compile(f, cfg)
	f.Fuzz(func(t *testing.T, data []byte, variant uint8) {
		b := p.NewBatch()
		var err error
		switch variant % 3 {
		case 0:
			err = b.ReadExamples([][]byte{data, data})
		case 1:
			err = b.ReadExampleBatch(data)
		case 2:
			err = b.ReadInstances([][]byte{data, data})
		}
		if err != nil {
			return
		}
		var shards layout.Shards
		for _, v := range versions {
			if err := p.Shard(&shards, b, layout.ShardOptions{Version: v, Unique: true}); err != nil {
				t.Fatal(err)
			}
			var embeddings [][]float32
			for _, fids := range shards.FIDs {
				embeddings = append(embeddings, make([]float32, 5*len(fids)))
			}
			out, err := p.Forward(nil, shards.Rows(embeddings), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(out[0].Data) != b.Size() {
				t.Fatalf("%d biases for %d samples", len(out[0].Data), b.Size())
			}
		}
	})
}
