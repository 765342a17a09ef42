package jobs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/compat/savedmodel"
	"github.com/monolith-go/monolith/internal/compat/tfgraph"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/testenv/oracle"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const readsEntry = `
import sys
from tensorflow.core.protobuf import saved_model_pb2
saved = saved_model_pb2.SavedModel.FromString(open(sys.argv[1], "rb").read())
graph, = saved.meta_graphs
print(*graph.meta_info_def.tags, sorted(graph.signature_def))
for node in graph.graph_def.node:
    if node.op == "TfServingRemotePredict":
        print(node.attr["model_name"].s.decode(), node.attr["old_model_name"].s.decode(), node.attr["signature_name"].s.decode(), node.attr["max_rpc_deadline_millis"].i, *node.input)
`

// A saved-model has all of the model's rows, of all shards, and calls nobody.
func TestExportSavedModel(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 300))
	r.train("", "--files", "a.json", "--shards", "2", "--batch", "50")
	x, err := r.exported("--dir", "job", "--to", "tf", "--format", "saved-model", "--model-version", "3")
	if err != nil || x.Rows != 70 || len(x.SubModels) != 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	graph, err := os.ReadFile(filepath.Join("tf", "3", tfgraph.FileName))
	if _, remote := savedmodel.RemoteModel(graph); err != nil || !errors.Is(remote, savedmodel.ErrNoRemote) {
		t.Errorf("%v, %v", err, remote)
	}
	b, err := tensorbundle.Open(filepath.Join("tf", "3", "variables", "variables"))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := b.Ints("tables/movie/ids")
	if err != nil || len(ids) != 30 || b.Entry("tables/movie/rows").Shape[0] != 31 {
		t.Errorf("%d ids, %v, rows %v", len(ids), err, b.Entry("tables/movie/rows").Shape)
	}
	var page bytes.Buffer
	if err := x.Print(&page); err != nil || !strings.Contains(page.String(), filepath.Join(x.Dir, "3")) {
		t.Errorf("%s, %v", page.String(), err)
	}
	if _, err := r.exported("--dir", "job", "--to", "tf", "--format", "saved-model", "--model-version", "3"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	if _, err := r.exported("--dir", "job", "--to", "x", "--format", "saved-model", "--warm-up", "a.json"); !errors.Is(err, flags.ErrUsage) {
		t.Errorf("with requests: %v", err)
	}
}

// An export is what tools of the original read: its entry names the model and its shards, the state
// its step. It has the version, the requests and the numbers' kinds that the command asks for.
func TestExportForOthers(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 300))
	r.train("", "--files", "a.json", "--shards", "2", "--batch", "50")
	var requests bytes.Buffer
	log, err := proto.Marshal(&apis.PredictionLog{LogType: &apis.PredictionLog_PredictLog{PredictLog: &apis.PredictLog{Request: &apis.PredictRequest{}}}})
	if err == nil {
		err = tfrecord.NewWriter(&requests).Write(log)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.write("requests", requests.String())
	x, err := r.exported("--dir", "job", "--to", "out/exported_models", "--model-version", "1700000000", "--warm-up", "requests", "--compress", "movie=fixed_r8:2", "--compress", "user=fp16")
	if err != nil || x.Version != 1700000000 || x.Step != 6 {
		t.Fatalf("%+v, %v", x, err)
	}
	if name, err := savedmodel.FindModelName(x.Dir); err != nil || name != "likes" {
		t.Errorf("the model is called %q, %v", name, err)
	}
	subs, ckpt, version, err := modelinfo.Calculate(x.Dir, "model.ckpt-6")
	if err != nil || len(subs) != 3 || ckpt != "model.ckpt-6" || version != x.Version {
		t.Errorf("%v, %q, %d, %v", subs, ckpt, version, err)
	}
	e, err := checkpoint.ReadEntry(filepath.Join(x.Dir, "entry", "1700000000"))
	if err != nil || !bytes.Equal(e.Files[warmupfile.Name], requests.Bytes()) || e.Spec.GetTables()[0].GetCompressor().GetFp16() == nil || e.Spec.GetTables()[1].GetCompressor().GetFixedR8().GetR() != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	graph := filepath.Join(x.Dir, "entry", "1700000000", "saved_model.pb")
	out, err := exec.CommandContext(t.Context(), oracle.Python(t), "-c", readsEntry, graph).Output()
	want := "serve ['serving_default']\n" +
		"likes:ps_0 ps_0 raw_lookup 30000 raw_lookup/inputs ps_0/id ps_0/id_split raw_lookup/outputs\n" +
		"likes:ps_1 ps_1 raw_lookup 30000 raw_lookup/inputs ps_1/id ps_1/id_split raw_lookup/outputs\n"
	if err != nil || string(out) != want {
		t.Errorf("TensorFlow reads\n%s, %v", out, err)
	}
	if err := os.WriteFile(graph, []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.ReadEntry(filepath.Dir(graph)); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("another graph was taken for the one that was exported: %v", err)
	}
	r.write("torn", requests.String()[:requests.Len()-1])
	for want, args := range map[string][]string{
		"--format onnx":              {"--format", "onnx"},
		"--format torchscript":       {"--format", "torchscript"},
		`--format "pt" must be`:      {"--format", "pt"},
		"--model-version -1 must be": {"--model-version", "-1"},
		`--compress "user=one_bit"`:  {"--compress", "user=one_bit"},
		`--compress "fp16" must be`:  {"--compress", "fp16"},
		`"user=fixed_r8:-1" must be`: {"--compress", "user=fixed_r8:-1"},
		"--compress film: model":     {"--compress", "film=fp16"},
		"record 0 is broken":         {"--warm-up", "torn"},
		"--warm-up: open none":       {"--warm-up", "none"},
		"0 requests: give 1 to 1000": {"--warm-up", os.DevNull},
	} {
		if _, err := r.exported(append(args, "--dir", "job", "--to", "refused")...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if err := parsed(t, &Export{}, "--to", "x", "--format", "onnx").Validate(); !errors.Is(err, flags.ErrUsage) {
		t.Error(err)
	}
	if _, err := os.Stat("refused"); !os.IsNotExist(err) {
		t.Errorf("a refused export has left something: %v", err)
	}
}
