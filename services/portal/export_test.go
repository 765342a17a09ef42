package portal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	for _, tc := range []struct {
		name     string
		folders  []string // a trailing "!" makes a file
		shards   int
		versions []int64
		problem  string
	}{
		{"whole", []string{"entry/1", "entry/12", "ps_0/1", "ps_0/12", "ps_1/1", "ps_1/12"}, 2, []int64{1, 12}, ""},
		{"only what all have", []string{"entry/1", "entry/2", "entry/3", "ps_0/1", "ps_0/2", "ps_1/2", "ps_1/3"}, 2, []int64{2}, ""},
		{"names that are no versions", []string{"entry/1", "entry/.tmp-2", "entry/0", "entry/007", "entry/2x", "entry/9!", "ps_0/1", "ps_0/9", "ps_0/0", "ps_0/007"}, 1, []int64{1}, ""},
		{"folders beside it", []string{"entry/1", "ps_0/1", "ps_x/1", "ps_01/1", "dense_0/1", "README!"}, 1, []int64{1}, ""},
		{"no entry", []string{"ps_0/1"}, 0, nil, "does not hold entry/"},
		{"no shard", []string{"entry/1"}, 0, nil, "does not hold entry/ and ps_0/"},
		{"a hole", []string{"entry/1", "ps_0/1", "ps_2/1"}, 0, nil, "ps_1 is missing"},
		{"nothing in common", []string{"entry/1", "ps_0/2"}, 0, nil, "no version that entry and all 1 ps folders hold"},
		{"empty", nil, 0, nil, "does not hold entry/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tc.folders {
				path := filepath.Join(dir, strings.TrimSuffix(f, "!"))
				if strings.HasSuffix(f, "!") {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, nil, 0o644); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if err := os.MkdirAll(path, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			got := inspect(dir)
			if tc.problem != "" {
				if !strings.Contains(got.problem, tc.problem) {
					t.Fatalf("problem %q, want one that says %q", got.problem, tc.problem)
				}
				return
			}
			if got.problem != "" || got.shards != tc.shards || !slices.Equal(got.versions, tc.versions) {
				t.Fatalf("got %+v, want %d shards, versions %v", got, tc.shards, tc.versions)
			}
		})
	}
	if got := inspect(filepath.Join(t.TempDir(), "gone")); !strings.Contains(got.problem, "cannot be read") {
		t.Errorf("a missing folder: %+v", got)
	}
}

func TestInspectFollowsLinks(t *testing.T) {
	real, dir := t.TempDir(), t.TempDir()
	for _, sub := range []string{"entry/4", "ps_0/4"} {
		if err := os.MkdirAll(filepath.Join(real, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"entry", "ps_0"} {
		if err := os.Symlink(filepath.Join(real, sub), filepath.Join(dir, sub)); err != nil {
			t.Fatal(err)
		}
	}
	if got := inspect(dir); got.problem != "" || got.shards != 1 || !slices.Equal(got.versions, []int64{4}) {
		t.Fatalf("got %+v", got)
	}
}

// A host has the versions that were written while the job's chief was on it, the facts tell of all.
func TestExportsHereAndElsewhere(t *testing.T) {
	here, told := export{shards: 1, versions: []int64{2, 3}, ckptProblem: "no record"}, export{shards: 1, versions: []int64{3, 4}, ckptVersion: 4}
	if got := here.and(told); !slices.Equal(got.versions, []int64{2, 3, 4}) || got.ckptVersion != 4 || got.ckptProblem != "" || got.problem != "" {
		t.Errorf("%+v", got)
	}
}
