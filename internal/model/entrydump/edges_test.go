package entrydump

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// A row's time is 32 bits of seconds: the last of them is read, and the next, which would
// come back as 1970, is refused.
func TestARowsTimeFitsItsBits(t *testing.T) {
	codec := must(NewCodec(Layout{Dim: 1}, nil))
	for unix, ok := range map[int64]bool{-1: false, 0: true, math.MaxUint32: true, math.MaxUint32 + 1: false, math.MaxInt64: false, math.MinInt64: false} {
		data := must(proto.Marshal(&monolithpb.EntryDump{Id: proto.Int64(8), Num: []float32{1}, LastUpdateTsSec: proto.Int64(unix)}))
		row, err := codec.Decode(data)
		if (err == nil) != ok || ok && int64(row.UnixSec) != unix || !ok && !errors.Is(err, ErrCorrupt) {
			t.Errorf("updated at %d: %+v, %v", unix, row, err)
		}
	}
}

func TestLayoutsAtTheirBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		l     Layout
		fresh []float32
		ok    bool
	}{
		"narrowest":        {Layout{Dim: 1}, nil, true},
		"negative":         {Layout{Dim: -1}, nil, false},
		"widest":           {Layout{Dim: table.MaxDim, Slots: 16 * table.MaxDim}, nil, true},
		"too wide":         {Layout{Dim: table.MaxDim + 1}, nil, false},
		"too many slots":   {Layout{Dim: 1, Slots: 16*table.MaxDim + 1}, nil, false},
		"negative slots":   {Layout{Dim: 1, Slots: -1}, nil, false},
		"fresh":            {Layout{Dim: 1, Slots: 2}, []float32{1, 2}, true},
		"fresh for fewer":  {Layout{Dim: 1, Slots: 2}, []float32{1}, false},
		"fresh for none":   {Layout{Dim: 1, Slots: 2}, []float32{}, false},
		"fresh of nothing": {Layout{Dim: 1}, []float32{}, true},
		"an empty plane":   {Layout{Dim: 1, Slots: 1, Dumps: []optim.Dump{{Kind: "adagrad", Planes: []optim.Plane{{Name: "norm", From: 1, To: 1}}}}}, nil, true},
		"a plane reversed": {Layout{Dim: 1, Slots: 2, Dumps: []optim.Dump{{Kind: "adagrad", Planes: []optim.Plane{{Name: "norm", From: 2, To: 1}}}}}, nil, false},
		"a single of none": {Layout{Dim: 1, Slots: 2, Dumps: []optim.Dump{{Kind: "adam", Planes: []optim.Plane{{Name: "beta1_power", From: 1, To: 1}}}}}, nil, false},
		"a short integer":  {Layout{Dim: 1, Slots: 2, Dumps: []optim.Dump{{Kind: "batch_softmax", Planes: []optim.Plane{{Name: "global_step", From: 0, To: 1, Integer: true}}}}}, nil, false},
		"an integer":       {Layout{Dim: 1, Slots: 2, Dumps: []optim.Dump{{Kind: "batch_softmax", Planes: []optim.Plane{{Name: "global_step", From: 0, To: 2, Integer: true}}}}}, nil, true},
	} {
		if _, err := NewCodec(tc.l, tc.fresh); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRowsOfAnotherShapeAreNotWritten(t *testing.T) {
	l := Layout{Dim: 2, Slots: 3}
	codec := must(NewCodec(l, nil))
	bare := must(NewCodec(l, nil))
	bare.Bare = true
	for name, tc := range map[string]struct {
		c     *Codec
		row   table.Row
		wrong bool
	}{
		"whole":          {codec, table.Row{Values: make([]float32, 2), Slots: make([]float32, 3)}, false},
		"without slots":  {codec, table.Row{Values: make([]float32, 2)}, false},
		"some slots":     {codec, table.Row{Values: make([]float32, 2), Slots: make([]float32, 2)}, true},
		"some, bare":     {bare, table.Row{Values: make([]float32, 2), Slots: make([]float32, 2)}, false},
		"a value less":   {codec, table.Row{Values: make([]float32, 1), Slots: make([]float32, 3)}, true},
		"a value more":   {codec, table.Row{Values: make([]float32, 3), Slots: make([]float32, 3)}, true},
		"a value, bare":  {bare, table.Row{Values: make([]float32, 3)}, true},
		"slots and bare": {bare, table.Row{Values: make([]float32, 2), Slots: make([]float32, 3)}, false},
	} {
		b, err := tc.c.Append([]byte("before"), tc.row)
		if (err != nil) != tc.wrong || !bytes.HasPrefix(b, []byte("before")) || tc.wrong && len(b) != 6 {
			t.Errorf("%s: %q, %v", name, b, err)
			continue
		}
		if tc.wrong {
			continue
		}
		var d monolithpb.EntryDump
		if err := proto.Unmarshal(b[6:], &d); err != nil {
			t.Fatal(err)
		}
		if kept := len(tc.row.Slots) == 3 && !tc.c.Bare; (d.Opt != nil) != kept || len(d.GetRest()) != 3 && kept || len(d.GetRest()) > 0 && !kept {
			t.Errorf("%s: written as %v", name, &d)
		}
	}
}

// raw is a field as the wire has it.
func raw(num protowire.Number, typ protowire.Type, b ...byte) []byte {
	return append(protowire.AppendTag(nil, num, typ), b...)
}

func inBytes(num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(raw(num, protowire.BytesType), b)
}

// What another optimizer or another program wrote is told apart from damage.
func TestForeignRows(t *testing.T) {
	all := every()
	cfg := config("t", all["adagrad"], all["batch_softmax"])
	codec := must(CodecOf(cfg))
	zero := make([]byte, 8)
	id := raw(fieldID, protowire.Fixed64Type, zero...)
	num := appendFloats(nil, fieldNum, make([]float32, 4))
	kinds := (*monolithpb.SingleOptimizerDump)(nil).ProtoReflect().Descriptor().Fields()
	adagrad, softmax := kinds.ByName("adagrad").Number(), kinds.ByName("batch_softmax").Number()
	stepField := kinds.ByName("batch_softmax").Message().Fields().ByName("global_step").Number()
	normField := kinds.ByName("adagrad").Message().Fields().ByName("norm").Number()
	dumpOf := func(kind protowire.Number, fields ...[]byte) []byte {
		return inBytes(fieldDump, inBytes(kind, slices.Concat(fields...)))
	}
	norms := func(n int) []byte { return appendFloats(nil, normField, make([]float32, n)) }
	step := func(n uint64) []byte {
		return protowire.AppendVarint(raw(stepField, protowire.VarintType), n)
	}
	good := codec.dumps[0].planes[0]
	n0 := good.To - good.From
	opt := func(dumps ...[]byte) []byte { return inBytes(fieldOpt, slices.Concat(dumps...)) }
	first, second := dumpOf(adagrad, norms(n0)), dumpOf(softmax, step(7))
	restOf := func(n int) []byte { return appendFloats(nil, fieldRest, make([]float32, n)) }
	missing := 0
	for _, part := range codec.rest {
		missing += part[1] - part[0]
	}
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"whole":                      {slices.Concat(id, num, opt(first, second)), nil},
		"unknown fields":             {slices.Concat(id, num, opt(first, second), raw(77, protowire.VarintType, 1)), nil},
		"the largest step":           {slices.Concat(id, num, opt(first, dumpOf(softmax, step(1<<48-1)))), nil},
		"a step too large":           {slices.Concat(id, num, opt(first, dumpOf(softmax, step(1<<48)))), ErrMismatch},
		"a step below 0":             {slices.Concat(id, num, opt(first, dumpOf(softmax, step(math.MaxUint64)))), ErrMismatch},
		"no step":                    {slices.Concat(id, num, opt(first, dumpOf(softmax))), ErrMismatch},
		"a number less":              {slices.Concat(id, num, opt(dumpOf(adagrad, norms(n0-1)), second)), ErrMismatch},
		"a number more":              {slices.Concat(id, num, opt(dumpOf(adagrad, norms(n0+1)), second)), ErrMismatch},
		"in two parts":               {slices.Concat(id, num, opt(inBytes(fieldDump, slices.Concat(inBytes(adagrad, norms(1)), inBytes(adagrad, norms(n0-1)))), second)), nil},
		"a value less":               {slices.Concat(id, num[5:], opt(first, second)), ErrMismatch},
		"a value more":               {slices.Concat(id, num, num[:5], opt(first, second)), ErrMismatch},
		"an optimizer less":          {slices.Concat(id, num, opt(first)), ErrMismatch},
		"an optimizer more":          {slices.Concat(id, num, opt(first, second, second)), ErrMismatch},
		"in another order":           {slices.Concat(id, num, opt(second, first)), ErrMismatch},
		"an unknown optimizer":       {slices.Concat(id, num, opt(first, inBytes(fieldDump, inBytes(99, nil)))), ErrMismatch},
		"both at once":               {slices.Concat(id, num, opt(inBytes(fieldDump, slices.Concat(inBytes(adagrad, norms(n0)), inBytes(softmax, nil))), second)), ErrCorrupt},
		"no optimizer":               {slices.Concat(id, num), ErrMismatch},
		"no id":                      {slices.Concat(num, opt(first, second)), ErrCorrupt},
		"an id as a varint":          {slices.Concat(raw(fieldID, protowire.VarintType, 1), num, opt(first, second)), ErrCorrupt},
		"values as a varint":         {slices.Concat(id, raw(fieldNum, protowire.VarintType, 1)), ErrCorrupt},
		"values of three bytes":      {slices.Concat(id, inBytes(fieldNum, make([]byte, 15))), ErrCorrupt},
		"opt as a varint":            {slices.Concat(id, num, raw(fieldOpt, protowire.VarintType, 1)), ErrCorrupt},
		"a dump as a varint":         {slices.Concat(id, num, opt(raw(fieldDump, protowire.VarintType, 1))), ErrCorrupt},
		"an optimizer as a varint":   {slices.Concat(id, num, opt(inBytes(fieldDump, raw(adagrad, protowire.VarintType, 1)))), ErrCorrupt},
		"a plane as a varint":        {slices.Concat(id, num, opt(dumpOf(adagrad, raw(normField, protowire.VarintType, 1)), second)), ErrCorrupt},
		"a step in 32 bits":          {slices.Concat(id, num, opt(first, dumpOf(softmax, raw(stepField, protowire.Fixed32Type, zero[:4]...)))), ErrCorrupt},
		"a time in 64 bits":          {slices.Concat(id, num, opt(first, second), raw(fieldTime, protowire.Fixed64Type, zero...)), ErrCorrupt},
		"a tag as a varint":          {slices.Concat(id, num, opt(first, second), raw(fieldTag, protowire.VarintType, 1)), ErrCorrupt},
		"rest as a varint":           {slices.Concat(id, num, opt(first, second), raw(fieldRest, protowire.VarintType, 1)), ErrCorrupt},
		"slots that nobody has":      {slices.Concat(id, num, opt(first, second), restOf(missing+1)), ErrMismatch},
		"an unreadable tag":          {slices.Concat(id, num, opt(first, second), []byte{0x80}), ErrCorrupt},
		"an unreadable field":        {slices.Concat(id, num, opt(first, second), raw(77, protowire.BytesType, 9)), ErrCorrupt},
		"an optimizer it never read": {slices.Concat(id, num, opt(first, dumpOf(adagrad, []byte{0x80}))), ErrCorrupt},
	} {
		row, err := codec.Decode(tc.data)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %+v, %v; want %v", name, row, err, tc.want)
		}
	}
	bare := must(NewCodec(Layout{Dim: 4}, nil))
	bare.Bare = true
	if r, err := bare.Decode(slices.Concat(id, num, opt(second), restOf(9))); err != nil || len(r.Slots) != 0 {
		t.Errorf("a serving table reads %+v, %v", r, err)
	}
}

