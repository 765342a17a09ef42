package znode

import "github.com/monolith-go/monolith/events"

const (
	// Context is the token of this package's events in subjects.
	Context = "znode"
	// Aggregate is the only one of the context: one namespace's writes to the one tree.
	Aggregate = "tree"
)

// Subject is that of the namespace's tree.
func Subject(bzid string) events.Subject { return events.Join(bzid, Context, Aggregate) }
