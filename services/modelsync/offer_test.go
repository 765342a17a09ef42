package modelsync

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/modelcopy/modelcopytest"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// TestHandOut: a host hands out its copies, and of its folders exports alone.
func TestHandOut(t *testing.T) {
	base := t.TempDir()
	srv := filepath.Join(base, "srv")
	exported := filepath.Join(srv, "movies", "exported_models")
	modelcopytest.Shard(t, filepath.Join(exported, "ps_0", "3"))
	modelcopytest.Shard(t, filepath.Join(srv, "movies", "model.ckpt-3", "ps_0"))
	modelcopytest.Shard(t, filepath.Join(base, "other", "exported_models", "ps_0", "3"))
	if err := os.Symlink(filepath.Join(base, "other", "exported_models"), filepath.Join(srv, "link")); err != nil {
		t.Fatal(err)
	}
	root := copies(t, base)
	s := &Server{cfg: Config{Dir: root.Name(), Host: "h", Exports: []string{srv}}}
	copied := target{model: "m", sub: "ps_0", version: 3, origin: "/elsewhere/exported_models"}
	modelcopytest.Shard(t, filepath.Join(root.Name(), copied.place()))
	for _, tc := range []struct {
		name string
		ask  peer.Ask
		ok   bool
	}{
		{"an export", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: exported}, true},
		{"a copy of what is not here", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: "/elsewhere/exported_models"}, true},
		{"another version", peer.Ask{Model: "m", Sub: "ps_0", Version: 4, Dir: exported}, false},
		{"another folder", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: filepath.Join(base, "other", "exported_models")}, false},
		{"another folder by a link", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: filepath.Join(srv, "link")}, false},
		{"a folder that climbs", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: srv + "/../other/exported_models"}, false},
		{"a sub-model that climbs", peer.Ask{Model: "m", Sub: "../exported_models/ps_0", Version: 3, Dir: exported}, false},
		{"a model that climbs", peer.Ask{Model: "..", Sub: "ps_0", Version: 3, Dir: exported}, false},
		{"a checkpoint", peer.Ask{Model: "m", Sub: "model.ckpt-3", Version: 0, Dir: filepath.Join(srv, "movies")}, false},
		{"a part of a checkpoint", peer.Ask{Part: "model.ckpt-3/ps_0", Dir: filepath.Join(srv, "movies")}, true},
		{"a part that is not here", peer.Ask{Part: "model.ckpt-3/ps_1", Dir: filepath.Join(srv, "movies")}, false},
		{"a part in another folder", peer.Ask{Part: "model.ckpt-3/ps_0", Dir: filepath.Join(base, "other")}, false},
		{"a part in a relative folder", peer.Ask{Part: "model.ckpt-3/ps_0", Dir: "movies"}, false},
		{"a folder that is no part", peer.Ask{Part: "exported_models/ps_0", Dir: filepath.Join(srv, "movies")}, false},
		{"a part that climbs", peer.Ask{Part: "model.ckpt-3/../model.ckpt-3/ps_0", Dir: filepath.Join(srv, "movies")}, false},
		{"a relative folder", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: "exported_models"}, false},
		{"the copies as an export", peer.Ask{Model: "m", Sub: "ps_0", Version: 3, Dir: filepath.Dir(filepath.Dir(filepath.Join(root.Name(), copied.place())))}, false},
	} {
		dir, err := s.handOut(root, tc.ask)
		if err == nil {
			_ = dir.Close()
		}
		if (err == nil) != tc.ok || !tc.ok && !errors.Is(err, peer.ErrNotHere) && !errors.Is(err, os.ErrNotExist) && tc.name != "another folder by a link" {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestPartsOfFetches: what was fetched in part stays at a start while its place is wanted, and of a
// version what is of other content goes.
func TestPartsOfFetches(t *testing.T) {
	root := copies(t, t.TempDir())
	parent := "m/0/ps_0"
	for _, name := range []string{".part-1-aa", ".part-1-bb", ".part-11-aa", ".tmp-1-x"} {
		modelcopytest.Write(t, filepath.Join(root.Name(), parent, name, "f"), "x")
	}
	if err := modelcopy.Sweep(root, versionDepth); err != nil {
		t.Fatal(err)
	}
	if err := dropParts(root, parent, 1, ".part-1-bb"); err != nil {
		t.Fatal(err)
	}
	left := func(want ...string) {
		t.Helper()
		found, err := parts(root)
		if err != nil || len(found) != len(want) {
			t.Fatalf("left are %v, %v; want %v", found, err, want)
		}
		for i, name := range want {
			if found[i] != parent+"/"+name {
				t.Errorf("left are %v, want %v", found, want)
			}
		}
	}
	left(".part-1-bb", ".part-11-aa")
	k := &keeper{s: &Server{}, dir: root, busy: map[target]bool{}}
	k.dropParts(map[string]bool{parent + "/11": true})
	left(".part-11-aa")
}
