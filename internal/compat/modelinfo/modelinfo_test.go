package modelinfo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// tree writes files of the given sizes and returns the exported_models folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	job := t.TempDir()
	for path, text := range files {
		path = filepath.Join(job, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(job, "exported_models")
}

func bytesOf(n int) string { return strings.Repeat("x", n) }

func state(entries ...string) string {
	var b strings.Builder
	for i := 0; i < len(entries); i += 2 {
		b.WriteString("entries {\n  export_dir: \"" + entries[i] + "\"\n  global_step: " + entries[i+1] + "\n}\n")
	}
	return b.String()
}

func TestCalculate(t *testing.T) {
	full := map[string]string{
		"checkpoint": "model_checkpoint_path: \"/elsewhere/model.ckpt-200\"\nall_model_checkpoint_paths: \"model.ckpt-100\"\nall_model_checkpoint_timestamps: 1.5\nsome_newer_field: 3\n",
		"exported_models/entry/10/saved_model.pb":          bytesOf(5),
		"exported_models/entry/10/variables/data":          bytesOf(7),
		"exported_models/entry/20/saved_model.pb":          bytesOf(50),
		"exported_models/entry/temp-30/saved_model.pb":     bytesOf(500),
		"exported_models/entry/ExportSaverListenerState":   state("/x/entry/10", "100", "/x/entry/20", "200"),
		"exported_models/ps_0/10/saved_model.pb":           bytesOf(1),
		"exported_models/ps_0/20/saved_model.pb":           bytesOf(2),
		"exported_models/ps_0/ExportSaverListenerState":    state("/x/ps_0/10", "100", "/x/ps_0/20", "200"),
		"exported_models/ps_1/10/saved_model.pb":           bytesOf(3),
		"exported_models/ps_1/20/saved_model.pb":           bytesOf(4),
		"exported_models/ps_1/30/saved_model.pb":           bytesOf(4),
		"exported_models/.hidden/99/saved_model.pb":        bytesOf(9),
		"exported_models/README":                           "stray",
		"model.ckpt-100.assets/user_0-00000-of-00002":      bytesOf(1000),
		"model.ckpt-100.assets/user_0-00001-of-00002":      bytesOf(2000),
		"model.ckpt-100.assets/a_b_01-00000-of-00001":      bytesOf(4000),
		"model.ckpt-100.assets/user_7-00000-of-00001":      bytesOf(8000), // of a shard that was not exported
		"model.ckpt-100.assets/user_0-00000-of-00002.part": bytesOf(1 << 14),
		"model.ckpt-100.assets/ckpt.info-0":                bytesOf(1 << 15),
		"model.ckpt-200.assets/_0-00000-of-00001":          bytesOf(1 << 16),
	}
	for _, tc := range []struct {
		name     string
		ckpt     string
		version  int64
		want     map[string]int64
		wantCkpt string
		wantV    int64
	}{
		{"the checkpoint that the file names", "", 0, map[string]int64{"entry": 50, "ps_0": 2, "ps_1": 4}, "model.ckpt-200", 20},
		{"the export of a checkpoint", "model.ckpt-100", 0, map[string]int64{"entry": 12, "ps_0": 3001, "ps_1": 4003}, "model.ckpt-100", 10},
		{"a checkpoint nobody exported", "model.ckpt-150", 0, map[string]int64{"entry": 50, "ps_0": 2, "ps_1": 4}, "model.ckpt-150", 20},
		{"a version asked for", "model.ckpt-100", 20, map[string]int64{"entry": 50, "ps_0": 3002, "ps_1": 4004}, "model.ckpt-100", 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := tree(t, full)
			subs, ckpt, version, err := CalculateVersion(dir, tc.ckpt, tc.version)
			if err != nil || ckpt != tc.wantCkpt || version != tc.wantV {
				t.Fatalf("%q, %d, %v", ckpt, version, err)
			}
			got := map[string]int64{}
			for sub, m := range subs {
				got[sub] = m.Size
				if rest, ok := strings.CutPrefix(m.Path, dir+"/"+sub+"/"); !ok || rest == "" {
					t.Errorf("path of %s is %s", sub, m.Path)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCalculateWithoutCheckpoint(t *testing.T) {
	dir := tree(t, map[string]string{"exported_models/entry/3/a": "x", "exported_models/entry/9/a": "xx", "exported_models/ps_0/3/a": "xxx", "exported_models/ps_0/9/a": "xxxx", "exported_models/ps_0/11/a": ""})
	if err := os.Symlink(filepath.Join(dir, "ps_0", "9", "a"), filepath.Join(dir, "entry", "9", "link")); err != nil {
		t.Fatal(err)
	}
	subs, ckpt, version, err := Calculate(dir, "")
	if err != nil || ckpt != "" || version != 9 || subs["ps_0"].Size != 4 || subs["entry"].Size != 6 || subs["ps_0"].Path != filepath.Join(dir, "ps_0", "9") {
		t.Errorf("%v, %q, %d, %v", subs, ckpt, version, err)
	}
}

// What somebody has put beside an export, and what was not exported with a version, keeps
// nobody from measuring the rest.
func TestStrayFolders(t *testing.T) {
	dir := tree(t, map[string]string{"exported_models/entry/1/a": "x", "exported_models/ps_0/1/a": "xx", "exported_models/notes/todo/a": "", "exported_models/dense_0/2/a": "xxx"})
	subs, _, _, err := CalculateVersion(dir, "", 1)
	if err != nil || len(subs) != 2 || subs["entry"].Size != 1 || subs["ps_0"].Size != 2 {
		t.Errorf("%v, %v", subs, err)
	}
	if _, _, _, err := CalculateVersion(dir, "", 2); err == nil {
		t.Error("a version that the entry does not have is measured")
	}
}

func TestCalculateFails(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		ckpt  string
		v     int64
		says  string
	}{
		"nothing there":           {nil, "", 0, "exported models"},
		"no sub-model":            {map[string]string{"exported_models/stray": ""}, "", 0, "holds no sub-model"},
		"nothing in common":       {map[string]string{"exported_models/entry/1/a": "", "exported_models/ps_0/2/a": ""}, "", 0, "wait for an export"},
		"a version that is not":   {map[string]string{"exported_models/entry/1/a": ""}, "", 2, "no such file"},
		"a checkpoint's path":     {map[string]string{"exported_models/entry/1/a": ""}, "../../etc/x-1", 0, "is a path"},
		"no step in the name":     {map[string]string{"exported_models/entry/1/a": ""}, "model.ckpt", 0, "global step"},
		"a damaged state":         {map[string]string{"exported_models/entry/1/a": "", "exported_models/entry/ExportSaverListenerState": "entries {"}, "m-1", 0, "not what an exporter writes"},
		"a damaged checkpoint":    {map[string]string{"exported_models/entry/1/a": "", "checkpoint": "\x00"}, "", 0, "not what an exporter writes"},
		"a checkpoint file of us": {map[string]string{"exported_models/entry/1/a": "", "checkpoint": `model_checkpoint_path: "noStep"`}, "", 0, "global step"},
	} {
		_, _, _, err := CalculateVersion(tree(t, tc.files), tc.ckpt, tc.v)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, tc.says)
		}
	}
	if _, _, _, err := Calculate(tree(t, map[string]string{"exported_models/entry/x/a": ""}), ""); !errors.Is(err, ErrNoVersion) {
		t.Errorf("no version: %v", err)
	}
}

// TensorFlow writes the checkpoint file.
func TestReadsTensorFlowsCheckpointFile(t *testing.T) {
	python := oracle.Python(t)
	dir := tree(t, map[string]string{"exported_models/entry/1/a": "x"})
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import sys
import tensorflow as tf
tf.compat.v1.train.update_checkpoint_state(sys.argv[1], sys.argv[1] + "/model.ckpt-1234",
    all_model_checkpoint_paths=[sys.argv[1] + "/model.ckpt-1", sys.argv[1] + "/model.ckpt-1234"],
    all_model_checkpoint_timestamps=[1.0, 2.5], last_preserved_timestamp=3.5)`, filepath.Dir(dir))
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tensorflow: %v\n%s", err, out)
	}
	if _, ckpt, _, err := Calculate(dir, ""); ckpt != "model.ckpt-1234" || err != nil {
		t.Errorf("%q, %v", ckpt, err)
	}
}
