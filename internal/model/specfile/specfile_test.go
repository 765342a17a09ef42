package specfile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/model/modelspec"
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
