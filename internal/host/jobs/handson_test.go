package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrainLooksAtItsMachine: what train is told about machines its shards do, and what it is told to dump
// its trainers write.
func TestTrainLooksAtItsMachine(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 200))
	_, told, err := r.run("train", "--spec", "model.yaml", "--files", "a.json", "--dir", "job", "--health-every", "1s", "--health-command", "echo $MONOLITH_SHARD of $MONOLITH_JOB >> looked", "--dump-features")
	if err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	if looked, err := os.ReadFile("looked"); err != nil || !strings.HasPrefix(string(looked), "0 of likes\n") {
		t.Errorf("the command was run as %q, %v", looked, err)
	}
	dumps, err := filepath.Glob(filepath.Join("job", "training", "likes", "features", "chief_*.pb"))
	if err != nil || len(dumps) == 0 {
		t.Errorf("no features are dumped: %v", err)
	}
}