// Slots beside the dumps come back, too; without them they start anew.
func TestSlotsBesideTheDumps(t *testing.T) {
	l := Layout{Dim: 1, Slots: 5, Dumps: []optim.Dump{{Kind: "adagrad", Planes: []optim.Plane{{Name: "norm", From: 1, To: 2}}}}}
	fresh := []float32{9, 9, 9, 9, 9}
	codec := must(NewCodec(l, fresh))
	if !slices.Equal(codec.rest, [][2]int{{0, 1}, {2, 5}}) {
		t.Errorf("beside the dumps are %v", codec.rest)
	}
	row := table.Row{ID: 3, Values: []float32{1}, Slots: []float32{1, 2, 3, 4, 5}, UnixSec: 6, Tag: 7}
	data := must(codec.Append(nil, row))
	got, err := codec.Decode(data)
	if err != nil || !slices.Equal(got.Slots, row.Slots) || got.Tag != 7 || got.UnixSec != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	rest := bytes.LastIndex(data, raw(fieldRest, protowire.BytesType))
	got, err = codec.Decode(data[:rest])
	if err != nil || !slices.Equal(got.Slots, []float32{9, 2, 9, 9, 9}) {
		t.Errorf("without what the original does not keep: %+v, %v", got, err)
	}
	if _, err := must(NewCodec(l, nil)).Decode(data[:rest]); !errors.Is(err, ErrMismatch) {
		t.Errorf("where every slot is to be in the file: %v", err)
	}
	short := appendFloats(slices.Clone(data[:rest]), fieldRest, []float32{1, 2, 3})
	if _, err := codec.Decode(short); !errors.Is(err, ErrMismatch) {
		t.Errorf("some of them: %v", err)
	}
}

