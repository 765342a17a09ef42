package jetstream_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// TestOracle runs the contract, and then a crash, on a nats-server process as anybody
// installs it: no setting of the embedded one may be needed.
func TestOracle(t *testing.T) {
	s := oracle.NATSServer(t)
	t.Run("contract", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus { return connect(t, jetstream.Config{URL: s.URL}) })
	})
}

func TestOracleOutage(t *testing.T) {
	s := oracle.NATSServer(t)
	outage(t, s.URL, s.Kill, func() { s.Restart(t) })
}
