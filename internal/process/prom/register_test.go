package prom

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Roles of one process count in the same collector; one without a registry counts by itself.
func TestRegister(t *testing.T) {
	counter := func(help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x_total", Help: help}, []string{"by"})
	}
	reg, own := prometheus.NewRegistry(), counter("h")
	if Register(reg, own) != own || Register(reg, counter("h")) != own {
		t.Error("two roles count in two collectors")
	}
	if alone := counter("h"); Register(nil, alone) != alone {
		t.Error("without a registry it is another's")
	}
	defer func() {
		if recover() == nil {
			t.Error("another metric of that name is taken")
		}
	}()
	Register(reg, counter("something else"))
}
