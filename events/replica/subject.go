package replica

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "replica"

// Subject is that of the life of a replica, by Replica.Key.
func Subject(bzid, key string) events.Subject { return events.Join(bzid, Context, key) }
