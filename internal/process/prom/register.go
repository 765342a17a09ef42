// Package prom registers Prometheus collectors that roles of one process share.
package prom

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Register is TryRegister for a role's own metrics: two different ones under one name are a
// defect of this program, and it panics.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	c, err := TryRegister(reg, c)
	if err != nil {
		panic(err)
	}
	return c
}

// TryRegister registers c and returns it, or the same collector that another role of the
// process has registered before. Without a registry, and where it refuses c, which is the
// error, c is counted all the same and shown by nobody.
func TryRegister[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(C); ok {
			return same, nil
		}
	}
	return c, err
}
