package main

import (
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// TestDeclaredOtherwise is how a resumed demo notices that --spec is not what stands.
func TestDeclaredOtherwise(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas, cfg.Trainers, cfg.Shards = 1, 1, 1
	w := opsStart(t, cfg)
	spec := modelspec.MovieRanking()
	if !w.job.Declared(spec) {
		t.Error("the spec that was declared is not recognised")
	}
	if spec.Seed++; w.job.Declared(spec) {
		t.Error("another seed goes unnoticed")
	}
}
