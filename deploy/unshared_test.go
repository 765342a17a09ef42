package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// TestNothingIsShared holds that a pod has its volumes for itself: those of its own claims, which one node mounts, and
// what goes with the pod.
func TestNothingIsShared(t *testing.T) {
	for name, values := range variants {
		found, others := workloads(t, rendering(t, values))
		for _, o := range others {
			if c, ok := o.(*core.PersistentVolumeClaim); ok {
				t.Errorf("%s: the claim %s is no pod's own", name, c.Name)
			}
		}
		for _, w := range found {
			for _, v := range w.pod.Spec.Volumes {
				if v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil {
					t.Errorf("%s: %s has the volume %+v", name, w.id, v)
				}
			}
			for _, c := range w.claims {
				if !slices.Equal(c.Spec.AccessModes, []core.PersistentVolumeAccessMode{core.ReadWriteOnce}) {
					t.Errorf("%s: %s has volumes that are %v", name, w.id, c.Spec.AccessModes)
				}
			}
			if keeps := len(w.claims) > 0; keeps != slices.ContainsFunc([]string{"-nats", "-ps", "-trainer", "-entry", "-serving-0", "-serving-1"}, func(s string) bool { return strings.HasSuffix(w.id, s) }) {
				t.Errorf("%s: %s keeps something: %v", name, w.id, keeps)
			}
		}
	}
	machines := map[string][]string{} // by volume
	for name, s := range composed(t).Services {
		for _, v := range s.Volumes {
			machines[v.Source] = append(machines[v.Source], strings.TrimSuffix(name, "-sync"))
		}
	}
	for volume, on := range machines {
		if len(slices.Compact(on)) != 1 {
			t.Errorf("compose: the volume %s is shared by %v", volume, on)
		}
	}
	if len(machines) != 11 {
		t.Errorf("compose: the volumes are %v", machines)
	}
}

// TestTransfersReach holds that what is handed out is found: the name that a model-sync tells is its pod's, of a Service
// that has it before the pod is ready, and who fetches is let out to it.
func TestTransfersReach(t *testing.T) {
	for name, values := range variants {
		found, others := workloads(t, rendering(t, values))
		of := map[string]workload{}
		for _, w := range found {
			of[w.pod.Labels["app.kubernetes.io/component"]] = w
		}
		learnt, serving := []string{"ps", "trainer"}, []string{"entry", "serving-0"}
		for _, component := range slices.Concat(learnt, serving) {
			w := of[component]
			want := fmt.Sprintf("--transfer-advertise=$(MY_POD_NAME).%s.monolith.svc:8600", w.service)
			if !w.has("transfer") || !slices.ContainsFunc(w.pod.Spec.Containers, func(c core.Container) bool { return slices.Contains(c.Args, want) }) {
				t.Errorf("%s: %s does not tell %s", name, w.id, want)
			}
			if !slices.ContainsFunc(others, func(o any) bool {
				s, ok := o.(*core.Service)
				return ok && s.Name == w.service && s.Spec.ClusterIP == core.ClusterIPNone && s.Spec.PublishNotReadyAddresses && subset(s.Spec.Selector, w.pod.Labels) &&
					slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Port == 8600 })
			}) {
				t.Errorf("%s: the Service %s does not name the pods of %s", name, w.service, w.id)
			}
			to := learnt
			if slices.Contains(serving, component) {
				to = slices.Concat(learnt, serving)
			}
			for _, other := range to {
				if strings.Contains(values, "networkPolicy: {enabled: false}") {
					continue
				}
				if !letOut(others, w.pod.Labels, of[other].pod.Labels) {
					t.Errorf("%s: %s may not fetch from %s", name, w.id, of[other].id)
				}
			}
		}
	}
}

// letOut says whether a policy lets pods out to the transfers of others; TestChart holds that these let them in.
func letOut(others []any, from, to map[string]string) bool {
	for _, o := range others {
		p, ok := o.(*networking.NetworkPolicy)
		if !ok || !subset(p.Spec.PodSelector.MatchLabels, from) {
			continue
		}
		for _, e := range p.Spec.Egress {
			if len(e.Ports) == 1 && e.Ports[0].Port.IntVal == 8600 && slices.ContainsFunc(e.To, func(peer networking.NetworkPolicyPeer) bool {
				return subset(peer.PodSelector.MatchLabels, to)
			}) {
				return true
			}
		}
	}
	return false
}
