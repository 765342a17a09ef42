package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/testenv/smalldisk"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestFullDisks fills the disk of the checkpoints and then that of the logs, while
// ratings come in. The first costs a checkpoint, said as a fact; the second makes
// everybody wait. Freed space is all that it takes to go on.
func TestFullDisks(t *testing.T) {
	dir := t.TempDir()
	cfg := opsConfig(dir)
	cfg.Replicas = 1
	smalldisk.Mount(t, filepath.Join(dir, "training"), "32m")
	smalldisk.Mount(t, filepath.Join(dir, "nats"), "32m")
	w := opsServe(t, cfg)
	w.rate(200)
	w.learnt()
	whole := w.agree()

	free := smalldisk.Fill(t, filepath.Join(dir, "training"))
	_, err := w.job.Checkpoint(w.soon(), "on a full disk")
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Fatalf("a checkpoint on a full disk: %v", err)
	}
	if code, out, stderr := w.tool("events", "--filter", "checkpointFailed", "--json"); code != exitOK || !strings.Contains(out, "no space left on device") {
		t.Errorf("the log does not say so: %d %s %s", code, out, stderr)
	}
	var last *training.Checkpoint
	w.job.Lineage.Read(func(s lineage.State) {
		all := s.Jobs[host.JobName].Checkpoints
		last = all[len(all)-1].V
	})
	if last.GetId() != whole.GetId() {
		t.Fatalf("checkpoint %d counts as saved behind %d", last.GetId(), whole.GetId())
	}
	if _, err := audit.Truth(nil, last); err != nil {
		t.Errorf("the last whole checkpoint: %v", err)
	}
	// What could not be written is not visible under its name.
	for _, pattern := range []string{"model.ckpt-%d/ps_*", "exported_models/*/%d"} {
		names, err := filepath.Glob(filepath.Join(dir, "training", host.JobName, fmt.Sprintf(pattern, last.GetId()+1)))
		w.must("look", err)
		for _, name := range names {
			if err := opsReadable(name); err != nil {
				t.Errorf("half a checkpoint is visible: %v", err)
			}
		}
	}
	w.rate(100)
	w.learnt() // training goes on
	free()
	if next := w.agree(); next.GetId() <= whole.GetId() {
		t.Errorf("checkpoint %d after %d", next.GetId(), whole.GetId())
	}

	free = smalldisk.Fill(t, filepath.Join(dir, "nats"))
	w.rate(100) // Kafka keeps them
	w.until("the log to name the fix", func() (bool, string) {
		return strings.Contains(w.log.String(), "free space on the disk of "+filepath.Join(dir, "nats")), w.log.tail(20)
	})
	free()
	w.rate(100)
	ends := w.learnt()
	w.agree()
	w.once(ends)
	w.replayed()
	if letters := w.letters(); len(letters) > 0 {
		t.Errorf("full disks have refused %+v", letters)
	}
}

// opsReadable is an error unless the folder of a shard or of an entry reads back whole.
func opsReadable(dir string) error {
	if filepath.Base(filepath.Dir(dir)) == "entry" {
		_, err := checkpoint.ReadEntry(dir)
		return err
	}
	_, err := checkpoint.ReadShard(dir)
	return err
}