// filterState takes what RestoreFilter hands it.
type filterState struct{ b []byte }

func (s *filterState) UnmarshalBinary(b []byte) error { s.b = b; return nil }
func (s filterState) MarshalBinary() ([]byte, error)  { return s.b, nil }

func TestFilterFilesRecordByRecord(t *testing.T) {
	head := func(version byte, size int) []byte {
		return binary.LittleEndian.AppendUint64(append([]byte(filterMagic), version), uint64(size))
	}
	state := bytes.Repeat([]byte("abc"), 100)
	sum := sha256.Sum256(state)
	for name, tc := range map[string]struct {
		records [][]byte
		want    error
	}{
		"whole":               {[][]byte{head(1, 300), state, sum[:]}, nil},
		"in parts":            {[][]byte{head(1, 300), state[:1], state[1:299], state[299:], sum[:]}, nil},
		"another version":     {[][]byte{head(2, 300), state, sum[:]}, ErrMismatch},
		"a longer head":       {[][]byte{append(head(1, 300), 0), state, sum[:]}, ErrMismatch},
		"a shorter head":      {[][]byte{head(1, 300)[:12], state, sum[:]}, ErrMismatch},
		"magic alone":         {[][]byte{[]byte(filterMagic), state, sum[:]}, ErrForeign},
		"magic and a version": {[][]byte{head(1, 300)[:5], state, sum[:]}, ErrMismatch},
		"the original's":      {[][]byte{[]byte("MLFX\x01 and more that nobody reads"), state}, ErrForeign},
		"a byte more":         {[][]byte{head(1, 299), state, sum[:]}, ErrCorrupt},
		"a byte less":         {[][]byte{head(1, 301), state, sum[:]}, ErrCorrupt},
		"an empty part":       {[][]byte{head(1, 300), {}, state, sum[:]}, ErrCorrupt},
		"another sum":         {[][]byte{head(1, 300), state, make([]byte, 32)}, ErrCorrupt},
		"no sum":              {[][]byte{head(1, 300), state}, ErrCorrupt},
		"nothing":             {nil, ErrCorrupt},
		"a record more":       {[][]byte{head(1, 300), state, sum[:], {}}, ErrCorrupt},
	} {
		dir := t.TempDir()
		foreign(t, dir, "f", records(tc.records...))
		var got filterState
		err := RestoreFilter(filepath.Join(dir, "f"), &got)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || tc.want == nil && !bytes.Equal(got.b, state) || tc.want != nil && got.b != nil {
			t.Errorf("%s: %d bytes, %v; want %v", name, len(got.b), err, tc.want)
		}
	}
	dir := t.TempDir()
	whole := records(head(1, 300), state, sum[:])
	foreign(t, dir, "two", whole, whole)
	if err := RestoreFilter(filepath.Join(dir, "two"), new(filterState)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("two files of one filter: %v", err)
	}
	for _, size := range []int{0, 1, filterChunk, 2*filterChunk + 1} {
		path, kept, got := filepath.Join(dir, fmt.Sprint(size)), filterState{bytes.Repeat([]byte{7}, size)}, filterState{}
		if err := SaveFilter(path, kept, Options{}); err != nil {
			t.Fatal(err)
		}
		if err := RestoreFilter(path, &got); err != nil || !bytes.Equal(got.b, kept.b) {
			t.Errorf("a state of %d bytes: %d, %v", size, len(got.b), err)
		}
	}
}

