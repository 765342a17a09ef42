package jetstream

import (
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/leases"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// Grant is what one user of the server may do. Everybody may read facts, deltas, letters,
// leases and signals.
type Grant struct {
	States    []string // contexts of whose facts it is the owner
	Serves    []string // services whose commands it answers: portal, or ps.> for all that begin so
	Acts      bool     // sends requests, commands and signals, parks letters, takes leases
	Publishes bool     // deltas
	Makes     bool     // makes and amends the streams that there are, by their names
	Trims     bool     // drops what is archived, removes letters
}

// made are the streams that there are, and no others may be made: one of any name could take in the
// subjects of others.
var made = []string{wire.LogStream, wire.SyncStream, wire.LetterStream, wire.NoteStream, bucketStream + leases.Bucket, bucketStream + trimBucket}

// Subjects are those that the user may publish to and subscribe to, in every namespace.
func (g Grant) Subjects() (publish, subscribe []string) {
	publish = []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>",
		"$JS.API.CONSUMER.>", "$JS.ACK.>", "$JS.FC.>", "$SRV.INFO", "$SRV.PING", "$SRV.STATS", "_INBOX.>",
	}
	subscribe = []string{"_INBOX.>", wire.DeltaRoot + ".>", wire.LetterRoot + ".>", bus.PulseRoot + ".*.lease.*", bus.PulseRoot + ".*.applied.*"}
	subscribe = append(subscribe, wire.LogSubjects()...)
	for _, c := range g.States {
		publish = append(publish, events.Root+".*."+c+".*")
	}
	for _, s := range g.Serves {
		subscribe = append(subscribe, wire.CommandFilter(s))
	}
	if len(g.Serves) > 0 {
		subscribe = append(subscribe, "$SRV.>")
	}
	if g.Acts {
		publish = append(publish, events.Root+".*.cmd.>", bus.PulseRoot+".>", wire.LetterRoot+".>", wire.NoteRoot+".>", "$KV."+leases.Bucket+".>")
		for _, c := range catalog.Contexts {
			publish = append(publish, events.Root+".*."+c+".*.request")
		}
	}
	if g.Publishes {
		publish = append(publish, wire.DeltaRoot+".>", "$JS.API.STREAM.PURGE."+wire.SyncStream)
	}
	if g.Makes {
		for _, stream := range made {
			publish = append(publish, "$JS.API.STREAM.CREATE."+stream, "$JS.API.STREAM.UPDATE."+stream)
		}
	}
	if g.Trims {
		publish = append(publish, "$KV."+trimBucket+".>")
		for _, stream := range []string{wire.LogStream, wire.LetterStream, wire.NoteStream} {
			publish = append(publish, "$JS.API.STREAM.PURGE."+stream, "$JS.API.STREAM.MSG.DELETE."+stream)
		}
	}
	slices.Sort(publish)
	slices.Sort(subscribe)
	return publish, subscribe
}
