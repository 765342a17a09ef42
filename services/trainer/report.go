package trainer

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/services/trainer/figures"
)

// reportEvery is the time between looks at the figures.
const reportEvery = 10 * time.Second

// report appends the figures as facts while something is learnt.
func (s *Server) report(ctx context.Context) error {
	r := figures.Reporter{Meter: s.m.meter, Shown: s.m.figures, Tell: s.tell, Log: s.log, Every: s.reportEvery, AtEnd: s.cfg.Files.Given()}
	if s.cfg.SummaryDir != "" {
		w := &summaries{s: s}
		defer w.close()
		r.Also = w.write
	}
	return r.Run(ctx)
}