// nowhere is a file system on which nothing can be made.
type nowhere struct{ files }

var errNowhere = errors.New("no space")

func (nowhere) MkdirAll(string) error { return errNowhere }

func TestSetsAtTheirBounds(t *testing.T) {
	cfg := config("t", every()["sgd"])
	tab := taught(t, cfg, 5)
	for shards, want := range map[int]error{maxShards: errNowhere, maxShards + 1: nil} {
		o := Options{Shards: shards, files: nowhere{}}
		path, p := filepath.Join(t.TempDir(), "t"), Part{Config: cfg, Table: tab}
		for name, err := range map[string]error{"one": Save(path, p, o), "several": SaveMulti(path, []Part{p}, o)} {
			if err == nil || errors.Is(err, errNowhere) != (want != nil) {
				t.Errorf("%s in %d shards: %v", name, shards, err)
			}
		}
	}
	for _, path := range []string{"", "/", ".", "..", t.TempDir() + "/.."} {
		if err := Save(path, Part{Config: cfg, Table: tab}, Options{files: nowhere{}}); err == nil || errors.Is(err, errNowhere) {
			t.Errorf("a set called %q: %v", path, err)
		}
	}
	// Any number of workers writes the same.
	var first []byte
	for _, workers := range []int{-1, 0, 1, 9} {
		path := filepath.Join(t.TempDir(), "t")
		if err := Save(path, Part{Config: cfg, Table: tab}, Options{Shards: 2, Workers: workers}); err != nil {
			t.Fatal(err)
		}
		sums := must(os.ReadFile(path + sumsSuffix))
		if first == nil {
			first = sums
		}
		if !bytes.Equal(first, sums) {
			t.Errorf("%d workers write another set", workers)
		}
	}
	// Rows around the size of a batch, in one table and carried from another.
	for _, n := range []int{batch - 1, batch, batch + 1} {
		path := filepath.Join(t.TempDir(), "m")
		tab := taught(t, cfg, n)
		if err := SaveMulti(path, []Part{{Config: cfg, Table: tab}}, Options{}); err != nil {
			t.Fatal(err)
		}
		got, err := RestoreMulti(path, []table.Config{cfg}, nil, Reading{})
		if err != nil || got.Tables["t"].Hash() != tab.Hash() {
			t.Errorf("%d rows: %v", n, err)
		}
		empty := must(table.New(cfg))
		if err := SaveMulti(path, []Part{{Config: cfg, Table: empty}}, Options{}); err != nil {
			t.Fatal(err)
		}
		got, err = RestoreMulti(path, []table.Config{cfg}, map[string]*table.Table{"t": tab}, Reading{})
		if err != nil || got.Tables["t"].Hash() != tab.Hash() {
			t.Errorf("%d rows that were there: %v", n, err)
		}
	}
}

