package mem_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		b := mem.New()
		t.Cleanup(func() { b.Close() })
		return b
	})
}

func TestLetters(t *testing.T) {
	bustest.RunLetters(t, func(t *testing.T, limit int64, age time.Duration) bus.Bus {
		options := []mem.Option{mem.LetterAge(age)}
		if limit > 0 {
			options = append(options, mem.LetterLimit(limit))
		}
		b := mem.New(options...)
		t.Cleanup(func() { b.Close() })
		return b
	})
}
