package layout_test

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/layout"
)

// Two samples, two features of one table on two shards: ids out, rows in, tensors out,
// gradients back.
func Example() {
	plan, err := layout.Compile(layout.Config{
		Shards: 2,
		Features: []layout.Feature{
			{Name: "genres", Table: "movie", SliceDims: []int{1, 2}, Pooling: layout.Mean},
			{Name: "movie", Table: "movie", SliceDims: []int{1, 2}},
		},
		Outputs: []layout.Output{
			{Name: "bias", Type: layout.AddN, Slices: []layout.Slice{{"genres", 0, 1}, {"movie", 0, 1}}},
			{Name: "vec", Type: layout.Stack, Slices: []layout.Slice{{"genres", 1, 3}, {"movie", 1, 3}}},
		},
	})
	if err != nil {
		panic(err)
	}
	batch := plan.NewBatch()
	batch.Reset(2)
	batch.Row(0, 0, false, []uint64{10, 11}) // genres of sample 0
	batch.Row(0, 1, false, []uint64{11})
	batch.Row(1, 0, false, []uint64{7}) // movie of sample 0
	batch.Row(1, 1, false, []uint64{8})

	var shards layout.Shards
	if err := plan.Shard(&shards, batch, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
		panic(err)
	}
	fmt.Println("ids by shard:", shards.FIDs)

	rows := make([][]float32, len(shards.FIDs))
	for i, ids := range shards.FIDs { // a table in which id x has the row x/4, x, -x
		for _, id := range ids {
			x := float32(id)
			rows[i] = append(rows[i], x/4, x, -x)
		}
	}
	tensors, err := plan.Forward(nil, shards.Rows(rows), nil)
	if err != nil {
		panic(err)
	}
	for _, t := range tensors {
		fmt.Println(t.Output, t.Shape, t.Data)
	}

	grads := [][]float32{{1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}}
	back, err := plan.Gradient(nil, shards.Rows(rows), grads, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println("row gradients:", back)
	// Output:
	// ids by shard: [[10 8] [11 7]]
	// bias [2 1] [4.375 4.75]
	// vec [2 2 2] [10.5 -10.5 7 -7 11 -11 8 -8]
	// row gradients: [[0.5 0.5 0.5 1 1 1] [1.5 1.5 1.5 1 1 1]]
}
