package entrydump

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// every is one optimizer of each kind; dims are what it takes.
func every() map[string]table.Segment {
	adagrad := must(optim.NewAdagrad(0.1, 0.1, 0))
	seg := func(dim int, o optim.Optimizer) table.Segment {
		return table.Segment{Dim: dim, Optimizer: o, Initializer: table.RandomUniform{Min: -1, Max: 1}}
	}
	return map[string]table.Segment{
		"sgd":                seg(3, must(optim.NewSGD(0.1))),
		"adagrad":            seg(3, adagrad),
		"ftrl":               seg(3, must(optim.NewFTRL(optim.FTRL{LearningRate: 0.1, Beta: 1, InitialAccumulator: 0.1}))),
		"adadelta":           seg(3, must(optim.NewAdadelta(optim.Adadelta{LearningRate: 0.1, AveragingRatio: 0.9, Epsilon: 0.01}))),
		"adam":               seg(3, must(optim.NewAdam(optim.Adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 0.01}))),
		"amsgrad":            seg(3, must(optim.NewAMSGrad(optim.AMSGrad{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 0.01}))),
		"momentum":           seg(3, must(optim.NewMomentum(optim.Momentum{LearningRate: 0.1, Momentum: 0.9}))),
		"moving_average":     seg(3, must(optim.NewMovingAverage(0.9))),
		"rmsprop":            seg(3, must(optim.NewRMSProp(optim.RMSProp{LearningRate: 0.1, Momentum: 0.9}))),
		"rmspropv2":          seg(3, must(optim.NewRMSPropV2(optim.RMSPropV2{LearningRate: 0.1, Momentum: 0.9}))),
		"batch_softmax":      seg(1, must(optim.NewBatchSoftmax(0.1))),
		"group_adagrad":      seg(3, must(optim.NewGroupAdagrad(optim.GroupAdagrad{LearningRate: 0.1, Beta: 1, InitialAccumulator: 0.1}))),
		"group_ftrl":         seg(3, must(optim.NewGroupFTRL(optim.GroupFTRL{LearningRate: 0.1, Beta: 1}))),
		"dynamic_wd_adagrad": seg(3, must(optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{LearningRate: 0.1, InitialAccumulator: 0.1, WeightDecay: 0.1, Temperature: 2, Dynamic: true}))),
		"dc":                 seg(3, must(optim.NewDC(0.1, adagrad))),
		"dc of average":      seg(3, must(optim.NewDC(0.1, must(optim.NewMovingAverage(0.9))))),
		"rounding":           seg(3, must(optim.NewStochasticRounding(adagrad, 1))),
	}
}

func config(name string, segments ...table.Segment) table.Config {
	return table.Config{Name: name, Segments: segments, Seed: 5}
}

// taught is a table of cfg with n rows that have been updated some times.
func taught(t testing.TB, cfg table.Config, n int) *table.Table {
	t.Helper()
	tab, err := table.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for step := range 3 {
		var ids []int64
		var grads []float32
		for i := range n {
			if step > 0 && i%3 == 0 {
				continue
			}
			ids = append(ids, int64(i%7)<<48|int64(i))
			for range tab.Dim() {
				grads = append(grads, r.Float32()-0.5)
			}
		}
		if err := tab.OptimizeAt(ids, grads, uint32(1000*step+n), table.Rates{GlobalStep: int64(step) + 1<<30}); err != nil {
			t.Fatal(err)
		}
	}
	return tab
}

