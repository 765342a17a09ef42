package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

const (
	// A variable is written in records of this many values, and as many slots.
	varChunk = 1 << 16
	// maxVariable bounds the values of one variable.
	maxVariable = 1 << 28
	// maxRecord holds a row of table.MaxDim with several slots per value.
	maxRecord = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dump is an EntryDump whose slots, whatever they mean, stand as adagrad's norm: those of
// dense variables, and of rows where no layout is given. Without slots there is no opt.
func dump(id int64, values, slots []float32) *monolithpb.EntryDump {
	d := &monolithpb.EntryDump{Id: proto.Int64(id), Num: values}
	if len(slots) > 0 {
		d.Opt = &monolithpb.OptimizerDump{Dump: []*monolithpb.SingleOptimizerDump{{
			Type: &monolithpb.SingleOptimizerDump_Adagrad{Adagrad: &monolithpb.AdagradOptimizerDump{Norm: slots}},
		}}}
	}
	return d
}

func slotsOf(d *monolithpb.EntryDump) ([]float32, error) {
	switch dumps := d.GetOpt().GetDump(); {
	case len(dumps) == 0:
		return nil, nil
	case len(dumps) == 1 && dumps[0].GetAdagrad() != nil:
		return dumps[0].GetAdagrad().GetNorm(), nil
	case len(dumps) == 1 && dumps[0].GetSgd() != nil:
		return nil, nil
	}
	return nil, fmt.Errorf("id %d was saved by an optimizer other than one adagrad or sgd", d.GetId())
}

// rowCodec is what t says about its rows.
func rowCodec(t *TableInfo) (encode func([]byte, table.Row) ([]byte, error), decode func([]byte) (table.Row, error), err error) {
	if len(t.Opt) == 0 {
		return encodeRow, decodeRow, nil
	}
	c, err := entrydump.NewCodec(entrydump.Layout{Dim: t.Dim, Slots: t.Slots, Dumps: t.dumps()}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("table %q: %w", t.Name, err)
	}
	return c.Append, c.Decode, nil
}

func encodeRow(b []byte, r table.Row) ([]byte, error) {
	d := dump(r.ID, r.Values, r.Slots)
	d.LastUpdateTsSec = proto.Int64(int64(r.UnixSec))
	if r.Tag != 0 {
		d.Tag = proto.Uint64(r.Tag)
	}
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, d)
}

func writeTable(w *tfrecord.Writer, t *TableInfo, rows []table.Row) error {
	encode, _, err := rowCodec(t)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	h := table.NewHasher(t.Dim)
	var buf []byte
	for _, r := range rows {
		h.Add(r)
		if buf, err = encode(buf[:0], r); err != nil {
			return fmt.Errorf("%w: table %q: %w", ErrInvalid, t.Name, err)
		}
		if len(buf) > maxRecord {
			return fmt.Errorf("%w: id %d takes %d bytes, %d are allowed", ErrInvalid, r.ID, len(buf), maxRecord)
		}
		if err := w.Write(buf); err != nil {
			return err
		}
	}
	t.Hash = h.Sum()
	return nil
}

// readTable reads one table file, whose rows must be exactly those that t tells, and hands them to
// take some at a time. Whether they are is known at the end alone.
func readTable(r *tfrecord.Reader, t *TableInfo, take func(rows []table.Row) error) error {
	_, decode, err := rowCodec(t)
	if err != nil {
		return err
	}
	h := table.NewHasher(t.Dim)
	some := make([]table.Row, 0, chunkOf(t.Dim+t.Slots))
	n, last := uint64(0), int64(0)
	hand := func() error {
		if len(some) == 0 {
			return nil
		}
		if err := take(some); err != nil {
			return &takeError{err}
		}
		some = some[:0]
		return nil
	}
	for {
		data, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		row, err := decode(data)
		switch {
		case err != nil:
			return err
		case len(row.Values) != t.Dim:
			return fmt.Errorf("id %d has %d values where dim is %d", row.ID, len(row.Values), t.Dim)
		case n > 0 && last >= row.ID:
			return fmt.Errorf("id %d stands behind id %d", row.ID, last)
		case n == t.Rows:
			return fmt.Errorf("it holds more than the %d rows that the manifest says", t.Rows)
		}
		h.Add(row)
		n, last = n+1, row.ID
		if some = append(some, row); len(some) == cap(some) {
			if err := hand(); err != nil {
				return err
			}
		}
	}
	if n != t.Rows {
		return fmt.Errorf("it holds %d rows where the manifest says %d", n, t.Rows)
	}
	if sum := h.Sum(); sum != t.Hash {
		return fmt.Errorf("its rows hash to %s where the manifest says %s", sum, t.Hash)
	}
	return hand()
}

