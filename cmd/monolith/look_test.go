package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/history"
	"github.com/monolith-go/monolith/projections/registry"
)

// TestLookIntoTheLog is `monolith events` and `monolith replay` over the log of everything
// running; testdata/script/events.txtar and replay.txtar read a log that is known.
func TestLookIntoTheLog(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas, cfg.Trainers = 1, 1
	w := opsServe(t, cfg)
	begin := time.Now()
	last, err := w.job.Bus.Log().Last(w.soon())
	w.must("find the end", err)
	l := look{w, last}
	all := l.events("--until", fmt.Sprint(last))
	if len(all) != int(last) || all[0].Seq != 1 || all[last-1].Seq != last {
		t.Fatalf("%d lines of %d events", len(all), last)
	}
	l.positions(t, all, begin)
	l.tail(t)
	l.replays(t, all)
	if err := w.job.Call(w.soon(), "portal.load", map[string]string{"modelName": ""}, nil); err == nil || !strings.Contains(err.Error(), "portal.load") {
		t.Errorf("a load of nothing: %v", err)
	} else if refused := new(bus.CommandError); !asRefusal(err, &refused) || refused.Code != "INVALID" {
		t.Errorf("a load of nothing: %v", err)
	}
}

// look reads a log whose end was last when the model had been loaded.
type look struct {
	*opsWorld
	last uint64
}

// events is what monolith events --json prints.
func (l look) events(args ...string) []history.Line {
	l.t.Helper()
	code, out, stderr := l.tool(append([]string{"events", "--json"}, args...)...)
	if code != exitOK {
		l.t.Fatalf("events %v: %d %s", args, code, stderr)
	}
	var all []history.Line
	for line := range strings.Lines(out) {
		var e history.Line
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			l.t.Fatalf("events %v: %v in %s", args, err, line)
		}
		all = append(all, e)
	}
	return all
}

// positions are sequences, times and ages.
func (l look) positions(t *testing.T, all []history.Line, begin time.Time) {
	some := l.events("--since", "3", "--until", "5")
	if len(some) != 3 || some[0].Seq != 3 || some[2].Seq != 5 {
		t.Errorf("3 to 5: %+v", some)
	}
	if none := l.events("--since", begin.Add(time.Hour).Format(time.RFC3339)); len(none) > 0 {
		t.Errorf("an hour from now: %+v", none)
	}
	if got := l.events("--since", "1h", "--until", begin.UTC().Format(time.RFC3339Nano)); len(got) < int(l.last) {
		t.Errorf("%d of %d events lie between an hour ago and then", len(got), l.last)
	}
	byTime := l.events("--since", all[4].Time.Format(time.RFC3339Nano), "--until", fmt.Sprint(l.last))
	if len(byTime) == 0 || byTime[0].Time.Before(all[4].Time) || byTime[0].Seq > 5 {
		t.Errorf("since the time of event 5: %d lines", len(byTime))
	}
	for _, e := range l.events("--filter", "loadAccepted") {
		if e.Type != "loadAccepted" || e.Subject != "monolith.demo.model.movies" || e.Correlation == "" && e.Source != "portal" {
			t.Errorf("filtered: %+v", e)
		}
	}
	if code, _, stderr := l.tool("events", "--since", "yesterday"); code != exitUsage || !strings.Contains(stderr, `"yesterday" is no sequence, no time such as`) {
		t.Errorf("--since yesterday: %d %s", code, stderr)
	}
}

// tail waits for more, and ends cleanly when it is interrupted.
func (l look) tail(t *testing.T) {
	tail, stop := context.WithCancel(l.ctx)
	defer stop()
	var out opsLines
	root := newRoot()
	root.SetArgs([]string{"events", "--tail", "--since", fmt.Sprint(l.last + 1), "--filter", "unload", "--nats", l.Config.Logs.NATS, "--json"})
	root.SetOut(&out)
	root.SetErr(&out)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(tail) }()
	l.must("unload", l.job.Call(l.soon(), "portal.unload", map[string]string{"modelName": host.ModelName, "reason": "to be seen"}, nil))
	l.until("the tail to print it", func() (bool, string) { return strings.Contains(out.String(), "to be seen"), out.String() })
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the tail ended with %v", err)
		}
	case <-l.soon().Done():
		t.Fatal("the tail does not end")
	}
}

// replay is what monolith replay prints.
func (l look) replay(args ...string) string {
	l.t.Helper()
	code, out, stderr := l.tool(append([]string{"replay"}, args...)...)
	if code != exitOK {
		l.t.Fatalf("replay %v: %d %s", args, code, stderr)
	}
	return out
}

// replays reads views as of any moment, the same each time, and what changed between two.
func (l look) replays(t *testing.T, all []history.Line) {
	var accepted history.Line
	for _, e := range all {
		if e.Type == "loadAccepted" {
			accepted = e
		}
	}
	before := l.replay("--view", "catalog", "--until", fmt.Sprint(accepted.Seq-1))
	at := l.replay("--view", "catalog", "--until", fmt.Sprint(accepted.Seq))
	if strings.Contains(before, "modelDir") || !strings.Contains(at, "modelDir") || !json.Valid([]byte(at)) {
		t.Errorf("the catalogue before the load\n%s\nand with it\n%s", before, at)
	}
	if byTime := l.replay("--view", "catalog", "--until", accepted.Time.Format(time.RFC3339Nano)); byTime != at {
		t.Errorf("as of its time\n%s\nas of its sequence\n%s", byTime, at)
	}
	if now := l.replay("--view", "catalog"); now == at || strings.Contains(now, l.Exports()) {
		t.Errorf("the catalogue after the unload: %s", now)
	}
	diff := l.replay("--view", "catalog", "--diff", fmt.Sprint(accepted.Seq-1), fmt.Sprint(accepted.Seq))
	if !strings.Contains(diff, l.Exports()) {
		t.Errorf("the difference does not show the folder:\n%s", diff)
	}
	if same := l.replay("--view", "catalog", "--diff", "5", "5"); strings.TrimSpace(same) != "" {
		t.Errorf("nothing changed between 5 and 5: %s", same)
	}
	for _, view := range registry.Names() {
		var h struct{ Hash string }
		if err := json.NewDecoder(strings.NewReader(l.replay("--view", view, "--until", fmt.Sprint(l.last), "--hash"))).Decode(&h); err != nil || len(h.Hash) != 64 {
			t.Errorf("the hash of %s: %+v, %v", view, h, err)
		}
	}
	if code, _, stderr := l.tool("replay", "--view", "nothing"); code == exitOK || !strings.Contains(stderr, "catalog") {
		t.Errorf("a view that is none: %d %s", code, stderr)
	}
}
