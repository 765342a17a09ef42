package catalog

import (
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/events/znode"
)

// Owners are the roles, by context, of which each alone states that context's facts. Anyone
// may publish its requests.
var Owners = map[string]string{
	model.Context: "portal", layout.Context: "portal",
	publish.Context:   "publisher",
	container.Context: "replica-registry", replica.Context: "replica-registry", znode.Context: "replica-registry",
	server.Context:   "tfs-supervisor",
	transfer.Context: "model-sync",
	training.Context: "trainer",
	shard.Context:    "ps",
}
