package ps

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

func TestConfigAtItsBounds(t *testing.T) {
	good := Config{Job: "j", Model: "m", Dir: "d"}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"most shards":      {func(c *Config) { c.Shards = 1 << 16 }, true},
		"a shard too many": {func(c *Config) { c.Shards = 1<<16 + 1 }, false},
		"shards below 0":   {func(c *Config) { c.Shards = -1 }, false},
		"the last shard":   {func(c *Config) { c.Shards, c.Shard = 3, 2 }, true},
		"beyond it":        {func(c *Config) { c.Shards, c.Shard = 3, 3 }, false},
		"below 0":          {func(c *Config) { c.Shard = -1 }, false},
		"often":            {func(c *Config) { c.SyncInterval = time.Millisecond }, true},
		"too often":        {func(c *Config) { c.SyncInterval = time.Millisecond - 1 }, false},
		"every one":        {func(c *Config) { c.DenseEvery = 1 }, true},
		"a second":         {func(c *Config) { c.ClockStep = time.Second }, true},
		"less":             {func(c *Config) { c.ClockStep = time.Second - 1 }, false},
		"68 years":         {func(c *Config) { c.ClockStep = math.MaxInt32 * time.Second }, true},
		"more":             {func(c *Config) { c.ClockStep = math.MaxInt32*time.Second + 1 }, false},
		"hold below 0":     {func(c *Config) { c.HoldTimeout = -1 }, false},
		"heart below 0":    {func(c *Config) { c.HeartbeatInterval = -1 }, false},
		"drain below 0":    {func(c *Config) { c.Drain = -1 }, false},
		"shortest":         {func(c *Config) { c.HoldTimeout, c.HeartbeatInterval, c.Drain = 1, 1, 1 }, true},
		"everywhere":       {func(c *Config) { c.Listen, c.Insecure = "0.0.0.0:1", true }, false},
		"any host":         {func(c *Config) { c.Listen, c.Insecure = ":1", true }, false},
		"a name":           {func(c *Config) { c.Listen, c.Insecure = "host:1", true }, true},
		"an address":       {func(c *Config) { c.Listen, c.Insecure = "10.0.0.1:1", true }, true},
		"no address":       {func(c *Config) { c.Listen = "nowhere" }, false},
		"gRPC nowhere":     {func(c *Config) { c.GRPC = "nowhere" }, false},
		"gRPC":             {func(c *Config) { c.GRPC = "127.0.0.1:1" }, true},
	} {
		c := good
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A folder is the shard's own however it is spelled.
func TestTheShardsOwnFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(filepath.Dir(dir))
	s := &Server{cfg: Config{Dir: dir}}
	for path, want := range map[string]bool{"": true, dir: true, dir + "/": true, dir + "/../" + filepath.Base(dir): true, filepath.Base(dir): true, filepath.Dir(dir): false, "elsewhere": false, dir + "/x": false} {
		if got := s.sameDir(path); got != want {
			t.Errorf("%q is the shard's folder: %v", path, got)
		}
	}
	s.cfg.Dir = "elsewhere"
	if !s.sameDir(filepath.Join(filepath.Dir(dir), "elsewhere")) {
		t.Error("a relative folder that is not there yet, by its whole path")
	}

	links := t.TempDir()
	own, other := filepath.Join(links, "own"), filepath.Join(links, "other")
	for link, to := range map[string]string{own: dir, other: t.TempDir()} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range []struct {
		has, asked string
		want       bool
	}{{dir, own, true}, {own, dir, true}, {dir, other, false}, {other, own, false}} {
		s.cfg.Dir = way.has
		if got := s.sameDir(way.asked); got != way.want {
			t.Errorf("a shard of %q is asked at %q: %v", way.has, way.asked, got)
		}
	}
}

func TestBarriersAtTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 256)
		for name, tc := range map[string]struct {
			r    shardcmd.BarrierRequest
			want string // "": it is over at once
		}{
			"the longest names":   {shardcmd.BarrierRequest{ID: long, Worker: long, NumWorkers: 1}, ""},
			"a longer barrier":    {shardcmd.BarrierRequest{ID: long + "x", Worker: "a", NumWorkers: 1}, "INVALID"},
			"a longer worker":     {shardcmd.BarrierRequest{ID: "b", Worker: long + "x", NumWorkers: 1}, "INVALID"},
			"most workers":        {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: maxWorkers}, "UNAVAILABLE"},
			"a worker too many":   {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: maxWorkers + 1}, "INVALID"},
			"workers below 0":     {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: -1}, "INVALID"},
			"a millisecond":       {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: 2, TimeoutMS: 1}, "UNAVAILABLE"},
			"longer than it gets": {shardcmd.BarrierRequest{ID: "b", Worker: "a", NumWorkers: 2, TimeoutMS: 1 << 40}, "UNAVAILABLE"},
		} {
			var b barriers
			began := time.Now()
			r := <-meet(&b, tc.r)
			if tc.want == "" && r.err != nil || tc.want != "" && pstest.Code(r.err) != tc.want {
				t.Errorf("%s: %v", name, r.err)
			}
			want := map[string]time.Duration{"most workers": maxBarrierWait, "a millisecond": time.Millisecond, "longer than it gets": maxBarrierWait}[name]
			if took := time.Since(began); took != want {
				t.Errorf("%s: after %v, want %v", name, took, want)
			}
		}
		var b barriers // a process that has not seen the first rounds
		seventh := at("a", 1)
		seventh.Round = 7
		if r := <-meet(&b, seventh); r.err != nil || r.Round != 7 || len(r.Workers) != 1 {
			t.Errorf("round 7: %+v", r)
		}
		for round, workers := range map[uint64]int{7: 1, 6: 0} { // over: who came is known of the last one
			past := at("a", 1)
			past.Round = round
			if r := <-meet(&b, past); r.err != nil || r.Round != round || len(r.Workers) != workers {
				t.Errorf("round %d: %+v", round, r)
			}
		}
		eighth := at("a", 1)
		eighth.Round = 8
		if r := <-meet(&b, eighth); r.err != nil || r.Round != 8 {
			t.Errorf("round 8: %+v", r)
		}
		tenth := at("a", 1)
		tenth.Round = 10
		if r := <-meet(&b, tenth); r.err != nil || r.Round != 10 {
			t.Errorf("round 10, where nobody waits for the ninth: %+v", r)
		}
	})
}

// The end of a process explains what its end brings about, and nothing else.
func TestErrorsOfACleanEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		err error
		end bool // whether it is one at the end, too
	}{
		"none": {nil, false}, "cancelled": {context.Canceled, false}, "no bus": {bus.ErrUnavailable, false},
		"followed": {publish.ErrFenced, true}, "a conflict": {bus.ErrConflict, true},
	} {
		if got := clean(t.Context(), tc.err); got != tc.err {
			t.Errorf("%s, alive: %v", name, got)
		}
		if got := clean(ended, tc.err); (got != nil) != tc.end {
			t.Errorf("%s, at the end: %v", name, got)
		}
	}
}

// Where callers on this machine have no way of their own, there is none to close.
func TestNoNearListener(t *testing.T) {
	if err := closed(nil); err != nil {
		t.Error(err)
	}
}

// What a caller can do about an error is its code.
func TestCodesOfRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"a refusal": {fmt.Errorf("x: %w", bus.Refuse(bus.CodeNotFound, "y")), "NOT_FOUND"}, "a newer process": {publish.ErrFenced, "CONFLICT"}, "another's append": {bus.ErrConflict, "CONFLICT"},
		"no bus": {bus.ErrUnavailable, "UNAVAILABLE"}, "too late": {context.DeadlineExceeded, "UNAVAILABLE"}, "left": {context.Canceled, "UNAVAILABLE"},
		"a shard that starts": {rowwire.Errorf(rowwire.Unavailable, "x"), "UNAVAILABLE"}, "a shard's other refusal": {rowwire.Errorf(rowwire.Invalid, "x"), "INTERNAL"},
		"anything else": {errors.New("x"), "INTERNAL"},
	} {
		if got := pstest.Code(refusal(tc.err)); got != tc.code {
			t.Errorf("%s: %s, want %s", name, got, tc.code)
		}
	}
}
