package input

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/specfile"
)

// steadySpec has ids of both kinds and a label; %s is room for more.
const steadySpec = `
name: steady
features: [{name: ad, field: fc_slot_1, slot: 1, table: t%s}, {name: "user_{2..5}", field: "fc_slot_{2..5}", slot: "{2..5}", table: t, ids: FID}%s]
tables: [{name: t, dim: 1}]
layers: [{name: logit, units: 1}]
tasks: [{logit: logit, label: {field: %s%s}}]
dense_optimizer: {adagrad: {learning_rate: 0.01, initial_accumulator_value: 0.1}}
`

func steadyModel(t testing.TB, args ...any) (*model.ModelSpec, *runtime.Engine) {
	t.Helper()
	spec, err := specfile.Parse(fmt.Appendf(nil, steadySpec, args...))
	if err != nil {
		t.Fatal(err)
	}
	e, err := runtime.New(spec, 1, 32)
	if err != nil {
		t.Fatal(err)
	}
	return spec, e
}

// steadyEntry is one feature of a message.
type steadyEntry struct {
	name   string
	ids    []int64
	floats []float32
}

// drawSteady is a message that is laid out as all are, or but for one thing.
func drawSteady(rng *rand.Rand, format Format) []byte {
	odd := rng.IntN(60)
	if format == ExampleBatch {
		return damaged(rng, odd, drawSteadyBatch(rng, odd))
	}
	all, label := drawEntries(rng, format, odd)
	message := writeSteady(all, label, format, rng.IntN(2) == 0)
	if odd == 17 {
		message = append(message, protowire.AppendTag(nil, mExampleWeight, protowire.Fixed32Type)...)
		message = protowire.AppendFixed32(message, math.Float32bits(2))
	}
	return damaged(rng, odd, message)
}

func damaged(rng *rand.Rand, odd int, message []byte) []byte {
	switch odd {
	case 12:
		message = message[:rng.IntN(len(message))]
	case 13, 14, 15:
		message[rng.IntN(len(message))] ^= 1 << rng.IntN(8)
	case 16:
		message = append(message, byte(rng.Uint32()), byte(rng.Uint32()))
	}
	return message
}

func drawEntries(rng *rand.Rand, format Format, odd int) (all []steadyEntry, label float32) {
	for slot := int64(1); slot <= 5; slot++ {
		id := rng.Int64N(1 << rng.IntN(48))
		if slot > 1 || format != Example {
			id |= slot << 48
		}
		all = append(all, steadyEntry{name: fmt.Sprint("fc_slot_", slot), ids: []int64{id}})
	}
	label = float32(rng.IntN(6))
	at := rng.IntN(len(all))
	switch odd {
	case 0:
		all[at].ids = append(all[at].ids, all[at].ids[0]+1)
	case 1:
		all[at].ids = nil
	case 2:
		all = append(all[:at], all[at+1:]...)
	case 3:
		all = append(all, all[at])
	case 4:
		all = append(all, steadyEntry{name: "fc_slot_6", ids: []int64{6<<48 | 1}})
	case 5:
		all[at].ids[0] = -1
	case 6:
		all[at].ids[0] = int64(rng.Uint64())
	case 7:
		all[0], all[at] = all[at], all[0]
	case 8:
		all[at].ids, all[at].floats = nil, []float32{3}
	case 9:
		label = float32(math.NaN())
	case 10:
		label = 77
	case 11:
		all[at].name = all[0].name
	}
	return all, label
}

// steadyFeature is an entry's Feature.
func steadyFeature(e steadyEntry, format Format) []byte {
	var feature proto.Message
	switch {
	case format == Example && e.floats != nil:
		feature = &tf.Feature{Kind: &tf.Feature_FloatList{FloatList: &tf.FloatList{Value: e.floats}}}
	case format == Example:
		feature = &tf.Feature{Kind: &tf.Feature_Int64List{Int64List: &tf.Int64List{Value: e.ids}}}
	case e.floats != nil:
		feature = monolithFloat32s(e.floats)
	default:
		var ids []uint64
		for _, id := range e.ids {
			ids = append(ids, uint64(id))
		}
		feature = fids2(ids)
	}
	content, err := proto.Marshal(feature)
	if err != nil {
		panic(err)
	}
	return content
}

func putBytes(to []byte, num protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, num, protowire.BytesType), content)
}

