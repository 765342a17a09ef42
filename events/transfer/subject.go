package transfer

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "sync"

// Subject is that of a host's copies of a sub-model.
func Subject(bzid, aggregate string) events.Subject { return events.Join(bzid, Context, aggregate) }