// A file that the sums name and that is no shard, and a shard that they do not name.
func TestSumsThatAreNoSet(t *testing.T) {
	cfg := config("t", every()["sgd"])
	for name, change := range map[string]func(*sums){
		"another's file":   func(s *sums) { s.Files[0].Name = "u-00000-of-00002" },
		"no shard":         func(s *sums) { s.Files[0].Name = "t-00000" },
		"a shard less":     func(s *sums) { s.Files = s.Files[:1] },
		"another format":   func(s *sums) { s.Format = 2 },
		"other bytes":      func(s *sums) { s.Files[1].Bytes++ },
		"other rows":       func(s *sums) { s.Files[1].Rows++ },
		"another checksum": func(s *sums) { s.Files[1].CRC = "00000000" },
	} {
		path := filepath.Join(t.TempDir(), "t")
		if err := Save(path, Part{Config: cfg, Table: taught(t, cfg, 5)}, Options{Shards: 2}); err != nil {
			t.Fatal(err)
		}
		s := must(openSet(split(path)))
		said := sums{Format: sumsFormat, Files: []fileSum{s.sums["t-00000-of-00002"], s.sums["t-00001-of-00002"]}}
		change(&said)
		if err := os.WriteFile(path+sumsSuffix, must(said.seal()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(path, cfg, Reading{}); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Blocks hold at most what TensorFlow's readers take, and a reader allows somewhat more.
func TestBlocksAtTheirBounds(t *testing.T) {
	for size, ok := range map[int]bool{maxBlock: true, maxBlock + 1: false} {
		block := snappy.Encode(nil, make([]byte, size))
		framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(block))), block...)
		var got bytes.Buffer
		if _, err := got.ReadFrom(newUnframer(bytes.NewReader(framed))); (err == nil) != ok || ok && got.Len() != size || !ok && !errors.Is(err, ErrCorrupt) {
			t.Errorf("a block of %d bytes: %d, %v", size, got.Len(), err)
		}
	}
	most := uint32(snappy.MaxEncodedLen(maxBlock))
	for size, says := range map[uint32]string{most: "ends inside", most + 1: "are accepted"} {
		if _, err := newUnframer(bytes.NewReader(binary.BigEndian.AppendUint32(nil, size))).Read(make([]byte, 1)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("a block that claims %d bytes: %v", size, err)
		}
	}
}

func TestEntryDumpsAtTheirBounds(t *testing.T) {
	f := must(NewWritableFile(filepath.Join(t.TempDir(), "f")))
	for dim, ok := range map[int]bool{0: true, table.MaxDim - 1: true, table.MaxDim: false} {
		if err := f.AppendEntryDump([]int64{1}, []float32{1}, make([]float32, dim)); (err == nil) != ok {
			t.Errorf("%d numbers: %v", dim, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
