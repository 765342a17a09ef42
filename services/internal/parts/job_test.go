package parts

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/peer"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// job is one of two shards, each with a disk of its own, as has the chief; all call their folder dir.
type job struct {
	t     *testing.T
	dir   string
	disks map[string]string // by host
	l     lineage.State
	want  Wanted
	stop  func()
}

func newJob(t *testing.T) *job {
	j := &job{t: t, dir: filepath.Join(t.TempDir(), "training"), disks: map[string]string{}, l: lineage.New()}
	c := &training.Checkpoint{Id: 1, Dir: j.dir}
	x := &training.ModelExported{Version: 1, ModelDir: filepath.Join(j.dir, "exported_models"), Parts: map[string]*training.ExportedPart{}}
	var servers []*httptest.Server
	for i, host := range []string{"a", "b"} {
		disk := t.TempDir()
		j.disks[host] = disk
		m := checkpoint.Manifest{Job: "j", Shard: uint32(i), Shards: 2, Checkpoint: 1, Offsets: map[int32]int64{0: 7}}
		path, sub := fmt.Sprintf("model.ckpt-1/ps_%d", i), fmt.Sprintf("ps_%d", i)
		made, err := checkpoint.CreateShard(filepath.Join(disk, path), &checkpoint.Shard{Manifest: m})
		j.must(err)
		_, err = checkpoint.CreateShard(filepath.Join(disk, "exported_models", sub, "1"), &checkpoint.Shard{Manifest: m})
		j.must(err)
		identity, size, err := checkpoint.Written(filepath.Join(disk, "exported_models", sub, "1"))
		j.must(err)
		c.Shards = append(c.Shards, &training.ShardFile{Shard: uint32(i), Path: path, Hash: made.Hash})
		x.SubModels = append(x.SubModels, sub)
		x.Parts[sub] = &training.ExportedPart{Export: identity, Bytes: size}
		h := &peer.Server{Log: slog.New(slog.DiscardHandler), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent"}), Open: func(a peer.Ask) (*os.Root, error) {
			if a.Part != "" {
				return os.OpenRoot(filepath.Join(disk, a.Part))
			}
			return os.OpenRoot(filepath.Join(disk, "exported_models", a.Sub, fmt.Sprint(a.Version)))
		}}
		s := httptest.NewServer(h.Handler())
		servers = append(servers, s)
		j.l = lineage.Fold(j.l, events.Recorded{Seq: uint64(i + 1), Subject: events.Join("b", "sync", host), Event: &transfer.Event{Body: &transfer.Event_SourceOffered{
			SourceOffered: &transfer.SourceOffered{Host: host, Address: s.Listener.Addr().String(), Folders: []string{j.dir}}}}})
	}
	j.stop = func() {
		for _, s := range servers {
			s.Close()
		}
	}
	t.Cleanup(j.stop)
	j.want = Wanted{Model: "m", Checkpoint: c, Exported: x}
	return j
}

func (j *job) must(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) bring(to string) error {
	ctx, cancel := context.WithTimeout(j.t.Context(), wait.Patience)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	client := peer.NewClient(peer.Config{Near: true, Log: log, Fetched: prometheus.NewCounter(prometheus.CounterOpts{Name: "fetched"}),
		Faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "faults"}, []string{"reason"})})
	defer client.Close()
	return j.want.Bring(ctx, Fetcher{Dir: to, Client: client, Log: log}, j.l)
}

// TestBring: what two hosts have of a checkpoint and its export lies in one folder afterwards, and is brought once.
func TestBring(t *testing.T) {
	j := newJob(t)
	to := filepath.Join(t.TempDir(), "whole")
	j.must(j.bring(to))
	for _, part := range []string{"model.ckpt-1/ps_0", "model.ckpt-1/ps_1", "exported_models/ps_0/1", "exported_models/ps_1/1"} {
		if s, err := checkpoint.ReadShardIn(to, part); err != nil || s.Manifest.Job != "j" {
			t.Errorf("%s: %v", part, err)
		}
	}
	j.stop()
	if err := j.bring(to); err != nil {
		t.Errorf("what is here is asked for again: %v", err)
	}
	j.must(os.RemoveAll(filepath.Join(to, "model.ckpt-1/ps_1")))
	if err := j.bring(to); err == nil || !strings.Contains(err.Error(), "part 1 of checkpoint 1") {
		t.Errorf("nobody answers: %v", err)
	}
}

// TestWhatIsNotBrought: a part that is nowhere, or is not what was written, is named.
func TestWhatIsNotBrought(t *testing.T) {
	j := newJob(t)
	to := t.TempDir()
	j.must(os.RemoveAll(filepath.Join(j.disks["b"], "model.ckpt-1/ps_1")))
	if err := j.bring(to); err == nil || !strings.Contains(err.Error(), "part 1 of checkpoint 1") || !strings.Contains(err.Error(), "no other host has it") {
		t.Errorf("a part that is nowhere: %v", err)
	}
	_, err := checkpoint.CreateShard(filepath.Join(j.disks["b"], "model.ckpt-1/ps_1"), &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shard: 1, Shards: 2, Checkpoint: 1, Turn: 3}})
	j.must(err)
	j.want.Checkpoint.Shards[1].Hash = strings.Repeat("0", 64)
	if err := j.bring(to); err == nil || !strings.Contains(err.Error(), "is not what was written") {
		t.Errorf("a part of another attempt: %v", err)
	}
	j.want.Checkpoint.Shards = j.want.Checkpoint.Shards[:1]
	j.want.Exported.Parts["ps_1"].Export = strings.Repeat("0", 64)
	if err := j.bring(to); err == nil || !strings.Contains(err.Error(), "of its export not ps_1") {
		t.Errorf("another export: %v", err)
	}
	j.l.Sources = nil
	j.want.Exported.SubModels = []string{"../x"}
	if err := j.bring(to); err == nil || !strings.Contains(err.Error(), "cannot name a folder") {
		t.Errorf("a sub-model that climbs: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(to, "*", ".part-*-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