// TestEveryOptimizer writes and reads rows of each optimizer, alone and as a segment
// between others: all that a row knows must come back, bit for bit.
func TestEveryOptimizer(t *testing.T) {
	all := every()
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			for _, cfg := range []table.Config{config("one", s), config("three", all["ftrl"], s, all["adam"])} {
				path := filepath.Join(t.TempDir(), "model.ckpt-1.assets", "MonolithHashTable_ab_0")
				tab := taught(t, cfg, 50)
				if err := Save(path, Part{Config: cfg, Table: tab}, Options{Shards: 3}); err != nil {
					t.Fatal(err)
				}
				got, err := Restore(path, cfg, Reading{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tab.Snapshot(), got.Snapshot()); diff != "" {
					t.Errorf("table %s (-saved +restored):\n%s", cfg.Name, diff)
				}
				if got.Newest() != tab.Newest() {
					t.Errorf("its clock is %d, it was %d", got.Newest(), tab.Newest())
				}
			}
		})
	}
}

// TestCodecAgainstProtobuf has protobuf's own code read what Append writes, and Decode
// read what that writes, packed and with fields in another order.
func TestCodecAgainstProtobuf(t *testing.T) {
	all := every()
	cfg := config("t", all["adam"], all["group_adagrad"], all["dynamic_wd_adagrad"], all["batch_softmax"], all["dc"], all["sgd"])
	codec := must(CodecOf(cfg))
	for _, r := range taught(t, cfg, 20).Snapshot() {
		r.Tag = uint64(r.ID) % 3
		data, err := codec.Append([]byte("x"), r)
		if err != nil {
			t.Fatal(err)
		}
		data = data[1:]
		var d monolithpb.EntryDump
		if err := proto.Unmarshal(data, &d); err != nil {
			t.Fatal(err)
		}
		if len(d.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("unknown fields %x", d.ProtoReflect().GetUnknown())
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&d)
		if err != nil || string(again) != string(data) {
			t.Errorf("protobuf writes %x, the codec %x", again, data)
		}
		// Slots by name, counted by hand: adam has m, v and two powers.
		adam, group := d.GetOpt().GetDump()[0].GetAdam(), d.GetOpt().GetDump()[1].GetGroupAdagrad()
		if !slices.Equal(adam.GetM(), r.Slots[:3]) || !slices.Equal(adam.GetV(), r.Slots[3:6]) || adam.GetBeta1Power() != r.Slots[6] || adam.GetBeta2Power() != r.Slots[7] || group.GetGradSquareSum() != r.Slots[8] {
			t.Errorf("slots %v were written as %v and %v", r.Slots, adam, group)
		}
		wd := d.GetOpt().GetDump()[2].GetDynamicWdAdagrad()
		if want := optim.Int(r.Slots[12:14]); wd.GetLastUpdateStep() != want || want < 1<<30 {
			t.Errorf("last_update_step is %d, want %d", wd.GetLastUpdateStep(), want)
		}
		packed := repack(data)
		if len(packed) >= len(data) {
			t.Fatalf("repacked %d bytes to %d", len(data), len(packed))
		}
		for _, b := range [][]byte{data, packed} {
			got, err := codec.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r, got); diff != "" {
				t.Fatalf("decoded (-want +got):\n%s", diff)
			}
		}
	}
}

// repack writes a message again: lists of floats packed, its fields from last to first.
func repack(data []byte) []byte {
	var fields [][]byte
	var floats []byte
	var nums protowire.Number
	flush := func() {
		if len(floats) > 0 {
			b := protowire.AppendTag(nil, nums, protowire.BytesType)
			fields = append(fields, protowire.AppendBytes(b, floats))
			floats = nil
		}
	}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		size := protowire.ConsumeFieldValue(num, typ, data[n:])
		if typ == protowire.Fixed32Type {
			if num != nums {
				flush()
			}
			nums = num
			floats = append(floats, data[n:n+size]...)
		} else {
			flush()
			fields = append(fields, slices.Clone(data[:n+size]))
		}
		data = data[n+size:]
	}
	flush()
	slices.Reverse(fields)
	return slices.Concat(fields...)
}

