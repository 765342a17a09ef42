package natsserver

import "github.com/prometheus/client_golang/prometheus"

var (
	connections = prometheus.NewDesc("monolith_nats_connections", "clients that are connected to this server", nil, nil)
	routes      = prometheus.NewDesc("monolith_nats_routes", "connections to other servers of the cluster", nil, nil)
	slow        = prometheus.NewDesc("monolith_nats_slow_consumers_total", "clients that were cut off as they did not read", nil, nil)
	messages    = prometheus.NewDesc("monolith_nats_messages_total", "messages by direction: in, out", []string{"direction"}, nil)
	transferred = prometheus.NewDesc("monolith_nats_bytes_total", "bytes of messages by direction: in, out", []string{"direction"}, nil)
	stored      = prometheus.NewDesc("monolith_nats_stored_bytes", "bytes on disk of the streams here", nil, nil)
	reserved    = prometheus.NewDesc("monolith_nats_reserved_bytes", "bytes that the streams here may have at most", nil, nil)
	replicas    = prometheus.NewDesc("monolith_nats_groups", "replicated streams, consumers and cluster states here, by state: current, behind", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connections, routes, slow, messages, transferred, stored, reserved, replicas} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A server that heals begins to count anew.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	ns := s.ns.Load()
	v, err := ns.Varz(nil)
	if err != nil {
		return // it has no such error today
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge(connections, float64(v.Connections))
	gauge(routes, float64(v.Routes))
	count(slow, v.SlowConsumers)
	count(messages, v.InMsgs, "in")
	count(messages, v.OutMsgs, "out")
	count(transferred, v.InBytes, "in")
	count(transferred, v.OutBytes, "out")
	if stats := v.JetStream.Stats; stats != nil {
		gauge(stored, float64(stats.Store))
		gauge(reserved, float64(stats.ReservedStore))
	}
	var current, behind int
	for _, g := range groupsOf(ns) {
		if g.Leader && !g.CatchingUp && g.Applied >= g.Committed {
			current++
		} else {
			behind++
		}
	}
	gauge(replicas, float64(current), "current")
	gauge(replicas, float64(behind), "behind")
}
