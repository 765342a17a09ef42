package mem_test

import (
	"testing"

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