func writeSteady(all []steadyEntry, label float32, format Format, line bool) []byte {
	var message []byte
	lineAt, labelAt := protowire.Number(mExampleLine), protowire.Number(mExampleLabel)
	switch format {
	case Instance:
		lineAt, labelAt = mInstanceLine, mInstanceLabel
		var ids []byte
		for _, e := range all {
			if e.floats != nil {
				message = putBytes(message, mInstanceFeature, putBytes(nil, mNamedName, []byte(e.name)))
			}
			for _, id := range e.ids {
				ids = protowire.AppendFixed64(ids, uint64(id)>>48<<54|uint64(id)&(1<<48-1))
			}
		}
		message = putBytes(message, mInstanceFID, ids)
	case Example:
		all = append(all, steadyEntry{name: "score", floats: []float32{label}})
		fallthrough
	default:
		for _, e := range all {
			message = putBytes(message, exampleFeatures, putBytes(putBytes(nil, entryKey, []byte(e.name)), entryValue, steadyFeature(e, format)))
		}
	}
	if format == Example {
		return putBytes(nil, exampleFeatures, message)
	}
	if line {
		message = putBytes(message, lineAt, []byte{8, 1}) // which nothing reads
	}
	return putBytes(message, labelAt, protowire.AppendFixed32(nil, math.Float32bits(label)))
}

// drawSteadyBatch is an ExampleBatch; of an odd one a sample or a column is.
func drawSteadyBatch(rng *rand.Rand, odd int) []byte {
	size := 1 + rng.IntN(4)
	var columns [6][][]byte
	for i := range size {
		one := 99
		if i == size/2 && (odd < 2 || odd > 4) {
			one = odd
		}
		all, label := drawEntries(rng, ExampleBatch, one)
		for c := range columns[:5] {
			columns[c] = append(columns[c], steadyFeature(all[c], ExampleBatch))
		}
		columns[5] = append(columns[5], steadyFeature(steadyEntry{floats: []float32{label}}, ExampleBatch))
	}
	var message []byte
	for c, elements := range columns {
		name := fmt.Sprint("fc_slot_", c+1)
		if c == 5 {
			name = LabelName
		}
		var list []byte
		if odd == 18+c {
			elements = elements[:rng.IntN(2)]
			list = protowire.AppendVarint(protowire.AppendTag(list, mListType, protowire.VarintType), mListShared)
		}
		list = putBytes(list, mListName, []byte(name))
		for _, e := range elements {
			list = putBytes(list, mListFeature, e)
		}
		for range 1 + (map[int]int{2: -1, 3: 1}[odd])*(c&1) {
			message = putBytes(message, mBatchList, list)
		}
	}
	if odd == 4 {
		message = putBytes(message, mBatchList, putBytes(putBytes(nil, mListName, []byte("instance_weight")), mListFeature, nil))
	}
	return protowire.AppendVarint(protowire.AppendTag(message, mBatchSize, protowire.VarintType), uint64(size))
}

var steadyFormats = []Format{Example, MonolithExample, ExampleBatch, Instance}

// steadyModels are those that may be read so, and some that may not.
var steadyModels = []struct {
	name   string
	args   func(f Format) []any
	steady bool
}{
	{"plain", func(f Format) []any { return []any{adIDs(f), "", labelField(f), ""} }, true},
	{"a threshold", func(f Format) []any { return []any{adIDs(f), "", labelField(f), ", threshold: 3"} }, true},
	{"crossed", func(f Format) []any {
		return []any{adIDs(f), ", {name: both, slot: 9, table: t, cross: [ad, user_2]}", labelField(f), ""}
	}, true},
	{"the first label", func(f Format) []any { return []any{adIDs(f), "", firstLabel(f), ""} }, true},
	{"another label", func(f Format) []any { return []any{adIDs(f), "", LabelName + ".1", ""} }, false},
	{"one field twice", func(f Format) []any {
		return []any{adIDs(f), ", {name: again, field: fc_slot_2, slot: 2, table: t, ids: FID}", labelField(f), ""}
	}, false},
}

func adIDs(f Format) string {
	if f == Example {
		return ""
	}
	return ", ids: FID"
}

func firstLabel(f Format) string {
	if f == Example {
		return "score"
	}
	return LabelName + ".0"
}

func labelField(f Format) string {
	if f == Example {
		return "score"
	}
	return LabelName
}

// What the steady road adds is what the whole reader finds, and where that refuses a record so does a decoder that knows
// the road.
func TestSteadyMessages(t *testing.T) {
	for _, format := range steadyFormats {
		for _, m := range steadyModels {
			spec, e := steadyModel(t, m.args(format)...)
			rng := rand.New(rand.NewPCG(3, uint64(format)))
			quick, whole := New(spec, Options{Format: format, Min: 0, Max: 5}), New(spec, Options{Format: format, Min: 0, Max: 5})
			whole.steady = nil
			a, b := e.NewBatch(), e.NewBatch()
			straight, refused := 0, 0
			const messages = 4000
			for range messages {
				message := drawSteady(rng, format)
				quick.found[0].count = -1 // which the whole reader forgets
				got, want := quick.Into(a, message, Position{}), whole.Into(b, message, Position{})
				if quick.found[0].count == -1 {
					straight++
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("%v, %s: %v, and read whole %v", format, m.name, got, want)
				}
				if got != nil {
					refused++
				}
				if sameBatches(t, e, a, b); t.Failed() || a.Len() > 24 || rng.IntN(40) == 0 {
					a.Reset()
					b.Reset()
				}
			}
			if most := straight > messages/4; most != m.steady || refused == 0 {
				t.Errorf("%v, %s: %d of %d messages took the road, %d were refused", format, m.name, straight, messages, refused)
			}
		}
	}
}

