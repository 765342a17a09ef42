package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// narrowMovies declares the demo's model with users admitted at their second rating
// and kept as bytes, and movies kept as halves and bits, both of which followers wait for.
const narrowMovies = `
name: movies
features:
  - {name: user, field: userId, slot: 1, table: user}
  - {name: movie, field: movieId, slot: 2, table: movie}
tables:
  - name: user
    dim: 16
    optimizer: {adagrad: {learning_rate: 0.05, initial_accumulator_value: 0.1}}
    initializer: {random_uniform: {min: -0.05, max: 0.05}}
    compressor: {fixed_r8: {r: 0.5}}
    skip_zero_embedding: true
    max_rows: 100000
    max_bytes: 100000000
    admission: {sliding_counter: {capacity: 10000}, threshold: 1}
    sync: {interval_ms: 400, tolerance: 0.2}
  - name: movie
    dim: 16
    expire: {days: 30}
    sync: {interval_ms: 250}
    segments:
      - {dim: 8, optimizer: {adam: {}}, initializer: {random_uniform: {min: -0.05, max: 0.05}}, compressor: {fp16: {}}}
      - {dim: 8, optimizer: {ftrl: {beta: 1}}, initializer: {random_uniform: {min: -0.05, max: 0.05}}, compressor: {one_bit: {}}}
layers:
  - {name: dense_0, units: 16, activation: RELU}
  - {name: dense_1, units: 1, activation: SIGMOID}
dense_optimizer: {adagrad: {learning_rate: 0.05, initial_accumulator_value: 0.1}}
label: {field: rating, threshold: 3.5}
seed: 1
`

// TestDemoCompressed is the slice with a model of another name and rows that serving keeps narrow: its replicas agree
// with the training shards bit by bit, and so do the deltas and the export, when verified.
func TestDemoCompressed(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "movies.yaml")
	if err := os.WriteFile(spec, []byte(strings.Replace(narrowMovies, "name: movies", "name: films", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPlayed(t, ratingsCSV(t, 1500), "--rate", "1000", "--spec", spec)
	var out, errs bytes.Buffer
	if code := run(p.args, &out, &errs); code != exitOK {
		t.Fatalf("exit %d\n%s", code, tail(errs.String()))
	}
	p.hold(t, out.Bytes(), 1500, 0)
}

func TestDemoRefusesSpecs(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		text string
		code int
		says string
	}{
		"a field that no record has": {strings.Replace(narrowMovies, "field: movieId", "field: director", 1), exitUsage, `the field "director", which records of ratings do not have: they have userId, movieId`},
		"no model":                   {"{}", exitFailure, "model spec is not valid"},
	} {
		path := filepath.Join(dir, "spec.yaml")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := run([]string{"demo", "--dir", filepath.Join(dir, "data"), "--spec", path}, &out, &errs); code != tc.code || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%s: exit %d, %s", name, code, errs.String())
		}
	}
}
