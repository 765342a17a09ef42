package container

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "container"

// Subject is that of the life of a container.
func Subject(bzid, id string) events.Subject { return events.Join(bzid, Context, id) }