func decodeRow(data []byte) (table.Row, error) {
	var d monolithpb.EntryDump
	if err := proto.Unmarshal(data, &d); err != nil {
		return table.Row{}, fmt.Errorf("decode row: %w", err)
	}
	slots, err := slotsOf(&d)
	if err != nil {
		return table.Row{}, err
	}
	ts := d.GetLastUpdateTsSec()
	if d.Id == nil || ts < 0 || ts > math.MaxUint32 {
		return table.Row{}, fmt.Errorf("decode row: id %d with time %d: a row has an id and a time that fits 32 bits", d.GetId(), ts)
	}
	return table.Row{ID: d.GetId(), Values: d.GetNum(), Slots: slots, UnixSec: uint32(ts), Tag: d.GetTag()}, nil
}

// inOrder are the variables in the order of names, and the bands behind them.
func inOrder(names []string, dense map[string]Variable, bands []Band) []Variable {
	all := make([]Variable, 0, len(names)+len(bands))
	for _, name := range names {
		all = append(all, dense[name])
	}
	for _, b := range bands {
		all = append(all, b.Variable)
	}
	return all
}

// writeDense writes the variables and bands in chunks, in order; a record's id is the
// index of what it is of.
func writeDense(w *tfrecord.Writer, names []string, dense map[string]Variable, bands []Band) error {
	var buf []byte
	for i, v := range inOrder(names, dense, bands) {
		values, slots := v.Values, v.Slots
		for first := true; first || len(values) > 0 || len(slots) > 0; first = false {
			nv, ns := min(len(values), varChunk), min(len(slots), varChunk)
			var err error
			buf, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(buf[:0], dump(int64(i), values[:nv], slots[:ns]))
			if err != nil {
				return err
			}
			if err := w.Write(buf); err != nil {
				return err
			}
			values, slots = values[nv:], slots[ns:]
		}
	}
	return nil
}

// readDense reads what writeDense wrote, whole.
func readDense(r *tfrecord.Reader, names []string, shapes [][]uint32, infos []BandInfo) (map[string]Variable, []Band, error) {
	if len(names) != len(shapes) {
		return nil, nil, fmt.Errorf("the manifest names %d variables and %d shapes", len(names), len(shapes))
	}
	vars := make([]Variable, len(names)+len(infos))
	for {
		data, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		var d monolithpb.EntryDump
		if err := proto.Unmarshal(data, &d); err != nil {
			return nil, nil, fmt.Errorf("decode variable: %w", err)
		}
		if d.GetId() < 0 || d.GetId() >= int64(len(vars)) {
			return nil, nil, fmt.Errorf("variable %d of %d", d.GetId(), len(vars))
		}
		slots, err := slotsOf(&d)
		if err != nil {
			return nil, nil, err
		}
		v := &vars[d.GetId()]
		v.Values = append(v.Values, d.GetNum()...)
		v.Slots = append(v.Slots, slots...)
	}
	dense := make(map[string]Variable, len(names))
	for i, name := range names {
		vars[i].Shape = shapes[i]
		if size, ok := sizeOf(shapes[i]); !ok || len(vars[i].Values) != size {
			return nil, nil, fmt.Errorf("variable %q of shape %v has %d values", name, shapes[i], len(vars[i].Values))
		}
		dense[name] = vars[i]
	}
	var bands []Band
	for i, b := range infos {
		v := vars[len(names)+i]
		v.Shape = b.Shape
		if size, ok := sizeOf(b.Shape); !ok || len(v.Values) != b.Size || b.At < 0 || b.At > size-b.Size {
			return nil, nil, fmt.Errorf("the band at %d of variable %q of shape %v has %d values where the manifest says %d", b.At, b.Name, b.Shape, len(v.Values), b.Size)
		}
		bands = append(bands, Band{Name: b.Name, At: b.At, Variable: v})
	}
	return dense, bands, nil
}

// contentHash is over the hashes of tables and filters, the variables and the bands, in the
// order given.
func contentHash(tables []TableInfo, filters []FilterInfo, names []string, dense map[string]Variable, bands []Band) string {
	h := sha256.New()
	for _, t := range tables {
		fmt.Fprintf(h, "table %q %s\n", t.Name, t.Hash)
	}
	for _, f := range filters {
		fmt.Fprintf(h, "filter %q %s\n", f.Table, f.Hash)
	}
	var buf []byte
	for i, v := range inOrder(names, dense, bands) {
		if i < len(names) {
			fmt.Fprintf(h, "variable %q %v %d %d\n", names[i], v.Shape, len(v.Values), len(v.Slots))
		} else {
			b := bands[i-len(names)]
			fmt.Fprintf(h, "band %q %v %d %d %d\n", b.Name, v.Shape, b.At, len(v.Values), len(v.Slots))
		}
		for _, part := range [][]float32{v.Values, v.Slots} {
			buf = buf[:0]
			for _, x := range part {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
			}
			h.Write(buf)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// seal sets *sum, a field of m, to the hash of m without it, and returns m's text.
func seal(m any, sum *string) ([]byte, error) {
	*sum = ""
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(text)
	*sum = hex.EncodeToString(hash[:])
	return json.MarshalIndent(m, "", "  ")
}
