package audit

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	modelv1 "github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
)

const byteStep, bit = 50. / 128, .25

// compressed is the world's model with users as bytes, and movies as a half and a bit.
func compressed() *modelv1.ModelSpec {
	spec := modelspec.MovieRanking()
	user, movie := spec.Tables[0], spec.Tables[1]
	user.Dim, movie.Dim = 2, 2
	user.SkipZeroEmbedding = true
	user.Compressor = &modelv1.Compressor{Kind: &modelv1.Compressor_FixedR8{FixedR8: &modelv1.FixedR8{R: proto.Float32(50)}}}
	movie.Segments = []*modelv1.Segment{
		{Dim: 1, Optimizer: movie.Optimizer, Initializer: movie.Initializer, Compressor: &modelv1.Compressor{Kind: &modelv1.Compressor_Fp16{Fp16: &modelv1.Fp16{}}}},
		{Dim: 1, Optimizer: movie.Optimizer, Initializer: movie.Initializer, Compressor: &modelv1.Compressor{Kind: &modelv1.Compressor_OneBit{OneBit: &modelv1.OneBit{Amplitude: proto.Float32(bit)}}}},
	}
	movie.Optimizer, movie.Initializer = nil, nil
	return spec
}

// quantum is a user's number in steps, by the definition of fixed_r8.
func quantum(x float32) int8 {
	return int8(math.Max(-128, math.Min(127, math.Trunc(float64(x)/byteStep+math.Copysign(.5, float64(x))))))
}

// shown is what a replica answers for a row.
func shown(name string, row []float32) []float32 {
	if name == "user" {
		return []float32{float32(quantum(row[0])) * byteStep, float32(quantum(row[1])) * byteStep}
	}
	var h [1]uint16
	vec.ToFP16(h[:], row[:1])
	out := []float32{fromHalf(h[0]), -bit}
	if row[1] > 0 {
		out[1] = bit
	}
	return out
}

// asBytes makes users travel as bytes.
func asBytes(t *testing.T, ds []bus.DeltaDraft) []bus.DeltaDraft {
	for i := range ds {
		d := new(delta.Delta)
		if err := proto.Unmarshal(ds[i].Data, d); err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Rows {
			if r.Table != "user" {
				continue
			}
			values := r.Values
			r.Encoding, r.Scale, r.Values = delta.Encoding_INT8, byteStep, nil
			for ; len(values) > 0; values = values[4:] {
				r.Values = append(r.Values, byte(quantum(math.Float32frombits(binary.LittleEndian.Uint32(values)))))
			}
		}
		var err error
		if ds[i].Data, err = proto.Marshal(d); err != nil {
			t.Fatal(err)
		}
	}
	return ds
}