// TestGoldenRecord is the facts' vector, M.5.
func TestGoldenRecord(t *testing.T) {
	cfg := config("t", table.Segment{Dim: 2, Optimizer: must(optim.NewSGD(1)), Initializer: table.Zeros{}})
	data, err := must(CodecOf(cfg)).Append(nil, table.Row{ID: 1, Values: []float32{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(data), "090100000000000000"+"1500000000"+"150000803f"+"1a040a021200"+"2000"; got != want {
		t.Errorf("payload %s, want %s", got, want)
	}
	tab := must(table.New(cfg))
	if err := tab.Restore([]table.Row{{ID: 1, Values: []float32{0, 1}}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "t")
	if err := Save(path, Part{Config: cfg, Table: tab}, Options{}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path + "-00000-of-00001")
	if got, want := hex.EncodeToString(file), "1b000000000000001a0d9e13"+hex.EncodeToString(data)+"338ffcd9"; err != nil || got != want {
		t.Errorf("record %s, %v; want %s", got, err, want)
	}
	// An entry with only moving_average still has an empty field 3.
	cfg = config("t", table.Segment{Dim: 1, Optimizer: must(optim.NewMovingAverage(0.5)), Initializer: table.Zeros{}})
	data, _ = must(CodecOf(cfg)).Append(nil, table.Row{ID: 1, Values: []float32{0}})
	if got := hex.EncodeToString(data); got != "090100000000000000"+"1500000000"+"1a00"+"2000" {
		t.Errorf("moving_average alone is written as %s", got)
	}
}

func TestShardsAndNames(t *testing.T) {
	for _, tc := range []struct{ asked, rows, want int }{
		{0, 0, 1}, {-1, 999_999, 1}, {-1, 2_500_000, 2}, {-1, 90_000_000, 4}, {7, 3, 7},
	} {
		if got := ShardCount(tc.asked, tc.rows); got != tc.want {
			t.Errorf("ShardCount(%d, %d) = %d, want %d", tc.asked, tc.rows, got, tc.want)
		}
	}
	if got := BaseName("a:b/c"); got != "a-b-c" {
		t.Errorf("BaseName is %q", got)
	}
	cfg := config("t", every()["sgd"])
	dir := t.TempDir()
	tab := taught(t, cfg, 5)
	for _, shards := range []int{4, 9, 2} { // more than rows, and others than before
		if err := Save(filepath.Join(dir, "t_1"), Part{Config: cfg, Table: tab}, Options{Shards: shards}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, e := range must(os.ReadDir(dir)) {
		names = append(names, e.Name())
	}
	if want := []string{"t_1-00000-of-00002", "t_1-00001-of-00002", "t_1.sums"}; !slices.Equal(names, want) {
		t.Errorf("after a save in 2 shards there is %v", names)
	}
	// Names that only begin the same are another table's.
	if err := Save(filepath.Join(dir, "t_10"), Part{Config: cfg, Table: taught(t, cfg, 8)}, Options{}); err != nil {
		t.Fatal(err)
	}
	// A stray file of a save under way breaks nothing.
	if err := os.WriteFile(filepath.Join(dir, "t_1-00000-of-00003-tmp-99"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := Restore(filepath.Join(dir, "t_1"), cfg, Reading{}); err != nil || got.Len() != 5 {
		t.Errorf("beside others' files: %v", err)
	}
	if base, ok := FirstSet(dir, "none", "t_10", "t_1"); !ok || base != "t_10" {
		t.Errorf("FirstSet finds %q", base)
	}
	if _, ok := FirstSet(dir, "t", "t_"); ok {
		t.Error("FirstSet finds what is not there")
	}
}

// foreign writes a set as another program would: records without sums.
func foreign(t testing.TB, dir, base string, shards ...[]byte) {
	t.Helper()
	for i, b := range shards {
		if b == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, ShardName(base, i, len(shards))), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func records(data ...[]byte) []byte {
	var b appender
	w := tfrecord.NewWriter(&b)
	for _, d := range data {
		_ = w.Write(d)
	}
	return append([]byte{}, b.b...)
}

func TestSetsOfOthers(t *testing.T) {
	cfg := config("t", every()["sgd"])
	codec := must(CodecOf(cfg))
	row := func(id int64) []byte {
		return must(codec.Append(nil, table.Row{ID: id, Values: []float32{1, 2, 3}}))
	}
	one, two := records(row(1)), records(row(2))
	for _, tc := range []struct {
		name string
		make func(dir string)
		want error
		says string
	}{
		{"whole", func(dir string) { foreign(t, dir, "t", one, two) }, nil, ""},
		{"an empty shard", func(dir string) { foreign(t, dir, "t", one, []byte{}) }, nil, ""},
		{"none", func(string) {}, fs.ErrNotExist, "t-*-of-*"},
		{"one missing", func(dir string) { foreign(t, dir, "t", one, nil, two) }, ErrIncomplete, "t-00001-of-00003 is missing, there are 2 of 3"},
		{"two saves", func(dir string) { foreign(t, dir, "t", one); foreign(t, dir, "t", nil, two) }, ErrIncomplete, "shards of 1 and of 2"},
		{"an id twice", func(dir string) { foreign(t, dir, "t", one, one) }, ErrCorrupt, "2 rows have only 1 different ids"},
		{"cut short", func(dir string) { foreign(t, dir, "t", one[:len(one)-1]) }, ErrCorrupt, "cut short"},
		{"no message", func(dir string) { foreign(t, dir, "t", records([]byte{0xff})) }, ErrCorrupt, "record 0"},
		{"no id", func(dir string) { foreign(t, dir, "t", records(row(1)[9:])) }, ErrCorrupt, "no id"},
		{"the reserved id", func(dir string) { foreign(t, dir, "t", records(row(table.NoID))) }, nil, "reserved"},
		{"a huge record", func(dir string) {
			head := binary.LittleEndian.AppendUint64(nil, 1<<40)
			foreign(t, dir, "t", binary.LittleEndian.AppendUint32(head, tfrecord.Masked(head)))
		}, ErrCorrupt, "too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			tc.make(dir)
			_, err := Restore(filepath.Join(dir, "t"), cfg, Reading{})
			if tc.want == nil && tc.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if tc.want != nil && !errors.Is(err, tc.want) || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("Restore = %v; want %v that says %q", err, tc.want, tc.says)
			}
		})
	}
}

func TestMismatches(t *testing.T) {
	all := every()
	saved := config("t", all["adagrad"], all["ftrl"])
	tab := taught(t, saved, 10)
	path := filepath.Join(t.TempDir(), "t")
	if err := Save(path, Part{Config: saved, Table: tab}, Options{}); err != nil {
		t.Fatal(err)
	}
	narrow := all["adagrad"]
	narrow.Dim = 2
	limited := saved
	limited.MaxRows = 9
	for _, tc := range []struct {
		name string
		cfg  table.Config
		want error
		says string
	}{
		{"another optimizer", config("t", all["adagrad"], all["adadelta"]), ErrMismatch, "was saved by adagrad, ftrl, the table has adagrad, adadelta"},
		{"fewer segments", config("t", table.Segment{Dim: 6, Optimizer: all["adagrad"].Optimizer, Initializer: table.Zeros{}}), ErrMismatch, "was saved by 2 optimizers"},
		{"another dim", config("t", all["adagrad"]), ErrMismatch, "has 6 values where dim is 3"},
		{"segments of another size", config("t", narrow, table.Segment{Dim: 4, Optimizer: all["ftrl"].Optimizer, Initializer: table.Zeros{}}), ErrMismatch, "3 numbers of adagrad.norm where 2 belong"},
		{"a smaller table", limited, table.ErrFull, "MaxRows"},
	} {
		if _, err := Restore(path, tc.cfg, Reading{}); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: Restore = %v; want %v that says %q", tc.name, err, tc.want, tc.says)
		}
	}
	// A serving table takes the same files, without slots, compressed.
	serving := table.Config{Name: "t", Serving: true, SkipZero: true, Segments: []table.Segment{{Dim: 2, Compressor: compress.FP16{}}, {Dim: 4, Compressor: must(compress.NewFixedR8(4))}}}
	got, err := Restore(path, serving, Reading{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Snapshot() {
		want := tab.Snapshot()[i]
		if r.ID != want.ID || r.UnixSec != want.UnixSec || len(r.Slots) > 0 {
			t.Fatalf("serving row %+v of %+v", r, want)
		}
		for j, x := range r.Values {
			bound := 4.0 / 256 // half a step of fixed_r8
			if j < 2 {
				bound = math.Abs(float64(want.Values[j])) / 2048
			}
			if d := math.Abs(float64(x - want.Values[j])); d > bound+1e-7 {
				t.Errorf("id %d: %g is served as %g", r.ID, want.Values[j], x)
			}
		}
	}
	// And a serving table can be saved; its rows say nothing of optimizers.
	path2 := filepath.Join(t.TempDir(), "s")
	if err := Save(path2, Part{Config: serving, Table: got}, Options{}); err != nil {
		t.Fatal(err)
	}
	if again, err := Restore(path2, serving, Reading{}); err != nil || again.Hash() != got.Hash() {
		t.Errorf("a serving table comes back otherwise: %v", err)
	}
	if _, err := Restore(path2, saved, Reading{}); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "says nothing of its optimizer") {
		t.Errorf("rows without optimizers: %v", err)
	}
	trained, err := Restore(path2, saved, Reading{Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	_, fresh := LayoutOf(saved)
	if rows := trained.Snapshot(); len(rows) != 10 || !slices.Equal(rows[3].Slots, fresh) {
		t.Errorf("rows without optimizers start with %v", rows)
	}
}

func TestExpiredRowsAreNotSaved(t *testing.T) {
	cfg := config("t", every()["sgd"])
	tab := must(table.New(cfg))
	const day = 86400
	rows := []table.Row{
		{ID: 1<<48 | 1, Values: []float32{1, 1, 1}, UnixSec: 10 * day},
		{ID: 1<<48 | 2, Values: []float32{1, 1, 1}, UnixSec: 7 * day}, // 3 days before the newest: gone, the bound included
		{ID: 1<<48 | 3, Values: []float32{1, 1, 1}, UnixSec: 7*day + 1},
		{ID: 2<<48 | 4, Values: []float32{1, 1, 1}, UnixSec: 1}, // slot 2 never expires
	}
	if err := tab.Restore(rows); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "t")
	e := &table.Expiry{Days: map[int]uint32{2: 0}, DefaultDays: 3}
	if err := Save(path, Part{Config: cfg, Table: tab, Expire: e}, Options{}); err != nil {
		t.Fatal(err)
	}
	got := must(Restore(path, cfg, Reading{}))
	var ids []int64
	for _, r := range got.Snapshot() {
		ids = append(ids, r.ID)
	}
	if want := []int64{1<<48 | 1, 1<<48 | 3, 2<<48 | 4}; !slices.Equal(ids, want) || tab.Len() != 4 {
		t.Errorf("saved %v of %d rows", ids, tab.Len())
	}
}

// TestEveryBit flips each bit, cuts at each byte: our own sets notice all of it.
func TestEveryBit(t *testing.T) {
	all := every()
	cfgs := []table.Config{config("a", all["adam"]), config("b", all["sgd"])}
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	var parts []Part
	for _, cfg := range cfgs {
		parts = append(parts, Part{Config: cfg, Table: taught(t, cfg, 3)})
	}
	if err := SaveMulti(path, parts, Options{}); err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(dir, "one")
	if err := Save(one, parts[0], Options{}); err != nil {
		t.Fatal(err)
	}
	refused := func(err error) bool {
		return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrIncomplete) || errors.Is(err, ErrMismatch)
	}
	for _, name := range []string{"m-00000-of-00001", "m.meta-00000-of-00001", "m.sums", "one-00000-of-00001", "one.sums"} {
		file := filepath.Join(dir, name)
		whole := must(os.ReadFile(file))
		restore := func() error {
			if strings.HasPrefix(name, "one") {
				_, err := Restore(one, cfgs[0], Reading{})
				return err
			}
			_, err := RestoreMulti(path, cfgs, nil, Reading{})
			return err
		}
		try := func(what string, b []byte) {
			if err := os.WriteFile(file, b, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := restore(); !refused(err) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		for i := range whole {
			b := slices.Clone(whole)
			b[i] ^= 1 << (i % 8)
			try(fmt.Sprintf("bit of byte %d", i), b)
			try(fmt.Sprintf("cut at %d", i), whole[:i])
		}
		try("longer", append(slices.Clone(whole), 0))
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := restore(); err != nil {
			t.Fatalf("%s as it was: %v", name, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := restore(); !refused(err) && !strings.HasSuffix(name, ".sums") {
			t.Errorf("%s missing: %v", name, err)
		}
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCodecRefusesLayouts(t *testing.T) {
	plane := func(name string, from, to int) optim.Plane { return optim.Plane{Name: name, From: from, To: to} }
	for name, l := range map[string]Layout{
		"no dim":        {Dim: 0},
		"unknown kind":  {Dim: 1, Slots: 1, Dumps: []optim.Dump{{Kind: "lion"}}},
		"unknown field": {Dim: 1, Slots: 1, Dumps: []optim.Dump{{Kind: "adagrad", Planes: []optim.Plane{plane("n", 0, 1)}}}},
		"outside":       {Dim: 1, Slots: 1, Dumps: []optim.Dump{{Kind: "adagrad", Planes: []optim.Plane{plane("norm", 0, 2)}}}},
		"negative":      {Dim: 1, Slots: 1, Dumps: []optim.Dump{{Kind: "adagrad", Planes: []optim.Plane{plane("norm", -1, 0)}}}},
		"twice":         {Dim: 1, Slots: 1, Dumps: []optim.Dump{{Kind: "ftrl", Planes: []optim.Plane{plane("norm", 0, 1), plane("zero", 0, 1)}}}},
		"not a list":    {Dim: 1, Slots: 2, Dumps: []optim.Dump{{Kind: "adam", Planes: []optim.Plane{plane("beta1_power", 0, 2)}}}},
		"not an int":    {Dim: 1, Slots: 2, Dumps: []optim.Dump{{Kind: "batch_softmax", Planes: []optim.Plane{plane("global_step", 0, 2)}}}},
	} {
		if _, err := NewCodec(l, nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// FuzzDecode: nothing panics, and what is accepted says the same to protobuf's code.
func FuzzDecode(f *testing.F) {
	all := every()
	cfg := config("t", all["adam"], all["dynamic_wd_adagrad"], all["dc"])
	codec := must(CodecOf(cfg))
	for _, r := range taught(f, cfg, 3).Snapshot() {
		b := must(codec.Append(nil, r))
		f.Add(b)
		f.Add(repack(b))
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte{0x1a, 0x04, 0x0a, 0x02, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := codec.Decode(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMismatch) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		var d monolithpb.EntryDump
		if err := proto.Unmarshal(data, &d); err != nil {
			t.Skip("a wire form that protobuf refuses, such as bytes behind a group")
		}
		same := func(a, b []float32) bool {
			return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
		}
		if d.GetId() != r.ID || !same(d.GetNum(), r.Values) || uint32(d.GetLastUpdateTsSec()) != r.UnixSec || d.GetTag() != r.Tag {
			t.Fatalf("decoded %+v, protobuf reads %v", r, &d)
		}
		if m := d.GetOpt().GetDump()[0].GetAdam().GetM(); !same(m, r.Slots[:3]) {
			t.Fatalf("m is %v, protobuf reads %v", r.Slots[:3], m)
		}
	})
}
