package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/events/znode"
)

// account is a namespace's whole story in lines that two runs of the same script have in
// common: lists by what they are about. Time, processes, ports, drawn ids and places in
// shared streams are left out or named by what they refer to.
type account map[string][]string

func (a account) add(about, format string, args ...any) {
	a[about] = append(a[about], fmt.Sprintf(format, args...))
}

// late says whether a shard had no answer in the time that a cut has, or the cut was not over in a shard's.
func (a account) late() bool {
	for about, lines := range a {
		if strings.Contains(about, ".training.") && slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "checkpointFailed") && (strings.Contains(l, "UNAVAILABLE") || strings.Contains(l, "was not finished within"))
		}) {
			return true
		}
	}
	return false
}

// differences says line by line what the other account has otherwise.
func (a account) differences(other account) (all []string) {
	subjects := maps.Clone(a)
	maps.Copy(subjects, other)
	for _, about := range slices.Sorted(maps.Keys(subjects)) {
		mine, others := a[about], other[about]
		for i := range max(len(mine), len(others)) {
			x, y := "nothing", "nothing"
			if i < len(mine) {
				x = mine[i]
			}
			if i < len(others) {
				y = others[i]
			}
			if x != y {
				all = append(all, fmt.Sprintf("%s, line %d\n  %.2000s\n  %.2000s", about, i, x, y))
				break // what follows is out of step
			}
		}
	}
	return all
}

// accounts reads a namespace's logs into an account.
type accounts struct {
	account
	bzid   string
	events map[uint64]string // by sequence: where the event stands in the account
	ids    map[string]string // likewise by id
	deltas map[uint64]string
	ranks  map[string][]string // values in the order of their appearance, by what they are of
}

// accountOf reads what the namespace's log, deltas and letters hold by now.
func accountOf(w *opsWorld) account {
	w.t.Helper()
	a := accounts{account: account{}, bzid: w.Config.Logs.BZID, events: map[uint64]string{}, ids: map[string]string{},
		deltas: map[uint64]string{}, ranks: map[string][]string{}}
	w.must("read the deltas", a.readDeltas(w))
	w.must("read the log", whole(w, a.readLog))
	for _, l := range w.letters() {
		at := a.events[l.StreamSeq]
		if l.Stream != "MONOLITH" {
			at = fmt.Sprint(l.StreamSeq)
		}
		a.add("letters of "+l.Stream+" "+l.Subject, "by %s at %s: %s: %q %+v", l.By, at, l.Reason, l.Data, l.More)
	}
	return a.account
}

// readDeltas takes the parameters that were published, bit for bit.
func (a *accounts) readDeltas(w *opsWorld) error {
	last, err := w.job.Bus.Deltas().Last(w.soon())
	if err != nil || last == 0 {
		return err
	}
	return w.job.Bus.Deltas().Follow(w.soon(), 1, last, []string{"msync." + a.bzid + ".>"}, func(d bus.StoredDelta) error {
		a.deltas[d.Seq] = fmt.Sprintf("%s#%d", d.Subject, len(a.account["deltas "+d.Subject]))
		var body delta.Delta
		if err := proto.Unmarshal(d.Data, &body); err != nil {
			return err
		}
		for _, r := range body.GetRanges() {
			r.Epoch = 0 // of the partition's lease
		}
		plain, err := proto.MarshalOptions{Deterministic: true}.Marshal(&body)
		a.add("deltas "+d.Subject, "step %d: %x", body.GetStep(), plain)
		return err
	})
}

// whole hands the log on from its beginning, its archive in front of it if it was trimmed.
func whole(w *opsWorld, read func(context.Context, bus.Log) error) error {
	b, err := w.Config.Logs.Dial(w.soon(), "test")
	if err != nil {
		return err
	}
	return errors.Join(read(w.soon(), b.Log()), b.Close())
}

func (a *accounts) readLog(ctx context.Context, log bus.Log) error {
	last, err := log.Last(ctx)
	if err != nil || last == 0 {
		return err
	}
	return log.Follow(ctx, 1, last, func(r events.Recorded) error {
		if p, err := r.Subject.Parse(); err != nil || p.BZID != a.bzid {
			return nil
		}
		return a.event(r)
	})
}

// event adds one event of the log, or each of a pack.
func (a *accounts) event(r events.Recorded) error {
	if r.Err != nil {
		a.place(r, string(r.Subject))
		a.add(string(r.Subject), "unreadable %q: %v", r.Data, r.Err)
		return nil
	}
	if e, ok := r.Event.(*znode.Event); ok && e.GetPack() != nil {
		for _, one := range e.GetPack().GetEvents() {
			r.Event = one
			if err := a.event(r); err != nil {
				return err
			}
		}
		return nil
	}
	about := string(r.Subject)
	switch e := r.Event.(type) {
	case *training.Event:
		if t := e.GetPartitionTaken(); t != nil { // partitions are taken at the same time
			about += fmt.Sprintf(" partition %d", t.GetPartition())
		}
		if e.GetMetricReported() != nil { // figures of time
			return nil
		}
		if x := e.GetModelExported(); x != nil {
			x.SyncSeq = 0 // where the stream stood, whosoever its last delta was
		}
	case *replica.Event:
		return a.replica(r, e)
	case *transfer.Event:
		if d := e.GetDeltasApplied(); d != nil { // facts of what was heard since the one before
			a.place(r, about)
			for _, x := range d.GetApplied() { // by signals, of which some may be lost
				if a.deltas[x.GetSyncSeq()] == "" {
					a.add("applied", "%s has applied a delta of another namespace, %d", d.GetContainer(), x.GetSyncSeq())
				}
			}
			return nil
		}
	}
	return a.fact(r, about)
}