// Rows that serving keeps as halves, bytes and bits, and that travelled so or whole, are
// held against what serving makes of the training shards' rows, bit by bit.
func TestVerifyCompressedRows(t *testing.T) {
	said := func(x tamper, show func(string, []float32) []float32, skip bool) (ok bool, all string) {
		t.Helper()
		lie := x.deltas
		x.deltas = func(ds []bus.DeltaDraft) []bus.DeltaDraft {
			if ds = asBytes(t, ds); lie != nil {
				ds = lie(ds)
			}
			return ds
		}
		x.shards = func(s *[2]*checkpoint.Shard) {
			for _, k := range s {
				k.Spec = compressed()
				k.Tables["user"] = append(k.Tables["user"], table.Row{ID: modelspec.FID(1, int64(1000+k.Manifest.Shard)), Values: []float32{0, 0}, Slots: []float32{1, 1}})
			}
		}
		w := newWorld(t, x)
		in := w.inputs(w.report())
		for v := range 2 {
			in.Replicas = append(in.Replicas, Replica{Name: string(rune('0' + v)), Model: model, Shard: uint32(v), Rows: scanner{w: w, v: v, show: show, skipZeros: skip}})
		}
		ok = true
		for _, c := range verify(t, in) {
			if strings.HasPrefix(c.Name, "replica") || strings.HasPrefix(c.Name, "rows folded") && !strings.Contains(c.Detail, "is missing") {
				if ok = ok && c.OK; !c.OK {
					all += c.String() + "\n"
				}
			}
		}
		return ok, all
	}
	for _, skip := range []bool{false, true} { // a row of zeros may be there or not
		if ok, all := said(tamper{}, shown, skip); !ok {
			t.Errorf("the truth: %s", all)
		}
	}
	if ok, all := said(tamper{}, nil, false); ok || !strings.Contains(all, "differs in value") {
		t.Errorf("replicas that keep rows whole: %t, %s", ok, all)
	}
	if ok, all := said(tamper{}, func(name string, row []float32) []float32 {
		row = shown(name, row)
		if name == "user" {
			row[1] += byteStep
		}
		return row
	}, false); ok || !strings.Contains(all, "of table user differs in value 1") {
		t.Errorf("replicas that are a step off: %t, %s", ok, all)
	}
	if ok, all := said(tamper{deltas: func(ds []bus.DeltaDraft) []bus.DeltaDraft {
		d := new(delta.Delta)
		if err := proto.Unmarshal(ds[8].Data, d); err != nil {
			t.Fatal(err)
		}
		d.Rows[1].Values[0]++
		var err error
		if ds[8].Data, err = proto.Marshal(d); err != nil {
			t.Fatal(err)
		}
		return ds
	}}, shown, false); ok || !strings.Contains(all, "differs in value 0") {
		t.Errorf("a delta that is a step off: %t, %s", ok, all)
	}
}

// FuzzFold takes any delta that decodes: it is refused, or each row that it names has as many numbers as it says.
func FuzzFold(f *testing.F) {
	for _, r := range []*delta.Rows{
		{Table: "user", Dim: 2, Ids: []uint64{1}, Values: make([]byte, 8), Removed: []uint64{3}},
		{Table: "user", Dim: 3, Encoding: delta.Encoding_FP16, Ids: []uint64{1}, Values: make([]byte, 6)},
		{Table: "user", Dim: 9, Encoding: delta.Encoding_BITS, Scale: 1, Ids: []uint64{1, 2}, Values: make([]byte, 4)},
		{Table: "user", Dim: math.MaxUint32, Encoding: delta.Encoding_BITS, Ids: []uint64{1}, Values: make([]byte, 4)},
	} {
		b, err := proto.Marshal(&delta.Delta{Rows: []*delta.Rows{r}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d delta.Delta
		if proto.Unmarshal(data, &d) != nil || len(d.GetRows()) != 1 {
			return
		}
		s := NewRows()
		if s.Fold(&d) != nil {
			return
		}
		r := d.GetRows()[0]
		for _, id := range r.GetIds() {
			if row := s.Tables[r.GetTable()][int64(id)]; len(row) != int(r.GetDim()) {
				t.Fatalf("row %d of %d numbers has %d", id, r.GetDim(), len(row))
			}
		}
	})
}

func TestFoldRefuses(t *testing.T) {
	for name, r := range map[string]*delta.Rows{
		"too few bytes":    {Table: "user", Dim: 2, Ids: []uint64{1}, Values: make([]byte, 7)},
		"too many":         {Table: "user", Dim: 2, Encoding: delta.Encoding_INT8, Ids: []uint64{1}, Values: make([]byte, 3)},
		"too few bits":     {Table: "user", Dim: 9, Encoding: delta.Encoding_BITS, Ids: []uint64{1}, Values: make([]byte, 1)},
		"unknown encoding": {Table: "user", Dim: 2, Encoding: 9, Ids: []uint64{1}, Values: make([]byte, 8)},
	} {
		if err := NewRows().Fold(&delta.Delta{Rows: []*delta.Rows{r}}); err == nil {
			t.Errorf("%s is folded", name)
		}
	}
}
