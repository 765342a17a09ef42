package publish

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "publish"

// Subject is that of the plans of a model.
func Subject(bzid, model string) events.Subject { return events.Join(bzid, Context, model) }
