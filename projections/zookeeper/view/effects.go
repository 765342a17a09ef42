package view

import "github.com/monolith-go/monolith/projections/zookeeper/tree"

// Effects are what one event did. They are no part of the state, and a restored snapshot
// has none. Changes are valid until the next Apply; an outcome, and paths, may be kept.
type Effects struct {
	Changes []tree.Change // in the order in which watches fire
	Outcome *tree.Outcome // of a proposal or of a session's fact; nil for every other event
	Closed  int64         // session that this event ended, 0: none
}
