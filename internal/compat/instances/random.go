package instances

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
)

const (
	slotV1Bits = 54 // of an id of version 1, the slot lies above
	slotV2Bits = 48
	// randomValues is how many ids each slot of a random instance has, and of how many they are drawn.
	randomValues = 5
	randomSlots  = 6
	// maxRandomIDs bounds what a feature list may ask for.
	maxRandomIDs = 1 << 16
)

// Random is an instance with ids of version 1 in each of the slots, the original's: no two slots
// draw the same numbers. Without slots they are 1 to 6.
func Random(r *rand.Rand, slots []uint32) *idlpb.Instance {
	if len(slots) == 0 {
		for s := range uint32(randomSlots) {
			slots = append(slots, s+1)
		}
	}
	in := &idlpb.Instance{}
	for i, slot := range slots {
		for range randomValues {
			in.Fid = append(in.Fid, uint64(slot)<<slotV1Bits|uint64(i*randomValues+1+r.IntN(randomValues)))
		}
	}
	return in
}

// Feature is what a feature list says of one: its name, its slot, and how many ids it has.
type Feature struct {
	Name string
	Slot uint32
	IDs  int  // at least 1
	Some bool // at random from 1 to IDs
}

// ReadFeatures reads a feature list: lines of key=value, of which feature_name, slot, method and
// args count here. Lines of columns, feeds and caches are passed over.
func ReadFeatures(path string) ([]Feature, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("feature list: %w", err)
	}
	var all []Feature
	for n, line := range strings.Split(string(raw), "\n") {
		line, _, _ = strings.Cut(line, "#")
		said := map[string]string{}
		for _, field := range strings.Fields(line) {
			if key, value, ok := strings.Cut(field, "="); ok {
				said[key] = strings.Trim(strings.TrimRight(value, ",;"), `"'`)
			}
		}
		name := said["feature_name"]
		if name == "" {
			continue
		}
		f := Feature{Name: name, IDs: 1}
		if text, ok := said["slot"]; ok {
			slot, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("feature list: line %d: the slot %q of %s is no number below 65536", n+1, text, name)
			}
			f.Slot = uint32(slot)
		}
		if arg, _, _ := strings.Cut(said["args"], ","); strings.HasPrefix(strings.ToLower(said["method"]), "vectortop") {
			if top, err := strconv.Atoi(arg); err == nil && top > 0 {
				f.IDs, f.Some = min(top, maxRandomIDs), true
			}
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("feature list: %s names no feature: write lines such as feature_name=f_user_id slot=1", path)
	}
	return all, nil
}

// RandomBatch is a batch with ids of version 2 in each of the features, and a LineId for each sample.
func RandomBatch(r *rand.Rand, features []Feature, samples int, now int64) (*matrixpb.ExampleBatch, error) {
	b := &matrixpb.ExampleBatch{BatchSize: int32(samples)}
	for _, f := range features {
		list := &matrixpb.NamedFeatureList{Name: f.Name}
		for range samples {
			n := f.IDs
			if f.Some {
				n = 1 + r.IntN(n)
			}
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = uint64(f.Slot)<<slotV2Bits | (1 + r.Uint64N(1<<slotV2Bits-1))
			}
			list.Feature = append(list.Feature, &matrixpb.Feature{Type: &matrixpb.Feature_FidV2List{FidV2List: &matrixpb.FidList{Value: ids}}})
		}
		b.NamedFeatureList = append(b.NamedFeatureList, list)
	}
	lines := &matrixpb.NamedFeatureList{Name: lineName}
	for range samples {
		raw, err := proto.Marshal(&idlpb.LineId{
			SampleRate: proto.Float32(0.001), ReqTime: proto.Int64(now - 1 - r.Int64N(1000)), Actions: []int32{1 + r.Int32N(3), 3 + r.Int32N(3)},
		})
		if err != nil {
			return nil, err
		}
		lines.Feature = append(lines.Feature, &matrixpb.Feature{Type: &matrixpb.Feature_BytesList{BytesList: &matrixpb.BytesList{Value: [][]byte{raw}}}})
	}
	b.NamedFeatureList = append(b.NamedFeatureList, lines)
	return b, nil
}

// Share makes the named features of a batch those of a user: each sample has the first one's.
func Share(b *matrixpb.ExampleBatch, names []string) {
	for _, list := range b.GetNamedFeatureList() {
		if len(list.GetFeature()) == 0 || !slices.Contains(names, list.GetName()) {
			continue
		}
		list.Type = matrixpb.FeatureListType_SHARED
		first := list.GetFeature()[0]
		for i := range list.Feature {
			list.Feature[i] = first
		}
	}
}
