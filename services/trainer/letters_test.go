package trainer

import (
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/services"
)

// otherLetters is a bus with the dead letters of another one.
type otherLetters struct {
	bus.Bus
	letters bus.DeadLetters
}

func (o otherLetters) DeadLetters() bus.DeadLetters { return o.letters }

// Records that cannot be learnt fill the dead letters: the good ones behind them are
// learnt all the same, and every bad one is a letter or counted.
func TestFullLetters(t *testing.T) {
	w := newWorld(t, 2, 1)
	small := mem.New(mem.LetterLimit(16 << 10))
	t.Cleanup(func() { small.Close() })
	w.write(300)
	cfg := w.config("a", 0)
	cfg.StopAtEnd = true
	w.start(cfg, func(env *services.Env) { env.Bus = otherLetters{w.b, small.DeadLetters()} }, func(*Server) {}).wait(t)
	w.shards[0].checkBooks(w.ends)
	all, err := small.DeadLetters().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept, counted := 0, uint64(0)
	for _, p := range all {
		if p.More != nil {
			counted += p.More.Count
		} else {
			kept++
		}
	}
	if kept == 0 || counted == 0 || kept+int(counted) != len(w.broken) {
		t.Errorf("%d letters, %d counted in summaries, %d records are broken", kept, counted, len(w.broken))
	}
}
