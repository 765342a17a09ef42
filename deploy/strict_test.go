package main

import (
	"fmt"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// typed reads an object into the type that the API server keeps it in; a field that the type
// does not have, or that is of another kind, is an error.
func typed(m manifest) (any, error) {
	var into any
	switch m.APIVersion + " " + m.Kind {
	case "apps/v1 Deployment":
		into = new(apps.Deployment)
	case "apps/v1 StatefulSet":
		into = new(apps.StatefulSet)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		into = new(autoscaling.HorizontalPodAutoscaler)
	case "monitoring.coreos.com/v1 PrometheusRule":
		into = new(monitoring.PrometheusRule)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		into = new(monitoring.ServiceMonitor)
	case "networking.k8s.io/v1 NetworkPolicy":
		into = new(networking.NetworkPolicy)
	case "policy/v1 PodDisruptionBudget":
		into = new(policy.PodDisruptionBudget)
	case "v1 ConfigMap":
		into = new(core.ConfigMap)
	case "v1 Namespace":
		into = new(core.Namespace)
	case "v1 PersistentVolumeClaim":
		into = new(core.PersistentVolumeClaim)
	case "v1 Service":
		into = new(core.Service)
	default:
		return nil, fmt.Errorf("%s %s: no such type is expected", m.APIVersion, m.id())
	}
	if err := yaml.UnmarshalStrict(m.yaml, into); err != nil {
		return nil, fmt.Errorf("%s: %w", m.id(), err)
	}
	return into, nil
}

// workload is the part that Deployments and StatefulSets have in common.
type workload struct {
	id       string
	replicas *int32
	selector map[string]string
	service  string // of a StatefulSet
	pod      core.PodTemplateSpec
	claims   []core.PersistentVolumeClaim
}

// workloads are those among the objects, all of which must be of their types.
func workloads(t *testing.T, all []manifest) (found []workload, others []any) {
	t.Helper()
	for _, m := range all {
		object, err := typed(m)
		if err != nil {
			t.Error(err)
			continue
		}
		switch o := object.(type) {
		case *apps.Deployment:
			found = append(found, workload{id: m.id(), replicas: o.Spec.Replicas, selector: o.Spec.Selector.MatchLabels, pod: o.Spec.Template})
		case *apps.StatefulSet:
			found = append(found, workload{id: m.id(), replicas: o.Spec.Replicas, selector: o.Spec.Selector.MatchLabels, service: o.Spec.ServiceName, pod: o.Spec.Template, claims: o.Spec.VolumeClaimTemplates})
		default:
			others = append(others, object)
		}
	}
	return found, others
}

// TestStrict shows that the check of types sees what it is there for.
func TestStrict(t *testing.T) {
	for what, text := range map[string]string{
		"a misspelt field":    "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {port: []}}",
		"a word for a number": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: two}}",
		"a key twice":         "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nmetadata: {name: b}",
		"an unknown kind":     "{apiVersion: v1, kind: Pood, metadata: {name: a}}",
	} {
		all, err := split(text)
		if err == nil {
			_, err = typed(all[0])
		}
		if err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