// Samples that count by a field are read whole, whichever field that is: the road takes each for one.
func TestTheRoadWeighsNothing(t *testing.T) {
	spec, _ := steadyModel(t, "", "", "score", "")
	first, last := spec.Features[0].GetField(), spec.Features[len(spec.Features)-1].GetField()
	for what, of := range map[string]*model.Task{
		"": {}, "the first mask": {MaskField: first}, "the last mask": {MaskField: last}, "a mask": {MaskField: "seen"},
		"the first weight": {WeightField: first}, "a weight": {WeightField: "counts"},
	} {
		spec.Tasks[0].MaskField, spec.Tasks[0].WeightField = of.GetMaskField(), of.GetWeightField()
		if d := New(spec, Options{Format: Example}); (d.steady != nil) != (what == "") {
			t.Errorf("%q: there is a road: %v", what, d.steady != nil)
		}
	}
}

// A byte away from a steady message, at any place of it, is read as the whole reader reads it.
func TestAlmostSteady(t *testing.T) {
	for _, format := range steadyFormats {
		spec, e := steadyModel(t, steadyModels[0].args(format)...)
		steadily := func() (d *Decoder, message []byte) {
			d, rng := New(spec, Options{Format: format}), rand.New(rand.NewPCG(1, 1))
			for b := e.NewBatch(); ; b.Reset() {
				message = drawSteady(rng, format)
				if err := d.Into(b, message, Position{}); err == nil && (d.steady.covered(d.before()) || format > MonolithExample) {
					return d, message
				}
			}
		}
		quick, message := steadily()
		whole, _ := steadily()
		whole.steady = nil
		a, b := e.NewBatch(), e.NewBatch()
		for at := range message {
			for _, c := range []byte{0, 1, 2, 8, 10, 18, 26, 0x7f, 0x80, 0xff, message[at] + 1, message[at] - 1} {
				near := bytes.Clone(message)
				near[at] = c
				for _, m := range [][]byte{message, near, message[:at], append(bytes.Clone(near), c)} {
					if got, want := quick.Into(a, m, Position{}), whole.Into(b, m, Position{}); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("%v: byte %d is %#x: %v, and read whole %v", format, at, c, got, want)
					}
					sameBatches(t, e, a, b)
					a.Reset()
					b.Reset()
				}
				quick.steady.credit = steadyCredit
			}
		}
	}
}

// A producer whose messages are seldom alike is not tried for ever.
func TestUnsteadyProducers(t *testing.T) {
	spec, e := steadyModel(t, "", "", "score", "")
	d, b := New(spec, Options{Format: Example}), e.NewBatch()
	for i := range 4 * steadyCredit {
		all := []steadyEntry{{name: "fc_slot_1", ids: []int64{1}}}
		for slot := int64(2); slot <= 5; slot++ {
			all = append(all, steadyEntry{name: fmt.Sprint("fc_slot_", slot), ids: []int64{slot << 48, slot<<48 | 1}[:1+i%2]})
		}
		if err := d.Into(b, writeSteady(all, 1, Example, false), Position{}); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	if d.steady.credit >= steadyMiss {
		t.Errorf("every second message is another, and the credit is still %d", d.steady.credit)
	}
}

func FuzzSteady(f *testing.F) {
	rng := rand.New(rand.NewPCG(8, 8))
	for i := range 20 {
		f.Add(byte(i), drawSteady(rng, steadyFormats[i%4]))
	}
	f.Fuzz(func(t *testing.T, of byte, message []byte) {
		format := steadyFormats[of%4]
		spec, e := steadyModel(t, steadyModels[0].args(format)...)
		quick, whole := New(spec, Options{Format: format}), New(spec, Options{Format: format})
		whole.steady = nil
		a, b := e.NewBatch(), e.NewBatch()
		first := drawSteady(rand.New(rand.NewPCG(1, 1)), format)
		for _, m := range [][]byte{first, first, message, message} {
			if got, want := quick.Into(a, m, Position{}), whole.Into(b, m, Position{}); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%v, and read whole %v", got, want)
			}
			sameBatches(t, e, a, b)
		}
	})
}
