package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/docs/models"
	"github.com/monolith-go/monolith/internal/model/inspect"
)

// modelTool runs a command of this process on files alone.
func modelTool(t *testing.T, args ...string) (code int, out, stderr string) {
	t.Helper()
	var o, e strings.Builder
	code = run(append([]string{"model"}, args...), &o, &e)
	return code, o.String(), e.String()
}

// Every ready model is there to begin with, checks and has a cost.
func TestModelInitLike(t *testing.T) {
	for _, name := range models.Names() {
		file := filepath.Join(t.TempDir(), "mine.yaml")
		if code, _, stderr := modelTool(t, "init", file, "--like", name); code != exitOK {
			t.Fatalf("init --like %s: %d %s", name, code, stderr)
		}
		if code, out, stderr := modelTool(t, "check", file); code != exitOK || !strings.Contains(out, "model movies is valid") {
			t.Errorf("check of %s: %d %s%s", name, code, out, stderr)
		}
		var costs inspect.Costs
		if code, out, stderr := modelTool(t, "cost", file, "--json", "--gflops", "100", "--gbs", "10"); code != exitOK || json.Unmarshal([]byte(out), &costs) != nil || costs.Total.GFLOP <= 0 {
			t.Errorf("cost of %s: %d %s%s", name, code, out, stderr)
		}
	}
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if code, _, stderr := modelTool(t, "init", file, "--like", "dinn"); code != exitFailure || !strings.Contains(stderr, `there is no ready model "dinn": name one of dcn-v2, deepfm, dien, din,`) {
		t.Errorf("init --like of no ready model: %d %s", code, stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written for no model")
	}
}

// What a model cannot be computed in is refused with the line that says so.
func TestModelCheckNamesThePrecision(t *testing.T) {
	text, err := models.Text("deepfm")
	if err != nil {
		t.Fatal(err)
	}
	last := strings.Count(string(text), "\n") + 1
	for more, says := range map[string]string{
		"serving_compute: INT8": "",
		"serving_compute: INT4": `invalid value for enum field servingCompute: "INT4"`,
		"serving_compute: 7":    "the serving_compute 7 is unknown: use FP32, BF16 or INT8",
		"compute: INT8":         "the compute is INT8, which nothing is trained in",
	} {
		file := filepath.Join(t.TempDir(), "mine.yaml")
		if err := os.WriteFile(file, append(text, more...), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, stderr := modelTool(t, "check", file)
		if says == "" && code != exitOK || says != "" && (code != exitFailure || !strings.Contains(stderr, fmt.Sprintf("line %d: %s", last, says))) {
			t.Errorf("%s: %d %s%s", more, code, out, stderr)
		}
	}
}

// A ready model runs through the whole product: it is declared, trained from Kafka, exported, served
// with deltas, and all of it agrees with the logs.
func TestDemoOfAReadyModel(t *testing.T) {
	p := newPlayed(t, ratingsCSV(t, 1500), "--rate", "1000", "--spec", filepath.Join(repository, "docs", "models", "deepfm.yaml"))
	var out, errs bytes.Buffer
	if code := run(p.args, &out, &errs); code != exitOK {
		t.Fatalf("exit %d\n%s", code, tail(errs.String()))
	}
	p.hold(t, out.Bytes(), 1500, 0)
}
