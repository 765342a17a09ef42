package modelspec

import (
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// MaxBand is the most numbers of a dense variable that lie on one shard as one vector: 896
// KiB, which one delta carries.
const MaxBand = 229_376

// Band is a range of a dense variable. It lives on one shard and is updated as a vector of its
// own, whatever the number of shards, so that this number shows in no bit.
type Band struct {
	Name  string
	Shape []uint32 // of the variable
	At    int      // where in the variable's numbers the band begins
	Size  int      // numbers of the band

	Variable int // its index in Variables
	Index    int // among the variable's bands
}

// Shard is the one that keeps the band: round robin, from the variable's own on.
func (b Band) Shard(shards int) int { return VariableShard(b.Variable+b.Index, shards) }

// Bands lists the bands of variables in their order. A variable of at most MaxBand numbers is
// one band. A greater one is cut into as few ranges of its first axis as that allows, equal
// but for one row; where a single row is longer than a band, rows are cut likewise, along the
// first axis whose elements are not.
func Bands(variables []Variable) []Band {
	var all []Band
	for i, v := range variables {
		unit := 1
		for axis := len(v.Shape) - 1; axis > 0 && unit*int(v.Shape[axis]) <= MaxBand; axis-- {
			unit *= int(v.Shape[axis])
		}
		units := v.Size / unit
		each := MaxBand / unit
		n := (units + each - 1) / each
		for k := range n {
			from, to := units*k/n*unit, units*(k+1)/n*unit
			all = append(all, Band{Name: v.Name, Shape: v.Shape, At: from, Size: to - from, Variable: i, Index: k})
		}
	}
	return all
}

// BandsOf lists those of a shard.
func BandsOf(variables []Variable, shard, shards int) []Band {
	var own []Band
	for _, b := range Bands(variables) {
		if b.Shard(shards) == shard {
			own = append(own, b)
		}
	}
	return own
}

// Rounded says of each of Variables whether training reads it by nothing but products of
// bfloat16, which round it: who has it rounded computes the same bits.
func Rounded(spec *model.ModelSpec) ([]bool, error) {
	m, err := Compile(spec)
	if err != nil {
		return nil, err
	}
	rounded := make([]bool, len(m.Variables))
	for i, w := range m.Train.Weights() {
		read := false
		rounded[i] = true
		for _, n := range m.Train.Nodes() {
			for operand, id := range n.In {
				if id == w {
					o, product := n.Op.(graph.MatMul)
					read, rounded[i] = true, rounded[i] && product && o.Precision == graph.BF16 && operand < 2
				}
			}
		}
		output := slices.ContainsFunc(m.Train.Outputs(), func(o graph.Output) bool { return o.ID == w })
		rounded[i] = rounded[i] && read && !output
	}
	return rounded, nil
}
