//go:build !nobench

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/loadtest/bench/product"
	"github.com/monolith-go/monolith/loadtest/bench/suite"
)

func TestBenchList(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"bench", "--list"}, &out, &errs); code != exitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var names []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		if len(words) < 3 || slices.Contains(names, words[0]) {
			t.Errorf("%q does not name one benchmark and what it measures", line)
		}
		names = append(names, words[0])
	}
	var want []string
	for _, b := range suite.All(product.TrainOptions{}) {
		want = append(want, b.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	for _, name := range []string{"append", "replay", "predict", "end-to-end", "parse", "ps-rpc", "hedge", "fan-out", "rest", "overload", "versions", "update-ripple", "swap-ripple", "gemm", "deepfm-train", "deepfm-score"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is gone from %v", name, names)
		}
	}
}

func TestBenchRefusesUnknownNames(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"bench", "append", "speed"}, &out, &errs); code != exitUsage {
		t.Errorf("exit %d, want %d", code, exitUsage)
	}
	if out.Len() > 0 || !strings.Contains(errs.String(), `"speed": there are append, append-r3, replay`) {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
}
