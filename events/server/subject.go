package server

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "server"

// Subject is that of a container's model server.
func Subject(bzid, container string) events.Subject { return events.Join(bzid, Context, container) }
