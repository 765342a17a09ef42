package tfevents_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/model/tfevents"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// What TensorBoard makes of a folder of event files, and TensorFlow of one of them.
const script = `
import json, sys, os
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import tensorflow as tf
board = EventAccumulator(os.path.dirname(sys.argv[1]))
board.Reload()
out = {tag: [[e.step, e.value, e.wall_time] for e in board.Scalars(tag)] for tag in board.Tags()['scalars']}
events = []
try:
    for e in tf.compat.v1.train.summary_iterator(sys.argv[1]):
        events.append([e.step, e.file_version])
except tf.errors.DataLossError:
    pass # the torn end
print(json.dumps({'scalars': out, 'events': events}))
`

func TestOracleTensorBoard(t *testing.T) {
	python := oracle.Python(t)
	path := filepath.Join(t.TempDir(), "events.out.tfevents.1700000000.host")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 250_000_000)
	w, err := tfevents.New(file, at)
	if err != nil {
		t.Fatal(err)
	}
	for step, values := range [][]tfevents.Scalar{
		{{Tag: "loss", Value: 0.7}, {Tag: "lag", Value: 1 << 40}},
		{{Tag: "loss", Value: math.Inf(1)}},
		nil,
		{{Tag: "loss", Value: 0}, {Tag: "auc/clicked, or not", Value: -1e-30}},
	} {
		if err := w.Scalars(at.Add(time.Duration(step)*time.Second), int64(step)*1_000_000_000_000, values); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.Write([]byte{9, 0, 0}); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", script, path)
	cmd.Stderr = t.Output()
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type point = [3]float64
	var got struct {
		Scalars map[string][]point
		Events  [][2]any
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("Infinity"), []byte(fmt.Sprint(math.MaxFloat64))), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	const begin = 1_700_000_000.25
	want := map[string][]point{
		"loss":                {{0, float64(float32(0.7)), begin}, {1e12, math.MaxFloat64, begin + 1}, {3e12, 0, begin + 3}},
		"lag":                 {{0, 1 << 40, begin}},
		"auc/clicked, or not": {{3e12, float64(float32(-1e-30)), begin + 3}},
	}
	if diff := cmp.Diff(want, got.Scalars); diff != "" {
		t.Errorf("TensorBoard reads something else (-want +got):\n%s", diff)
	}
	if len(got.Events) != 5 || got.Events[0][1] != "brain.Event:2" || got.Events[4][0] != 3e12 {
		t.Errorf("TensorFlow reads %v", got.Events)
	}
}

const textScript = `
import json, sys
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator
a = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.TENSORS: 0})
a.Reload()
out = {}
for tag in a.Tags()['tensors']:
    m = a.SummaryMetadata(tag)
    for e in a.Tensors(tag):
        raw = tf.make_ndarray(e.tensor_proto).item()
        t = tf.io.parse_tensor(raw, tf.int64 if 'times' in tag else tf.float32) if tag.startswith('di_') else None
        out[tag] = [m.plugin_data.plugin_name, e.step, t.numpy().tolist() if t is not None else raw.decode()]
print(json.dumps(out))
`

// TensorBoard takes texts for what its text plugin shows, and TensorFlow parses the tensors in them.
func TestOracleTensorFlowTexts(t *testing.T) {
	python := oracle.Python(t)
	dir := t.TempDir()
	at := time.Unix(1_700_000_000, 0)
	f, err := tfevents.Create(filepath.Join(dir, "run"), at)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Texts(at, 500, []tfevents.Text{
		{Tag: "di_labels", Value: tfevents.Floats([]float32{0, 1, -2.5})}, {Tag: "di_req_times", Value: tfevents.Ints([]int64{1 << 60, -1})},
		{Tag: "di_preds", Value: tfevents.Floats(nil)}, {Tag: "note", Value: []byte("seen")},
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", textScript, filepath.Join(dir, "run"))
	cmd.Stderr = t.Output()
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string][3]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	want := map[string][3]any{
		"di_labels": {"text", 500., []any{0., 1., -2.5}}, "di_req_times": {"text", 500., []any{float64(1 << 60), -1.}},
		"di_preds": {"text", 500., []any{}}, "note": {"text", 500., "seen"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
