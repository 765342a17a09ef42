package checkpoint

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/powercut"
)

// A shard or an entry whose write has returned is there after a cut, also where a name is
// on disk after a sync of its folder alone: made with its folders, and replaced.
func TestPowerCut(t *testing.T) {
	for name, policy := range map[string]powercut.Policy{"journal": powercut.Journal, "strict": powercut.Strict} {
		t.Run(name, func(t *testing.T) {
			mount, disk := powercut.ForTest(t, policy)
			cut := func() {
				t.Helper()
				if err := disk.Cut(powercut.Nothing, nil, func() {}, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			is := func(dir string, want Manifest) {
				t.Helper()
				got, err := ReadShard(dir)
				if err != nil {
					t.Fatalf("the shard after the cut: %v", err)
				}
				if diff := cmp.Diff(want, got.Manifest); diff != "" {
					t.Errorf("the shard after the cut (-want +got):\n%s", diff)
				}
			}
			dir := filepath.Join(mount, "training", "movies", "model.ckpt-3", "ps_1")
			made, err := CreateShard(dir, small())
			if err != nil {
				t.Fatal(err)
			}
			cut()
			is(dir, made)
			later := small()
			later.Manifest.Step++
			replaced, err := WriteShard(dir, later)
			if err != nil {
				t.Fatal(err)
			}
			cut()
			is(dir, replaced)
			entry := filepath.Join(mount, "training", "movies", "exported_models", "entry", "1")
			want := &Entry{Spec: modelspec.MovieRanking(), Version: 7, Job: "movies", Shards: 2, Dense: map[string]Variable{"b": {Values: []float32{42}}},
				Files: map[string][]byte{"saved_model.pb": []byte("graph"), "assets.extra/requests": []byte("more")}}
			if err := WriteEntry(entry, want); err != nil {
				t.Fatal(err)
			}
			cut()
			if got, err := ReadEntry(entry); err != nil || got.Version != want.Version || len(got.Dense) != 1 || !cmp.Equal(got.Files, want.Files) {
				t.Errorf("the entry after the cut: %+v, %v", got, err)
			}
		})
	}
}
