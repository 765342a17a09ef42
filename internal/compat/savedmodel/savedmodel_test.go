package savedmodel

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

func field(n protowire.Number, parts ...[]byte) []byte {
	var value []byte
	for _, p := range parts {
		value = append(value, p...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value)
}

func text(n protowire.Number, s string) []byte { return field(n, []byte(s)) }

func varint(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func attr(key string, value []byte) []byte {
	return field(nodeAttr, text(mapKey, key), field(mapValue, value))
}

func node(op string, attrs ...[]byte) []byte {
	return append(text(nodeName, "n"), append(text(nodeOp, op), []byte(strings.Join(toStrings(attrs), ""))...)...)
}

func toStrings(in [][]byte) (out []string) {
	for _, b := range in {
		out = append(out, string(b))
	}
	return out
}

func model(graph ...[]byte) []byte {
	return append(varint(1, 1), field(savedModelMetaGraphs, text(1, "meta"), field(metaGraphGraphDef, graph...))...)
}

func TestRemoteModel(t *testing.T) {
	remote := func(name string) []byte {
		return field(graphNode, node(remotePredict, attr("task", varint(3, 7)), attr("model_name", text(attrString, name)), attr("old_model_name", text(attrString, "ps_1"))))
	}
	inFunction := field(graphLibrary, field(libraryFunction, text(1, "signature"), field(functionNode, node(remotePredict, attr("model_name", text(attrString, "f:ps_0"))))))
	for _, tc := range []struct {
		name string
		data []byte
		want string
		err  string
	}{
		{"the first", model(field(graphNode, node("Const")), remote("ffm:ps_0"), remote("other:ps_1")), "ffm", ""},
		{"without a sub-model", model(remote("ffm")), "ffm", ""},
		{"the graph's own before a function's", model(inFunction, remote("ffm:ps_0")), "ffm", ""},
		{"a function's", model(inFunction), "f", ""},
		{"in a second meta graph", append(model(), model(remote("ffm:ps_3"))...), "ffm", ""},
		{"one without a name", model(field(graphNode, node(remotePredict)), remote(":ps_0"), remote("ffm:ps_0")), "ffm", ""},
		{"a name that is no text", model(field(graphNode, node(remotePredict, attr("model_name", varint(3, 1))))), "", "no TfServingRemotePredict"},
		{"another operation's", model(field(graphNode, node("Const", attr("model_name", text(attrString, "x"))))), "", "no TfServingRemotePredict"},
		{"nothing", nil, "", "no TfServingRemotePredict"},
		{"cut short", model(remote("ffm:ps_0"))[:20], "", "malformed"},
		{"no protobuf", []byte("hello, world"), "", "malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := RemoteModel(tc.data)
			if got != tc.want || (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}

func export(t *testing.T, files map[string][]byte) string {
	t.Helper()
	base := t.TempDir()
	for path, data := range files {
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

func TestFindModelName(t *testing.T) {
	named := func(name string) []byte {
		return model(field(graphNode, node(remotePredict, attr("model_name", text(attrString, name)))))
	}
	base := export(t, map[string][]byte{
		"entry/9/saved_model.pb": named("old:ps_0"), "entry/10/saved_model.pb": named("new:ps_0"),
		"entry/temp-11/saved_model.pb": named("unfinished:ps_0"), "entry/notes.txt": nil,
	})
	if got, err := FindModelName(base); got != "new" || err != nil { // 10 is newer than 9, though it sorts before
		t.Errorf("%q, %v", got, err)
	}
	for name, tc := range map[string]struct {
		files map[string][]byte
		says  string
	}{
		"no entry":       {map[string][]byte{"ps_0/1/saved_model.pb": nil}, "holds entry/"},
		"no version":     {map[string][]byte{"entry/temp-1/saved_model.pb": nil}, "holds no version"},
		"no saved model": {map[string][]byte{"entry/1/x": nil}, "saved_model.pb"},
		"calls nobody":   {map[string][]byte{"entry/1/saved_model.pb": model()}, "no TfServingRemotePredict"},
	} {
		if _, err := FindModelName(export(t, tc.files)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, tc.says)
		}
	}
	if _, err := FindModelName(export(t, map[string][]byte{"entry/1/saved_model.pb": model()})); !errors.Is(err, ErrNoRemote) {
		t.Errorf("calls nobody: %v", err)
	}
}

// TensorFlow writes a model with functions and variables; the node that its build does
// not know is added to the graph with its own messages, as an exporter's custom op would.
func TestReadsWhatTensorFlowWrites(t *testing.T) {
	python := oracle.Python(t)
	base := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import json, os, sys
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
base = sys.argv[1]
class M(tf.Module):
    def __init__(self):
        self.v = tf.Variable([[1.0, 2.0]])
    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32)])
    def f(self, x):
        return tf.nn.relu(x @ self.v)
listing = {}
for version, name in (("99", b"first:ps_0"), ("1622716114", b"test_ffm_model:ps_4")):
    d = os.path.join(base, "entry", version)
    tf.saved_model.save(M(), d)
    path = os.path.join(d, "saved_model.pb")
    m = saved_model_pb2.SavedModel.FromString(open(path, "rb").read())
    for task, full in enumerate((name, b"later:ps_0")):
        n = m.meta_graphs[0].graph_def.node.add(name="remote_%d" % task, op="TfServingRemotePredict", input=["x"])
        n.attr["task"].i = task
        n.attr["model_name"].s = full
        n.attr["signature_name"].s = b"lookup"
    open(path, "wb").write(m.SerializeToString())
    listing[version] = [[n.name, n.op] for g in m.meta_graphs for ns in
        [g.graph_def.node] + [f.node_def for f in g.graph_def.library.function] for n in ns]
print(json.dumps(listing))
`, base)
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tensorflow: %v", err)
	}
	var want map[string][][2]string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	if got, err := FindModelName(base); got != "test_ffm_model" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for version, want := range want {
		data, err := os.ReadFile(filepath.Join(base, "entry", version, "saved_model.pb"))
		if err != nil {
			t.Fatal(err)
		}
		var got [][2]string
		if err := Nodes(data, func(n Node) bool { got = append(got, [2]string{n.Name, n.Op}); return true }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) < 10 {
			t.Errorf("version %s, %d nodes: %s", version, len(got), diff)
		}
	}
}

func FuzzRemoteModel(f *testing.F) {
	f.Add(model(field(graphNode, node(remotePredict, attr("model_name", text(attrString, "ffm:ps_0"))))))
	f.Add(model(field(graphLibrary, field(libraryFunction, field(functionNode, node("Const"))))))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, data []byte) {
		name, err := RemoteModel(data)
		if (name == "") != (err != nil) {
			t.Fatalf("%q, %v", name, err)
		}
		if strings.Contains(name, ":") || len(name) > len(data) {
			t.Fatalf("%q", name)
		}
	})
}