// replica adds what a replica is and, apart from it, the states in which it stays: one that
// passes is seen or not, since servers are asked now and then.
func (a *accounts) replica(r events.Recorded, e *replica.Event) error {
	state, version := e.GetStateChanged().GetStat(), e.GetStateChanged().GetVersion()
	if x := e.GetRegistered().GetReplica(); x != nil {
		state, version = x.GetStat(), x.GetVersion()
		x.Stat, x.Version = 0, 0
	}
	if e.GetStateChanged() == nil {
		if err := a.fact(r, string(r.Subject)); err != nil {
			return err
		}
	}
	if state >= replica.State_AVAILABLE {
		a.add(string(r.Subject), "%v version %d", state, version)
	}
	return nil
}

// fact adds one line for the event.
func (a *accounts) fact(r events.Recorded, about string) error {
	body, err := events.Marshal(r.Event)
	if err != nil {
		return err
	}
	var tree any
	if err := json.Unmarshal(body, &tree); err != nil {
		return err
	}
	plain, err := json.Marshal(a.plain(about, "", tree))
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s by %q because %q of %q: %s", catalog.Type(r.Event), r.Header.Source, a.cause(r.Header.Causation), a.cause(r.Header.Correlation), plain)
	if repeatable.MatchString(line) && slices.Contains(a.account[about], line) {
		return nil
	}
	a.place(r, about)
	a.add(about, "%s", line)
	return nil
}

// place names the event by where it stands among those of its kind.
func (a *accounts) place(r events.Recorded, about string) {
	name := fmt.Sprintf("%s#%d", about, len(a.account[about]))
	a.events[r.Seq], a.ids[r.Header.ID] = name, name
}

// cause names the event of an id; one of another namespace has no name here.
func (a *accounts) cause(id string) string {
	if id == "" {
		return ""
	}
	return cmp.Or(a.ids[id], id)
}

func (a *accounts) deltaSubject(seq uint64) string {
	subject, _, known := strings.Cut(a.deltas[seq], "#")
	if !known {
		return fmt.Sprintf("delta %d of another namespace", seq)
	}
	return subject
}

// rank is the value's number among those of its kind.
func (a *accounts) rank(of, value string) string {
	i := slices.Index(a.ranks[of], value)
	if i < 0 {
		i = len(a.ranks[of])
		a.ranks[of] = append(a.ranks[of], value)
	}
	return fmt.Sprintf("%s %d", of, i)
}

var (
	// repeatable is said again when the machine's load has changed, which is left out, or when
	// somebody was late on a busy one: figures of a container, its problems, the fence of a
	// registry that takes its own lease once more.
	repeatable = regexp.MustCompile(`^(resourceReported|reported|proposed .*: \{"proposed":\{"multi":true\}\}$)`)

	localPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	socket    = regexp.MustCompile(`unix://.*\.sock`)
	measured  = regexp.MustCompile(`"(cpu|network|work_load)": [-0-9.]+`)
)

// plain is the value of a key without what differs between two runs of the same.
func (a *accounts) plain(about, key string, v any) any {
	if key == "bytes" || key == "export" || key == "manifest" {
		return "…" // with a manifest, which spells out places in the stream of deltas
	}
	switch x := v.(type) {
	case map[string]any:
		delete(x, "problem") // of who was late
		for k, inner := range x {
			x[k] = a.plain(about, k, inner)
		}
		return x
	case []any:
		for i, inner := range x {
			x[i] = a.plain(about, key, inner)
		}
		return x
	}
	text := fmt.Sprint(v)
	switch key {
	case "pid", "startedUs", "topicId", "passwordHash", "workLoad", "cpu", "network":
		return "…"
	case "session":
		return a.rank("session", text)
	case "epoch":
		if len(text) > 9 { // of a lease: a revision of the bucket of leases
			return a.rank("lease of "+about, text)
		}
	case "holder":
		holder, _, _ := strings.Cut(text, "@")
		return holder
	case "cause":
		var seq uint64
		_, _ = fmt.Sscan(text, &seq)
		return cmp.Or(a.events[seq], "event "+text+" of another namespace")
	case "syncSeq":
		var seq uint64
		_, _ = fmt.Sscan(text, &seq)
		return a.deltaSubject(seq)
	}
	if s, ok := v.(string); ok {
		return socket.ReplaceAllString(localPort.ReplaceAllString(s, "127.0.0.1:…"), "unix:…")
	}
	return v
}

// expectAccount fails the test where the account differs from the one of the run alone.
func expectAccount(t *testing.T, alone, beside account) {
	t.Helper()
	if len(alone) == 0 {
		t.Fatal("the account of the run alone is empty")
	}
	for _, d := range alone.differences(beside) {
		t.Errorf("%s", d)
	}
}
