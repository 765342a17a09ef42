package modelserver_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/vec"
)

// looked is what a server answers for rows of one table.
func looked(c *rowwire.Client, t *testing.T, tab string, fids []int64) []float32 {
	t.Helper()
	res, err := c.Lookup(testContext(t), &rowwire.LookupRequest{Model: ranker, Tables: []rowwire.TableIDs{{Table: tab, IDs: fids}}})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(res.Values[0])
}

// compressed holds what two replicas serve against what was learnt, as near as the format is.
func compressed(t *testing.T, w *world, clients []*rowwire.Client, when string) {
	t.Helper()
	inexact := 0
	for tab, bound := range map[string]func(x float32) float64{
		"user":  func(x float32) float64 { return math.Abs(float64(x)) / 2048 },
		"movie": func(float32) float64 { return 2. / 128 / 2 },
	} {
		var fids []int64
		for id := range w.rows[tab] {
			fids = append(fids, id)
		}
		a, b := looked(clients[0], t, tab, fids), looked(clients[1], t, tab, fids)
		if !slices.Equal(a, b) {
			t.Errorf("%s: the replicas differ in table %s", when, tab)
		}
		for i, id := range fids {
			for j, want := range w.rows[tab][id] {
				got := a[i*dim+j]
				if math.Abs(float64(got-want)) > bound(want)+1e-7 {
					t.Errorf("%s: %s %d at %d is served as %v, it is %v", when, tab, id, j, got, want)
				}
				if got != want {
					inexact++
				}
			}
		}
	}
	if inexact == 0 {
		t.Errorf("%s: every number is exact: nothing was compressed", when)
	}
}

// TestCompressedRows serves halves and bytes, as the export says that the model declares
// them: two replicas answer the same, and as near to what was learnt as the format is,
// from the export and from deltas in float32, in halves and in bytes.
func TestCompressedRows(t *testing.T) {
	w := newWorld(t)
	for _, tab := range w.spec.Tables {
		switch tab.Name {
		case "user":
			tab.Compressor = &model.Compressor{Kind: &model.Compressor_Fp16{Fp16: &model.Fp16{}}}
		case "movie":
			tab.Compressor = &model.Compressor{Kind: &model.Compressor_FixedR8{FixedR8: &model.FixedR8{R: proto.Float32(2)}}}
			tab.SkipZeroEmbedding = true
			tab.MaxRows = 1 // a limit of training shards, not of serving
		}
	}
	w.rows["movie"][modelspec.FID(2, 77)] = make([]float32, dim)
	w.exportSpec = w.spec
	w.export(1, 1, 0)
	w.plan(1, 1, job)
	var clients []*rowwire.Client
	var waits []func(uint64)
	for r := range 2 {
		s := w.serve(fmt.Sprintf("r%d", r))
		waits = append(waits, w.applied(s.name, "ps_0"))
		s.mustLoad(1, "ps_0")
		c, err := w.client(s)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	compressed(t, w, clients, "from the export")
	rows := func(c *rowwire.Client) int {
		res, err := c.Scan(testContext(t), &rowwire.ScanRequest{Model: ranker, Table: "movie", After: math.MinInt64, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return len(res.IDs)
	}
	if n := rows(clients[0]); n != len(w.rows["movie"])-1 {
		t.Errorf("%d rows of movies are served: the one of zeros should be skipped, of %d", n, len(w.rows["movie"]))
	}
	d := w.learn("user", 1, 7, 3, 0.123456, -0.7, 1000.7, -1e-3)
	d.Shard, d.Shards = 0, 1
	w.publish(d)
	d = w.learn("movie", 2, 3, 3, 0.3, -0.3, 1.99, -2)
	d.Shard, d.Shards = 0, 1
	halves, b := make([]uint16, dim), []byte(nil)
	vec.ToFP16(halves, w.rows["movie"][modelspec.FID(2, 3)])
	for _, h := range halves {
		b = binary.LittleEndian.AppendUint16(b, h)
	}
	d.Rows[0].Encoding, d.Rows[0].Values = delta.Encoding_FP16, b
	// The format's own error comes on top: allow for it by what the half says.
	vec.FromFP16(w.rows["movie"][modelspec.FID(2, 3)], halves)
	w.publish(d)
	d = w.learn("movie", 2, 4, 3, 0, 0, 0, 0)
	d.Shard, d.Shards = 0, 1
	d.Rows[0].Encoding, d.Rows[0].Scale, d.Rows[0].Values = delta.Encoding_INT8, 2./128, []byte{1, 0x80, 127, 0xff}
	w.rows["movie"][modelspec.FID(2, 4)] = []float32{2. / 128, -2, 127 * 2. / 128, -2. / 128}
	w.publish(d)
	d = w.learn("movie", 2, 5, 3, 0, 0, 0, 0)
	d.Shard, d.Shards = 0, 1
	d.Rows[0].Encoding, d.Rows[0].Scale, d.Rows[0].Values = delta.Encoding_BITS, .5, []byte{0b0110}
	w.rows["movie"][modelspec.FID(2, 5)] = []float32{-.5, .5, .5, -.5}
	seq := w.publish(d)
	for _, wait := range waits {
		wait(seq)
	}
	compressed(t, w, clients, "from deltas")
	if got := looked(clients[0], t, "movie", []int64{modelspec.FID(2, 4)}); !slices.Equal(got, w.rows["movie"][modelspec.FID(2, 4)]) {
		t.Errorf("bytes are served as %v", got)
	}
}

// TestExportThatContradictsItsSpec is refused, with a sentence.
func TestExportThatContradictsItsSpec(t *testing.T) {
	w := newWorld(t)
	w.exportSpec = proto.Clone(w.spec).(*model.ModelSpec)
	w.exportSpec.Tables[0].Dim++
	w.export(1, 1, 0)
	w.plan(1, 1, job)
	s := w.serve("r")
	if err := s.load(1, "ps_0"); err == nil {
		t.Error("it is served")
	}
}
