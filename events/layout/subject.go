package layout

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "layout"

// Subject is that of a saved model or a layout, by ModelAggregate or LayoutAggregate.
func Subject(bzid, aggregate string) events.Subject { return events.Join(bzid, Context, aggregate) }
