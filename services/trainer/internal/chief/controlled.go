package chief

import (
	"context"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/trainer/controller"
	"github.com/monolith-go/monolith/services/trainer/internal/hold"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// controlled has the job controlled in the original's ways, where that is asked for, until ctx ends.
func (c *Chief) controlled(ctx context.Context, held *hold.Job, beside *sync.WaitGroup) {
	s := c.Trainer
	if s.Controller != "" {
		beside.Go(func() { c.serveController(ctx, held) })
	}
	if s.ActionEvery > 0 {
		a := controller.Actions{Dir: s.Dir, Every: s.ActionEvery, Request: c.request, Log: s.Log}
		beside.Go(func() { a.Run(ctx) })
	}
}

// serveController serves it again and again until ctx ends: its port may be another's for a while.
func (c *Chief) serveController(ctx context.Context, held *hold.Job) {
	s := c.Trainer
	defer s.Env.Health.OK(HealthController)
	why := requests.Request{Reason: "by the controller"}
	srv := controller.Server{Addr: s.Controller, TLS: s.ControllerTLS, Dir: s.Dir, Up: func() { s.Env.Health.OK(HealthController) }, Job: controller.Job{
		Pause:  func(ctx context.Context) error { _, err := held.Pause(ctx, why); return err },
		Resume: func(ctx context.Context) error { _, err := held.Resume(ctx, why); return err },
		Save: func(ctx context.Context) error {
			a, err := c.order(ctx, Order{Reason: why.Reason})
			if err == nil {
				_, err = a.Reply()
			}
			return err
		},
		Blocks: func() (blocked, unblocked []int) { st := held.Status(); return st.Blocked, st.Unblocked },
		Step:   s.Shards.GlobalStep,
	}}
	for pauses := retry.New(PauseAfterError, time.Minute); ctx.Err() == nil; _ = pauses.Wait(ctx) {
		if err := srv.Run(ctx); err != nil {
			s.Env.Health.Fail(HealthController, err)
			s.Log.Warn("the controller does not answer", "err", err)
		}
	}
}

// request publishes one of the job, once however often it is called with the same id.
func (c *Chief) request(ctx context.Context, id string, e *training.Event) error {
	_, err := c.Trainer.Env.Bus.Log().Append(ctx, bus.Draft{
		Subject: training.Subject(c.Trainer.Env.BZID, c.Trainer.Job).Request(), Event: e, Expect: bus.Any,
		Header: events.Header{ID: id, Source: Author + "/" + controller.ActionFile},
	})
	return err
}
