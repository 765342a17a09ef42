package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/vfs"
)

// A job learns files of HDFS by the rules of a list there, leaves its export and its checkpoint there, and a
// job that begins with that checkpoint has the bits of the first.
func TestJobOnHDFS(t *testing.T) {
	r := newRoom(t)
	root := oracle.HDFS(t).URL
	t.Cleanup(func() {
		if err := vfs.CloseIdle(); err != nil {
			t.Error(err)
		}
	})
	r.write("regions.txt", "eu\n7\n")
	r.write("day-1.json", seldom(1, 600))
	r.write("day-2.json", seldom(2, 600))
	r.write("list.txt", "# files\n"+root+"/in/day-{INT(1,2)}.json\n")
	for from, to := range map[string]string{"regions.txt": "/lists/regions.txt", "day-1.json": "/in/day-1.json", "day-2.json": "/in/day-2.json", "list.txt": "/lists/list.txt"} {
		at, err := vfs.For(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := at.MkdirAll(vfs.Dir(root + to)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.CopyFile(t.Context(), from, root+to, vfs.Copying{Strict: true}); err != nil {
			t.Fatal(err)
		}
	}
	r.write("model.yaml", spec+"sample_rules:\n- {name: region, where: [{field: region, in_file: \""+root+"/lists/regions.txt\"}], keep: {}}\n")
	order := []string{"--batch", "50", "--deterministic", "--shards", "2"}
	there := r.train("", append(order, "--files", "@"+root+"/lists/list.txt", "--dir", "there")...)
	glob := r.train("", append(order, "--files", root+"/in/day-*.json", "--dir", "glob")...)
	here := r.train("", append(order, "--files", "day-1.json,day-2.json", "--dir", "here")...)
	if there.Learnt != 1200 || there.Dropped["region"] == 0 {
		t.Errorf("%d records learnt, dropped %v", there.Learnt, there.Dropped)
	}
	for shard := range 2 {
		if a, b, c := hash(t, there, shard), hash(t, here, shard), hash(t, glob, shard); a != b || a != c {
			t.Errorf("shard %d: %s by a list there, %s by a pattern, %s by files here", shard, a, c, b)
		}
	}
	r.train("live checkpoints are synced to a disk", "--files", "day-1.json", "--dir", root+"/job")
	r.train("a job begins from a folder on a disk here", "--files", "day-1.json", "--dir", "other", "--restore-dir", root+"/job")

	r.exportsTo(root)
	r.carries(root)
}

// exported runs monolith export.
func (r room) exported(args ...string) (x Exported, err error) {
	r.t.Helper()
	c := parsed(r.t, &Export{}, append(args, "--json")...)
	if err := c.Validate(); err != nil {
		return x, err
	}
	var out bytes.Buffer
	if err := c.Run(r.t.Context(), &out); err != nil {
		return x, err
	}
	return x, json.Unmarshal(out.Bytes(), &x)
}

func (r room) exportsTo(root string) {
	t := r.t
	t.Helper()
	export := func(more ...string) (Exported, error) {
		return r.exported(append(more, "--dir", "there", "--to", root+"/models")...)
	}
	x, err := export()
	if err != nil || x.Dir != root+"/models" || len(x.SubModels) != 3 {
		t.Fatalf("%+v, %v", x, err)
	}
	if err := vfs.CopyTree(t.Context(), x.Dir, "models", vfs.Copying{Strict: true}); err != nil {
		t.Fatal(err)
	}
	for _, folder := range x.folders() {
		read := func(dir string) error { _, err := checkpoint.ReadShardIn("models", dir); return err }
		if strings.HasPrefix(folder, "entry") {
			read = func(dir string) error { _, err := checkpoint.ReadEntry("models/" + dir); return err }
		}
		if err := read(folder); err != nil {
			t.Error(err)
		}
	}
	if _, err := export(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an export was written over: %v", err)
	}

	if second, err := export("--model-version", "77"); err != nil || second.Version != 77 {
		t.Errorf("%+v, %v", second, err)
	}
	state, err := vfs.ReadText(t.Context(), root+"/models/entry/"+modelinfo.StateFile, 1<<20)
	if err != nil || strings.Count(string(state), "export_dir") != 2 || !strings.Contains(string(state), root+"/models/entry/77") {
		t.Errorf("%s, %v", state, err)
	}
}

// carries has a checkpoint go to a model_dir there and come back.
func (r room) carries(root string) {
	t := r.t
	t.Helper()
	w := r.export("--dir", "there", "--to", root+"/python", "--layout", "single")
	if w.Checkpoint != root+"/python/model.ckpt-24" {
		t.Errorf("%+v", w)
	}
	if page, err := r.take("--from", root+"/python", "--to", "back"); err != nil {
		t.Fatalf("%s, %v", page, err)
	}
	if page, err := r.take("--from", root+"/python", "--to", root+"/back"); err != nil {
		t.Fatalf("%s, %v", page, err)
	}
	if err := vfs.CopyTree(t.Context(), root+"/back", "fetched", vfs.Copying{Strict: true}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"back", "fetched"} {
		s, err := checkpoint.ReadShardIn(dir, "model.ckpt-24/ps_1")
		if err != nil || len(s.Tables) != 2 {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := parsed(t, &Export{}, "--dir", root+"/job", "--to", "x").Validate(); !errors.Is(err, flags.ErrUsage) {
		t.Errorf("a folder of HDFS was taken for a job's: %v", err)
	}
}
