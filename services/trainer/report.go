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
		w := &figures.Summaries{Dir: s.cfg.SummaryDir, Trainer: s.cfg.Name, Step: s.shards.GlobalStep, Left: s.left, Log: s.log}
		defer w.Close()
		r.Also = w.Write
	}
	return r.Run(ctx)
}

// left is how many records of this trainer's partitions are still to be learnt.
func (s *Server) left() (n int64) {
	s.lags.Range(func(_, records any) bool {
		n += records.(int64)
		return true
	})
	return n
}
