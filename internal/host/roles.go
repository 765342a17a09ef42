package host

import (
	"github.com/monolith-go/monolith/services/modelserver"
	"github.com/monolith-go/monolith/services/modelsync"
	"github.com/monolith-go/monolith/services/portal"
	"github.com/monolith-go/monolith/services/ps"
	"github.com/monolith-go/monolith/services/publisher"
	"github.com/monolith-go/monolith/services/replicaregistry"
	"github.com/monolith-go/monolith/services/tfssupervisor"
	"github.com/monolith-go/monolith/services/trainer"
)

// Roles are all there are, in the order in which a stack starts them.
var Roles = []Role{
	{Name: "portal", Short: "what should be served: declare, load and unload models", bind: alone(portal.New), tasks: portalTasks},
	{Name: "publisher", Short: "who serves what: pack sub-models onto containers", bind: alone(publisher.New), tasks: publisherTasks},
	{Name: "replica-registry", Short: "who is alive: leases, addresses, AgentService and the ZooKeeper port",
		bind: alone(replicaregistry.New), tasks: registryTasks, lean: true},
	{Name: "model-sync", Short: "bytes of models: copies of exports on this machine, what was applied", bind: alone(modelsync.New), tasks: syncTasks},
	{Name: "tfs-supervisor", Short: "one model server's process: start, configure, watch, report",
		bind: flagsOf[tfssupervisor.Config](launching), tasks: servingTasks, server: "modelserver", answers: true},
	{Name: "agent", Short: "the original's agent: the model servers that an agent.conf names",
		bind: flagsOf[tfssupervisor.AgentConfig](agent), server: "modelserver", answers: true},
	{Name: "modelserver", Short: "the built-in TensorFlow-Serving-compatible model server", bind: alone(modelserver.New), answers: true, lean: true},
	{Name: "ps", Short: "one training parameter-server shard", bind: alone(ps.New), tasks: shardTasks, job: "ps", lean: true},
	{Name: "trainer", Short: "learning: batches, the dense tower, checkpoints and exports", bind: alone(trainer.New), tasks: trainerTasks, job: "worker"},
}
