package instances

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
)

// Records of all framings, as other writers of them put them: the known ones byte by byte.
func TestFramings(t *testing.T) {
	const zero = "0000000000000000"
	for _, tc := range []struct {
		name  string
		f     Framing
		bytes string // of records "ab" and ""
		ours  bool   // is what Append makes of them
	}{
		{"nothing", Framing{}, "0200000000000000" + "6162" + zero, true},
		{"an empty sort id", Framing{SortID: true}, zero + "0200000000000000" + "6162" + zero + zero, true},
		{"a sort id", Framing{SortID: true}, "0100000000000000" + "ff" + "0200000000000000" + "6162" + zero + zero, false},
		{"LagrangeX, which hides the rest", Framing{LagrangeX: true, SortID: true, KafkaDump: true}, zero + "0200000000000000" + "6162" + "0102030400000000" + zero, false},
		{"LagrangeX of ours", Framing{LagrangeX: true}, zero + "0200000000000000" + "6162" + zero + zero, true},
		{"a dump", Framing{KafkaDumpPrefix: true, SortID: true, KafkaDump: true}, zero + zero + zero + zero + "0200000000000000" + "6162" + zero + zero + zero + zero + zero, true},
		{"a dump whose prefix is the id's length", Framing{KafkaDumpPrefix: true, SortID: true, KafkaDump: true}, "0100000000000000" + "ff" + zero + "0200000000000000" + "6162" + "0100000000000000" + "fe" + zero + zero, false},
		{"a prefix alone", Framing{KafkaDumpPrefix: true}, "0900000000000000" + "0200000000000000" + "6162" + zero + zero + zero, false},
	} {
		raw, err := hex.DecodeString(tc.bytes)
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(raw)
		for _, want := range []string{"ab", ""} {
			if got, err := tc.f.Read(r); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v, want %q", tc.name, got, err, want)
			}
		}
		if _, err := tc.f.Read(r); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v at the end", tc.name, err)
		}
		if got := tc.f.Append(tc.f.Append(nil, []byte("ab")), nil); tc.ours != bytes.Equal(got, raw) {
			t.Errorf("%s: it is written as %x", tc.name, got)
		}
		for cut := range raw {
			r := bytes.NewReader(raw[:cut])
			var err error
			for err == nil {
				_, err = tc.f.Read(r)
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, cut at %d: %v", tc.name, cut, err)
			}
		}
	}
	for text, want := range map[string]string{"fefefefe00000000": "never written", "ffffffffffffffff": "framed in another way"} {
		raw, _ := hex.DecodeString(text)
		if _, err := (Framing{}).Read(bytes.NewReader(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func example() *idlpb.Instance {
	return &idlpb.Instance{Fid: []uint64{3<<54 | 1, 1<<63 + 5}, Label: []float32{1, -0.5}, LineId: &idlpb.LineId{Uid: proto.Uint64(7), UserId: proto.String(`a "b"` + "\n"), IsDraw: proto.Bool(true)},
		Feature: []*idlpb.Feature{{Name: proto.String("f"), BytesValue: [][]byte{{0, 255}}, FidList: []*idlpb.Fixed64List{{Value: []uint64{1}}, {}}}, {Name: proto.String("g")}}}
}

// Each form reads what it has written.
func TestForms(t *testing.T) {
	for _, f := range []Form{PB, PBTxt, JSON, Dump} {
		raw, err := f.Format(example())
		if err != nil {
			t.Fatal(err)
		}
		again, err := f.Format(example())
		if err != nil || !bytes.Equal(raw, again) {
			t.Errorf("%s: the same message has two texts:\n%s%s", f, raw, again)
		}
		got := &idlpb.Instance{}
		if err := f.Parse(raw, got); err != nil {
			t.Errorf("%v\n%s", err, raw)
		}
		want := example()
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", f, diff, raw)
		}
		if err := f.Parse([]byte("\xff{"), got); err == nil {
			t.Errorf("%s reads nonsense", f)
		}
	}
	if err := Form("x").Parse(nil, example()); err == nil || !strings.Contains(err.Error(), "give pb, pbtxt, json or dump") {
		t.Error(err)
	}
	if _, err := Form("x").Format(example()); err == nil {
		t.Error("an unknown form is written")
	}
}

func TestDump(t *testing.T) {
	for _, text := range []string{
		"\"fid\":\n  0: \"1\"\n  1: 2\n\"feature\":\n  0:\n    \"name\": \"f\"\n    \"fid\":\n      0: \"3\"\n\"label\":\n  0: 1.5,\n",
		"fid:\n\t0: 1\r\n\n\t1: \"2\"\nfeature:\n 0:\n  name: f\n  fid:\n   0: 3\nlabel:\n    0: 1.5\n",
	} {
		got := &idlpb.Instance{}
		if err := Dump.Parse([]byte(text), got); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		want := &idlpb.Instance{Fid: []uint64{1, 2}, Label: []float32{1.5}, Feature: []*idlpb.Feature{{Name: proto.String("f"), Fid: []uint64{3}}}}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got:\n%s\n%s", diff, text)
		}
	}
	for text, want := range map[string]string{
		"fid\n":                     "line 1",
		"fid: 1\n  0: 1\n":          "line 2 lies below",
		"fid:\n 0: 1\n x: 2\n":      "among the elements",
		"nothing: 1\n":              "nothing",
		strings.Repeat(" ", 3) + "": "",
	} {
		if err := Dump.Parse([]byte(text), &idlpb.Instance{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	deep := ""
	for i := range 100 {
		deep += strings.Repeat(" ", i) + "a:\n"
	}
	if err := Dump.Parse([]byte(deep), &idlpb.Instance{}); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("100 levels: %v", err)
	}
}

func FuzzDump(f *testing.F) {
	raw, err := Dump.Format(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("a:\n 0:\n  0: 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &idlpb.Instance{}
		if Dump.Parse(data, in) != nil {
			return
		}
		raw, err := Dump.Format(in)
		if err != nil {
			return // text that is no UTF-8
		}
		again := &idlpb.Instance{}
		if err := Dump.Parse(raw, again); err != nil || !proto.Equal(in, again) {
			t.Errorf("%q reads as %v, and what is written of that, %q, as %v: %v", data, in, raw, again, err)
		}
	})
}

func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	in := Random(r, nil)
	if len(in.Fid) != 30 {
		t.Fatalf("%d ids", len(in.Fid))
	}
	for i, fid := range in.Fid {
		slot, sig := fid>>54, fid&(1<<54-1)
		if at := uint64(i / 5); slot != at+1 || sig <= 5*at || sig > 5*at+5 {
			t.Errorf("id %d is %d in slot %d", i, sig, slot)
		}
	}
	path := filepath.Join(t.TempDir(), "feature_list.conf")
	text := "# all\ncolumn_name:a,b\nfeed_name=x feature_id=1\nfeature_name=f_user_id slot=1 method=Direct; args=3\nfeature_name=f_top slot=202, method=vectortop args=\"4,x\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	features, err := ReadFeatures(path)
	if diff := cmp.Diff([]Feature{{"f_user_id", 1, 1, false}, {"f_top", 202, 4, true}}, features); diff != "" || err != nil {
		t.Fatalf("%v, -want +got:\n%s", err, diff)
	}
	b, err := RandomBatch(r, features, 50, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int]int{}
	for _, f := range b.NamedFeatureList[1].Feature {
		ids := f.GetFidV2List().GetValue()
		counts[len(ids)]++
		for _, id := range ids {
			if id>>48 != 202 || id&(1<<48-1) == 0 {
				t.Errorf("id %#x", id)
			}
		}
	}
	if len(counts) != 4 || counts[0] != 0 || counts[5] != 0 {
		t.Errorf("numbers of ids: %v, want 1 to 4", counts)
	}
	all, err := Split(b)
	if err != nil || len(all) != 50 {
		t.Fatalf("%d samples, %v", len(all), err)
	}
	for _, in := range all {
		if at := in.GetLineId().GetReqTime(); at >= 10_000 || at < 9_000 || len(in.GetLineId().GetActions()) != 2 || len(in.Feature) != 2 {
			t.Errorf("%v", in)
		}
	}
	for _, bad := range []string{"", "feature_name=a slot=x"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFeatures(path); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// A batch with one of each kind, as instances: ids of version 1 become those of version 2.
func TestSplit(t *testing.T) {
	list := func(name string, shared bool, all ...*matrixpb.Feature) *matrixpb.NamedFeatureList {
		l := &matrixpb.NamedFeatureList{Name: name, Feature: all}
		if shared {
			l.Type = matrixpb.FeatureListType_SHARED
		}
		return l
	}
	line, err := proto.Marshal(&idlpb.LineId{Uid: proto.Uint64(9)})
	if err != nil {
		t.Fatal(err)
	}
	floats := func(v ...float32) *matrixpb.Feature {
		return &matrixpb.Feature{Type: &matrixpb.Feature_FloatList{FloatList: &matrixpb.FloatList{Value: v}}}
	}
	b := &matrixpb.ExampleBatch{BatchSize: 2, NamedFeatureList: []*matrixpb.NamedFeatureList{
		list("__LABEL__", false, floats(1), floats(0, 1)),
		list("__LINE_ID__", true, &matrixpb.Feature{Type: &matrixpb.Feature_BytesList{BytesList: &matrixpb.BytesList{Value: [][]byte{line}}}}),
		list("v1", true, &matrixpb.Feature{Type: &matrixpb.Feature_FidV1List{FidV1List: &matrixpb.FidList{Value: []uint64{0x00C0000000000005}}}}),
		list("mixed", false, floats(2), &matrixpb.Feature{Type: &matrixpb.Feature_Int64List{Int64List: &matrixpb.Int64List{Value: []int64{-3}}}}),
		list("none", false, &matrixpb.Feature{}, &matrixpb.Feature{Type: &matrixpb.Feature_DoubleList{DoubleList: &matrixpb.DoubleList{Value: []float64{0.5}}}}),
	}}
	got, err := Split(b)
	if err != nil {
		t.Fatal(err)
	}
	v1 := &idlpb.Feature{Name: proto.String("v1"), Fid: []uint64{0x0003000000000005}}
	want := []*idlpb.Instance{
		{Label: []float32{1}, LineId: &idlpb.LineId{Uid: proto.Uint64(9)}, Feature: []*idlpb.Feature{v1, {Name: proto.String("mixed"), FloatValue: []float32{2}}}},
		{Label: []float32{0, 1}, LineId: &idlpb.LineId{Uid: proto.Uint64(9)}, Feature: []*idlpb.Feature{v1, {Name: proto.String("mixed"), Int64Value: []int64{-3}}, {Name: proto.String("none"), FloatValue: []float32{0.5}}}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	Share(b, []string{"mixed"})
	if m := b.NamedFeatureList[3]; m.Type != matrixpb.FeatureListType_SHARED || !proto.Equal(m.Feature[1], floats(2)) {
		t.Errorf("shared: %v", m)
	}
	b.NamedFeatureList[4].Feature = b.NamedFeatureList[4].Feature[:1]
	if _, err := Split(b); err == nil || !strings.Contains(err.Error(), `"none" has 1 elements for 2 samples`) {
		t.Errorf("a short column: %v", err)
	}
	if _, err := Split(&matrixpb.ExampleBatch{}); err == nil {
		t.Error("an empty batch passes")
	}
}
