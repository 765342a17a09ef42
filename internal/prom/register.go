// Package prom registers Prometheus collectors that roles of one process share.
package prom

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c and returns it, or the same collector that another role of the
// process has registered before. Without a registry c is counted all the same and shown by
// nobody. Two different metrics under one name are a defect of this program: it panics.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}
