package modelsync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/transfer"
)

const (
	// maxServers bounds the (model, sub-model, container) heard between two flushes.
	maxServers = 10_000
	// maxApplied bounds what one of them is remembered to have applied between two
	// flushes: the newest.
	maxApplied = 20_000
	// perFact keeps a fact below 256 KiB: an element takes at most 80 bytes of JSON.
	perFact = 3000
	// maxAggregate is what the log takes, in bytes.
	maxAggregate = 255
)

// server is who applied deltas.
type server struct{ model, sub, container string }

func (s server) aggregate() string { return s.model + "/" + s.sub + "/" + s.container }

// applied gathers what model servers say they have made visible, until it is taken.
type applied struct {
	mu      sync.Mutex
	by      map[server]map[uint64]int64 // sync sequence -> unix µs
	dropped uint64
}

func newApplied() *applied { return &applied{by: map[server]map[uint64]int64{}} }

// hear takes one signal in. The last token of its subject is the container's.
func (a *applied) hear(subject string, payload []byte) error {
	var d transfer.DeltasApplied
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(payload, &d); err != nil {
		return fmt.Errorf("%w: %w", events.ErrMalformed, err)
	}
	token := subject[strings.LastIndexByte(subject, '.')+1:]
	if d.GetContainer() == "" || events.Escape(d.GetContainer()) != token {
		return fmt.Errorf("%w: container %q signals as %q", events.ErrInvalid, d.GetContainer(), token)
	}
	for _, name := range []string{d.GetModelName(), d.GetSubModel()} {
		if name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%w: %q cannot name a model or sub-model", events.ErrInvalid, name)
		}
	}
	who := server{d.GetModelName(), d.GetSubModel(), d.GetContainer()}
	if n := len(who.aggregate()); n > maxAggregate {
		return fmt.Errorf("%w: model, sub-model and container take %d bytes together, at most %d are allowed", events.ErrInvalid, n, maxAggregate)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	seqs := a.by[who]
	if seqs == nil {
		if len(a.by) >= maxServers {
			a.dropped += uint64(len(d.GetApplied()))
			return nil
		}
		seqs = map[uint64]int64{}
		a.by[who] = seqs
	}
	for _, x := range d.GetApplied() {
		at, known := seqs[x.GetSyncSeq()]
		if known && at <= x.GetUnixUs() {
			continue // visible since then
		}
		seqs[x.GetSyncSeq()] = x.GetUnixUs()
	}
	if over := len(seqs) - maxApplied; over > 0 {
		for _, seq := range slices.Sorted(maps.Keys(seqs))[:over] {
			delete(seqs, seq)
		}
		a.dropped += uint64(over)
	}
	return nil
}

// take empties the heap into drafts, and says how many elements the bounds have cost.
// Drafts of one subject are unguarded: they are observations, not decisions.
func (a *applied) take(bzid string) (drafts []bus.Draft, dropped uint64) {
	a.mu.Lock()
	by := a.by
	a.by, dropped, a.dropped = map[server]map[uint64]int64{}, a.dropped, 0
	a.mu.Unlock()
	who := slices.SortedFunc(maps.Keys(by), func(x, y server) int {
		return cmp.Or(cmp.Compare(x.model, y.model), cmp.Compare(x.sub, y.sub), cmp.Compare(x.container, y.container))
	})
	for _, w := range who {
		for seqs := range slices.Chunk(slices.Sorted(maps.Keys(by[w])), perFact) {
			d := &transfer.DeltasApplied{ModelName: w.model, SubModel: w.sub, Container: w.container}
			for _, seq := range seqs {
				d.Applied = append(d.Applied, &transfer.Applied{SyncSeq: seq, UnixUs: by[w][seq]})
			}
			drafts = append(drafts, bus.Draft{
				Subject: transfer.Subject(bzid, w.aggregate()),
				Event:   &transfer.Event{Body: &transfer.Event_DeltasApplied{DeltasApplied: d}},
				Header:  events.Header{Source: source},
				Expect:  bus.Any,
			})
		}
	}
	return drafts, dropped
}
