package model

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "model"

// Subject is that of the facts about a model.
func Subject(bzid, name string) events.Subject { return events.Join(bzid, Context, name) }
