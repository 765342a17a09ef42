package trainer

import (
	"context"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/trainer/controller"
	"github.com/monolith-go/monolith/services/trainer/internal/hold"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

const healthController = "controller"

// controllerPort is the controller's; shared are the certificates of ports that have none of their own.
func (c *Config) controllerPort(shared mtls.Files) mtls.Port {
	return mtls.Port{Role: author, Name: "the controller, by which the job is paused,", Addr: c.Controller, Own: c.ControllerTLS, Shared: shared,
		Keys: "--controller-tls", Mutual: true, Insecure: c.InsecureController, Switch: "--insecure-controller"}
}

// controlled has the job controlled in the original's ways, where that is asked for, until ctx ends.
func (c *chief) controlled(ctx context.Context, held *hold.Job, beside *sync.WaitGroup) {
	s := c.s
	if s.cfg.Controller != "" {
		beside.Go(func() { c.serveController(ctx, held) })
	}
	if s.cfg.ActionEvery > 0 {
		a := controller.Actions{Dir: s.cfg.Dir, Every: s.cfg.ActionEvery, Request: c.request, Log: s.log}
		beside.Go(func() { a.Run(ctx) })
	}
}

// serveController serves it again and again until ctx ends: its port may be another's for a while.
func (c *chief) serveController(ctx context.Context, held *hold.Job) {
	s := c.s
	defer s.env.Health.OK(healthController)
	why := requests.Request{Reason: "by the controller"}
	srv := controller.Server{Addr: s.cfg.Controller, TLS: s.controllerKeys, Dir: s.cfg.Dir, Up: func() { s.env.Health.OK(healthController) }, Job: controller.Job{
		Pause:  func(ctx context.Context) error { _, err := held.Pause(ctx, why); return err },
		Resume: func(ctx context.Context) error { _, err := held.Resume(ctx, why); return err },
		Save: func(ctx context.Context) error {
			a, err := c.order(ctx, why.Reason, false)
			if err == nil {
				_, err = a.reply()
			}
			return err
		},
		Blocks: func() (blocked, unblocked []int) { st := held.Status(); return st.Blocked, st.Unblocked },
		Step:   s.shards.GlobalStep,
	}}
	for pauses := retry.New(pauseAfterError, time.Minute); ctx.Err() == nil; _ = pauses.Wait(ctx) {
		if err := srv.Run(ctx); err != nil {
			s.env.Health.Fail(healthController, err)
			s.log.Warn("the controller does not answer", "err", err)
		}
	}
}

// request publishes one of the job, once however often it is called with the same id.
func (c *chief) request(ctx context.Context, id string, e *training.Event) error {
	_, err := c.s.env.Bus.Log().Append(ctx, bus.Draft{
		Subject: training.Subject(c.s.env.BZID, c.s.cfg.Job).Request(), Event: e, Expect: bus.Any,
		Header: events.Header{ID: id, Source: author + "/" + controller.ActionFile},
	})
	return err
}
