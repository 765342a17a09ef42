package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// roadsTaken are the requests of trainers to shards, by road.
func roadsTaken(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "monolith_trainer_shard_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "road" {
					taken[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return taken
}

// Shards in one process with their trainers are called without a socket; TestRoleStatus has
// those of processes.
func TestShardsOfOneProcessAreCalledWithoutASocket(t *testing.T) {
	w := opsStart(t, opsConfig(t.TempDir()))
	w.rate(50)
	w.learnt()
	taken := roadsTaken(t, w.Metrics)
	if len(taken) != 1 || taken["process"] < 10 {
		t.Errorf("requests by road: %v", taken)
	}
}
