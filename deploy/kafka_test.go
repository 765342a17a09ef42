package main

import (
	"slices"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
)

// TestKafkaReaches holds that each role which speaks to Kafka is told its brokers, publishers too, which
// measure canaries, and that its pods are let out to their ports.
func TestKafkaReaches(t *testing.T) {
	found, others := workloads(t, rendering(t, "kafka: {brokers: ['a:9092', 'b:9095']}"))
	for _, component := range []string{"publisher", "trainer", "entry"} {
		var said string
		for _, w := range found {
			if w.pod.Labels["app.kubernetes.io/component"] == component {
				for _, c := range w.pod.Spec.Containers {
					said += strings.Join(c.Args, " ") + " "
				}
			}
		}
		var ports []int32
		for _, o := range others {
			if p, ok := o.(*networking.NetworkPolicy); ok && p.Spec.PodSelector.MatchLabels["app.kubernetes.io/component"] == component {
				for _, e := range p.Spec.Egress {
					for _, q := range e.Ports {
						ports = append(ports, q.Port.IntVal)
					}
				}
			}
		}
		for broker, port := range map[string]int32{"a:9092": 9092, "b:9095": 9095} {
			if !strings.Contains(said, broker) || !slices.Contains(ports, port) {
				t.Errorf("%s: its arguments are %s, its ports %v; %s is missing", component, said, ports, broker)
			}
		}
	}
	for name, s := range composed(t).Services {
		if slices.Contains([]string{"publisher", "trainer", "entry"}, name) && !strings.Contains(strings.Join(s.Command, " "), "--kafka=kafka:9092") {
			t.Errorf("compose: %s is not told of Kafka: %q", name, s.Command)
		}
	}
}
