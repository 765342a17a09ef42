package role

import (
	"context"
	"log/slog"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/projections/models"
)

// Ready waits until all of them are closed; false: ctx has ended before.
func Ready(ctx context.Context, all ...<-chan struct{}) bool {
	for _, ready := range all {
		select {
		case <-ready:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Declared waits for a declaration of the model that take accepts; false: ctx has ended
// before. Each new reason to go on waiting is logged.
func Declared(ctx context.Context, catalog *follow.Follower[models.State], name string, log *slog.Logger, take func(*model.ModelSpec) error) bool {
	for last := (LastLogged{}); ; {
		changed := catalog.Changed()
		var spec *model.ModelSpec
		catalog.Read(func(s models.State) { spec = s.Models[name].Spec.V })
		reason := "it is not declared"
		if spec != nil {
			err := take(spec)
			if err == nil {
				return true
			}
			reason = err.Error()
		}
		if last.Changed(reason) {
			log.Warn("waiting for a declaration of the model", "model", name, "reason", reason)
		}
		if !Ready(ctx, changed) {
			return false
		}
	}
}

// LastLogged is why a loop waits, as it has logged it last, so that it logs the same only
// once.
type LastLogged struct{ reason string }

// Changed says whether reason is another one than at the last call, and remembers it.
func (l *LastLogged) Changed(reason string) bool {
	was := l.reason
	l.reason = reason
	return reason != was
}
