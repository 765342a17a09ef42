package trainer

import (
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// chief is this trainer as the one that leads the job, or waits to.
func (s *Server) chief() *chief.Trainer {
	return &chief.Trainer{
		Settings: chief.Settings{
			Name: s.cfg.Name, Job: s.cfg.Job, Model: s.cfg.Model, Topic: s.cfg.Topic, Group: s.cfg.group(s.env.BZID),
			Lease: s.lease("chief"), Dir: s.cfg.Dir,
			NumShards: s.cfg.Shards, ExportEvery: s.cfg.ExportEvery, Keep: s.cfg.Keep, KeepEvery: s.cfg.KeepEvery,
			Deterministic: s.cfg.Deterministic, StopAtEnd: s.cfg.StopAtEnd,
			LeaseTTL: s.cfg.LeaseTTL, CheckpointEvery: s.cfg.CheckpointEvery, CheckpointSteps: s.cfg.CheckpointSteps, ActionEvery: s.cfg.ActionEvery,
			LookAtTopicEvery: s.lookAtTopicEvery, Restore: s.cfg.Restore,
			Controller: s.cfg.Controller, ControllerTLS: s.controllerKeys,
		},
		Env: s.env, Log: s.log, Source: s.source, Answered: s.answered,
		Catalog: s.catalog, Plan: s.plan, Fleet: s.fleet, Lineage: s.lineage, Requests: s.requests, Shards: s.shards,
		Engine: s.preparedEngine, Preparing: s.preparing,
		Started: s.started, Differs: s.differs, Endless: s.endless, Takes: s.takesPart,
		Saved: s.m.checkpoints, Failed: s.m.failures,
	}
}

// preparedEngine is nil before the model is prepared.
func (s *Server) preparedEngine() *step.Engine {
	if !s.isPrepared() {
		return nil
	}
	return s.engine
}

// controllerPort is the controller's; shared are the certificates of ports that have none of their own.
func (c *Config) controllerPort(shared mtls.Files) mtls.Port {
	return mtls.Port{Role: author, Name: "the controller, by which the job is paused,", Addr: c.Controller, Own: c.ControllerTLS, Shared: shared,
		Keys: "--controller-tls", Mutual: true, Insecure: c.InsecureController, Switch: "--insecure-controller"}
}
