package specfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/internal/model/specfile"
)

func TestParse(t *testing.T) {
	text, err := os.ReadFile("../modelspec/testdata/movies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := specfile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(modelspec.MovieRanking(), got, protocmp.Transform()); diff != "" {
		t.Errorf("../modelspec/testdata/movies.yaml is not MovieRanking (-want +got):\n%s", diff)
	}
	asJSON, err := protojson.Marshal(modelspec.MovieRanking())
	if err != nil {
		t.Fatal(err)
	}
	if got, err = specfile.Parse(asJSON); err != nil || !proto.Equal(got, modelspec.MovieRanking()) {
		t.Errorf("JSON: %v", err)
	}
	for name, tc := range map[string]struct{ text, says string }{
		"empty":          {"", "empty"},
		"a list":         {"- a\n", "unmarshal"},
		"unknown key":    {string(text) + "colour: red\n", "colour"},
		"unknown inside": {strings.Replace(string(text), "slot: 1", "slott: 1", 1), "slott"},
		"repeated key":   {string(text) + "name: again\n", "already defined"},
		"two documents":  {string(text) + "---\nname: b\n", "second document"},
		"infinite":       {strings.Replace(string(text), "seed: 1", "seed: .inf", 1), "finite"},
		"wrong type":     {strings.Replace(string(text), "seed: 1", "seed: one", 1), "seed"},
		"too long":       {strings.Repeat("#", specfile.MaxBytes+1), "allowed"},
		"not valid":      {strings.Replace(string(text), "dim: 32", "dim: 0", 1), "has dim 0"},
		"null":           {"null", ""},
	} {
		if _, err := specfile.Parse([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever is accepted is valid, buildable in part, and the same after a round trip.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("../modelspec/testdata/movies.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	every, err := os.ReadFile("../modelspec/testdata/segments.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(every)
	deep, err := os.ReadFile("../modelspec/testdata/deep.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(deep)
	f.Add([]byte("name: x"))
	f.Add([]byte("&a [*a]"))
	f.Add([]byte("{name: 1, 2: 3}"))
	f.Add([]byte("a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*b]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := specfile.Parse(data)
		if err != nil {
			return
		}
		if err := modelspec.Validate(spec); err != nil {
			t.Fatalf("accepted, yet %v", err)
		}
		for _, tab := range spec.Tables {
			if _, err := modelspec.NewTable(spec, tab.Name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := modelspec.Compile(spec); err != nil {
			t.Fatal(err)
		}
		again, err := protojson.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := specfile.Parse(again); err != nil || !proto.Equal(got, spec) {
			t.Fatalf("round trip: %v", err)
		}
	})
}

// A condition's values may stand in a file beside the spec; the declaration has them.
func TestListsInFiles(t *testing.T) {
	text, err := os.ReadFile("../modelspec/testdata/movies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	read := func(where string) (*model.ModelSpec, error) {
		rules := "\nsample_rules:\n- {name: some, where: [" + where + "], keep: {}}\n"
		if err := os.WriteFile(filepath.Join(dir, "spec.yaml"), append(bytes.Clone(text), rules...), 0o644); err != nil {
			t.Fatal(err)
		}
		return specfile.Read(filepath.Join(dir, "spec.yaml"), nil)
	}
	for name, values := range map[string]string{"c.txt": "de\r\n\n at\n7", "none.txt": "\n \n", "many.txt": strings.Repeat("1\n", samplerule.MaxIn+1), "large.txt": strings.Repeat("x", specfile.MaxBytes+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(values), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"c.txt", filepath.Join(dir, "c.txt")} {
		spec, err := read("{field: c, in_file: " + path + ", not: true}")
		if err != nil {
			t.Fatal(err)
		}
		if w := spec.GetSampleRules()[0].GetWhere()[0]; !cmp.Equal(w.GetIn(), []string{"de", " at", "7"}) || w.GetField() != "c" || !w.GetNot() {
			t.Errorf("%s: %v", path, w)
		}
	}
	for where, says := range map[string]string{
		"{field: c, in_file: nowhere.txt}":        "nowhere.txt: no such file",
		"{field: c, in_file: none.txt}":           "none.txt has no values",
		"{field: c, in_file: many.txt}":           "many.txt has 4097 values: 4096 are allowed",
		"{field: c, in_file: large.txt}":          "large.txt is larger than 1048576 bytes",
		"{field: c, in_file: [c.txt]}":            "is the name of one file",
		"{field: c, in_file: c.txt, in: [a]}":     "in",
		"{field: c, in_file: c.txt, at_least: 3}": "both in and a range",
	} {
		if _, err := read(where); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v, want %q with its line", where, err, says)
		}
	}
	// What comes over the network reads no files here.
	text = append(text, "\nsample_rules:\n- {where: [{field: c, in_file: "+filepath.Join(dir, "c.txt")+"}], keep: {}}\n"...)
	if _, err := specfile.Parse(text); err == nil || !strings.Contains(err.Error(), "in_file") {
		t.Error(err)
	}
}
