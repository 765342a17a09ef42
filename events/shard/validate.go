// Package shard holds the facts of training parameter-server shards. The shard's one
// fenced process owns them.
package shard

import (
	"net"
	"strings"

	"github.com/monolith-go/monolith/events"
)

// Validate reports the rules that e breaks on the subject of aggregate as an
// [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Text("the aggregate", aggregate, events.MaxName+len("/ps:4294967295"))
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_Ready:
		x := b.Ready
		r.Named("the job", x.GetJob())
		r.Check(Aggregate(x.GetJob(), x.GetShard()) == aggregate, "the body is shard %d of %q, its subject %q", x.GetShard(), x.GetJob(), aggregate)
		r.Check(x.GetShard() < x.GetShards(), "shard %d of %d does not exist", x.GetShard(), x.GetShards())
		r.Check(x.GetEpoch() > 0, "an epoch is positive")
		if !strings.HasPrefix(x.GetRowsAddress(), "unix://") {
			_, _, err := net.SplitHostPort(x.GetRowsAddress())
			r.Check(err == nil, "rows address %q is neither host:port nor unix:///path", x.GetRowsAddress())
		}
		r.Check(len(x.GetNearAddresses()) <= 4, "%d near addresses, 4 are enough", len(x.GetNearAddresses()))
		for _, near := range x.GetNearAddresses() {
			r.Check(strings.HasPrefix(near, "unix:///"), "near address %q is no unix:///path", near)
		}
	case *Event_HealthFailed:
		r.Reason("a failure", b.HealthFailed.GetReason())
	case *Event_MachineFailed:
		r.Reason("a machine's failure", b.MachineFailed.GetReason())
		r.Check(b.MachineFailed.GetEpoch() > 0, "an epoch is positive")
	case *Event_MachineRecovered:
		r.Check(b.MachineRecovered.GetEpoch() > 0, "an epoch is positive")
	}
	return r.Err()
}
