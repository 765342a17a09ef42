package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/host/jobs"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/testenv/planted"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// learning is one monolith train on the files of a folder.
type learning struct {
	t    *testing.T
	dir  string
	args []string
}

func (l *learning) start() *child { return startChild(l.t, l.args...) }

// newest is the greatest id of a checkpoint folder.
func (l *learning) newest() (id int) {
	found, err := filepath.Glob(filepath.Join(l.dir, "training", "movies", "model.ckpt-*"))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, path := range found {
		if n, err := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:]); err == nil {
			id = max(id, n)
		}
	}
	return id
}

// finish starts the command once more and returns its report with the hashes of the newest cut.
func (l *learning) finish() (report jobs.Learnt, hashes []string) {
	l.t.Helper()
	c := l.start()
	if err := c.wait(l.t, wait.Patience); err != nil {
		l.t.Fatalf("%v: %s", err, tail(c.err.String()))
	}
	if err := json.Unmarshal(c.out.Bytes(), &report); err != nil {
		l.t.Fatalf("%v: %q", err, c.out.String())
	}
	for i := range 2 {
		m, err := checkpoint.ReadManifest(filepath.Join(l.dir, "training", "movies", fmt.Sprintf("model.ckpt-%d", report.Checkpoint), fmt.Sprintf("ps_%d", i)))
		if err != nil {
			l.t.Fatal(err)
		}
		hashes = append(hashes, m.Hash)
	}
	return report, hashes
}

// However often a training job of files is killed, in the same order each record is learnt once: it
// ends with the bits of the one that was left alone.
func TestTrainKilled(t *testing.T) { trainKilled(t, "") }

// Nor does it draw other negatives: the pool of items is read again.
func TestTrainWithNegativesKilled(t *testing.T) {
	trainKilled(t, "sample_rules:\n- {name: liked, where: [{label: logit, at_least: 0.5}], negatives: {count: 2, item: [movie], records: 300, start: 20}}\n")
}

// trainKilled learns by the ready DeepFM and more rules, once left alone and once killed.
func trainKilled(t *testing.T, rules string) {
	const files, records, kills = 3, 5_000, 3
	data := t.TempDir()
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range files {
		var b strings.Builder
		for range records {
			b.Write(planted.Draw(rng, "deepfm").AppendJSON(nil))
			b.WriteByte('\n')
		}
		if err := os.WriteFile(filepath.Join(data, fmt.Sprintf("part-%d.json", i)), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := os.ReadFile(filepath.Join(repository, "docs", "models", "deepfm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(data, "model.yaml")
	if err := os.WriteFile(path, append(spec, "\n"+rules...), 0o644); err != nil {
		t.Fatal(err)
	}
	job := func() *learning {
		dir := filepath.Join(t.TempDir(), "job")
		return &learning{t, dir, []string{"train", "--spec", path, "--dir", dir, "--json",
			"--files", filepath.Join(data, "part-*.json"), "--batch", "8", "--shards", "2", "--deterministic", "--checkpoint-interval", "150ms"}}
	}
	quiet, want := job().finish()
	if quiet.Learnt != files*records || quiet.Left != 0 || quiet.Parked != 0 || (rules == "") != (quiet.Samples == files*records) || quiet.Samples < files*records {
		t.Fatalf("undisturbed: %+v", quiet)
	}
	killed := job()
	for n := range kills {
		c := killed.start()
		before := killed.newest()
		wait.For(t, "a checkpoint more", func() bool {
			select {
			case <-c.done:
				t.Fatalf("kill %d came too late: %s", n, tail(c.err.String()))
			default:
			}
			return killed.newest() > before+1
		})
		c.kill()
	}
	got, hashes := killed.finish()
	if got.Learnt != files*records || got.Left != 0 || got.Samples >= quiet.Samples {
		t.Errorf("killed: %+v", got)
	}
	if fmt.Sprint(hashes) != fmt.Sprint(want) {
		t.Errorf("the twins differ: %v and %v", want, hashes)
	}
}
