package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// variants are values that together reach every branch of the templates.
var variants = map[string]string{
	"default": "",
	"all": `
metrics: {serviceMonitor: true, rules: true, dashboard: true, labels: {release: prometheus}}
nats: {replicas: 5, storageClass: fast}
registry: {agentService: true, extraArgs: [--lease=5s]}
training:
  rowsTLSSecret: rows
  autoscaling: {enabled: true, maxTrainers: 4}
  trainerArgs: ["--label-range=0,5", --time-field=timestamp, --batch=128]
  shardArgs: [--sync-interval=25ms]
  volumes: {shard: {size: 1Ti, storageClass: fast}, trainer: {storageClass: fast}}
transfers: {tlsSecret: transfers}
serving: {replicas: 3, volume: {storageClass: fast}, autoscaling: {enabled: true}, serverArgs: [--max-batch=1024], drainSeconds: 10}
imagePullSecrets: [{name: registry}]
nodeSelector: {disk: ssd}
tolerations: [{key: monolith, operator: Exists}]
portal: {extraArgs: [--log-level=debug]}
publisher: {extraArgs: [--lease-ttl=3s]}
networkPolicy: {nats: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tools}}}]}`,
	"smallest": `
nats: {replicas: 1}
publisher: {replicas: 1}
registry: {replicas: 1, zookeeper: false}
training: {shards: 1, trainers: 1, volumes: {shard: {storageClass: local}}}
serving: {shards: 1, replicas: 1, entries: 1}
networkPolicy: {enabled: false}`,
	"own NATS":           "nats: {enabled: false, url: 'nats://a:4222,nats://b:4333'}",
	"own NATS by Secret": "nats: {enabled: false, urlSecret: nats}",
	"telemetry":          "otlp: {endpoint: 'http://otel.monitoring:4317', headersSecret: otel}",
}

func rendering(t *testing.T, values string) []manifest {
	t.Helper()
	all, err := render(".", "monolith", values)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestChart renders every variant and holds what Kubernetes and we ask of each object.
func TestChart(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			found, others := workloads(t, rendering(t, values))
			for _, w := range found {
				t.Run(w.id, func(t *testing.T) {
					w.selects(t)
					w.restricted(t)
					w.probed(t)
					w.mounts(t, others)
				})
			}
			budgets(t, found, others)
			services(t, found, others)
			arrows(t, others)
		})
	}
}

// selects holds that a workload's selector finds its own pods.
func (w workload) selects(t *testing.T) {
	if len(w.selector) < 3 || !subset(w.selector, w.pod.Labels) {
		t.Errorf("the selector %v does not select pods labelled %v", w.selector, w.pod.Labels)
	}
	for _, s := range w.pod.Spec.TopologySpreadConstraints {
		if !subset(s.LabelSelector.MatchLabels, w.pod.Labels) {
			t.Errorf("spread over %s counts other pods", s.TopologyKey)
		}
	}
	if len(w.pod.Spec.TopologySpreadConstraints) != 2 {
		t.Error("pods are not spread over hosts and zones")
	}
}

func subset(of, labels map[string]string) bool {
	for k, v := range of {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// restricted holds what Pod Security's level of that name asks, and more: nothing is written to
// the image, and nobody talks to the API server.
func (w workload) restricted(t *testing.T) {
	p := w.pod.Spec
	if p.SecurityContext == nil || !*p.SecurityContext.RunAsNonRoot || *p.SecurityContext.RunAsUser != 65532 ||
		p.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *p.AutomountServiceAccountToken || p.HostNetwork || p.HostPID {
		t.Errorf("the pod's security context is %+v", p.SecurityContext)
	}
	for _, c := range p.Containers {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s: its security context is %+v", c.Name, s)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: no bound of memory, or no share of processors: %+v", c.Name, c.Resources)
		}
	}
}

// probed holds that each container has its three probes, on ports that it has.
func (w workload) probed(t *testing.T) {
	for _, c := range w.pod.Spec.Containers {
		names := map[string]bool{}
		for _, p := range c.Ports {
			names[p.Name] = true
		}
		for what, p := range map[string]*core.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
			if p == nil || p.HTTPGet == nil || !names[p.HTTPGet.Port.StrVal] {
				t.Errorf("%s: the %s probe %+v asks none of its ports %v", c.Name, what, p, c.Ports)
				continue
			}
			want := "/livez"
			if what == "readiness" {
				want = "/readyz"
			}
			if c.Name != "nats" && p.HTTPGet.Path != want {
				t.Errorf("%s: the %s probe asks for %s", c.Name, what, p.HTTPGet.Path)
			}
		}
	}
}

// mounts holds that what is mounted is there, and what a flag names is mounted.
func (w workload) mounts(t *testing.T, others []any) {
	volumes := map[string]bool{}
	for _, c := range w.claims {
		volumes[c.Name] = true
	}
	for _, v := range w.pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && !slices.ContainsFunc(others, func(o any) bool { c, ok := o.(*core.ConfigMap); return ok && c.Name == v.ConfigMap.Name }) {
			t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	for _, c := range w.pod.Spec.Containers {
		mounted := []string{}
		for _, m := range c.VolumeMounts {
			mounted = append(mounted, m.MountPath)
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which the pod does not have", c.Name, m.Name)
			}
		}
		for _, arg := range c.Args {
			_, path, ok := strings.Cut(strings.TrimPrefix(arg, "--server-arg="), "=/")
			if ok && !slices.ContainsFunc(mounted, func(at string) bool { return strings.HasPrefix("/"+path+"/", at+"/") }) {
				t.Errorf("%s: %s names a folder that is not mounted", c.Name, arg)
			}
		}
	}
}

// budgets holds that an eviction leaves each group of pods one at least, except for training
// shards, which are not replicas of one another and go one at a time.
func budgets(t *testing.T, found []workload, others []any) {
	t.Helper()
	for _, w := range found {
		n := 0
		for _, o := range others {
			b, ok := o.(*policy.PodDisruptionBudget)
			if !ok || !subset(b.Spec.Selector.MatchLabels, w.pod.Labels) {
				continue
			}
			n++
			least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
			if (least == nil || *least != intstr.FromInt32(1)) && (most == nil || *most != intstr.FromInt32(1)) {
				t.Errorf("%s: the budget %+v", w.id, b.Spec)
			}
			if w.replicas != nil && *w.replicas == 1 && !strings.HasSuffix(w.id, "-ps") {
				t.Errorf("%s has one pod, which its budget would keep on its node for ever", w.id)
			}
		}
		if several := w.replicas == nil || *w.replicas > 1; several && n != 1 && !strings.HasSuffix(w.id, "-trainer") {
			t.Errorf("%s has %d budgets", w.id, n)
		}
	}
}

// services holds that each Service selects pods that have its ports, and each StatefulSet has
// the Service that it names.
func services(t *testing.T, found []workload, others []any) {
	t.Helper()
	names := map[string]bool{}
	for _, o := range others {
		s, ok := o.(*core.Service)
		if !ok {
			continue
		}
		names[s.Name] = true
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(found, func(w workload) bool { return subset(s.Spec.Selector, w.pod.Labels) && w.has(p.TargetPort.StrVal) }) {
				t.Errorf("Service %s: no pod that it selects has the port %s", s.Name, p.TargetPort.String())
			}
		}
	}
	for _, w := range found {
		if w.service != "" && !names[w.service] {
			t.Errorf("%s: there is no Service %s", w.id, w.service)
		}
	}
}

func (w workload) has(port string) bool {
	return slices.ContainsFunc(w.pod.Spec.Containers, func(c core.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == port })
	})
}

// arrows holds who may talk to whom: what a policy lets out, the other end lets in, and neither
// a shard of training nor one of serving is for clients.
func arrows(t *testing.T, others []any) {
	t.Helper()
	var policies []*networking.NetworkPolicy
	for _, o := range others {
		if p, ok := o.(*networking.NetworkPolicy); ok {
			policies = append(policies, p)
		}
	}
	for _, p := range policies {
		for _, e := range p.Spec.Egress {
			for _, to := range e.To {
				for _, q := range policies {
					if subset(to.PodSelector.MatchLabels, q.Spec.PodSelector.MatchLabels) && !admits(q, p.Spec.PodSelector.MatchLabels, e.Ports[0].Port.IntVal) {
						t.Errorf("%s may talk to %s, which does not let it in", p.Name, q.Name)
					}
				}
			}
		}
		for _, client := range []map[string]string{{"app": "shop"}} {
			for _, port := range []int32{7000, 4222, 9100} {
				if admits(p, client, port) {
					t.Errorf("%s lets everybody to port %d", p.Name, port)
				}
			}
		}
	}
}

// admits says whether a policy lets pods of these labels in its own namespace to a port.
func admits(p *networking.NetworkPolicy, labels map[string]string, port int32) bool {
	for _, in := range p.Spec.Ingress {
		for _, from := range in.From {
			if from.PodSelector == nil || from.NamespaceSelector != nil || !subset(from.PodSelector.MatchLabels, labels) {
				continue
			}
			for _, q := range in.Ports {
				if q.Port.IntVal == port {
					return true
				}
			}
		}
	}
	return false
}

// TestRefusals holds that wrong values are refused, and that the refusal names the value.
func TestRefusals(t *testing.T) {
	for values, want := range map[string]string{
		"training: {shards: 0}":                                 "shards",
		"training: {shards: two}":                               "shards",
		"trainig: {shards: 2}":                                  "trainig",
		"serving: {replica: 2}":                                 "replica",
		"nats: {replicas: 2}":                                   "replicas",
		"nats: {size: 40GB}":                                    "size",
		"kafka: {brokers: []}":                                  "brokers",
		"kafka: {brokers: [kafka]}":                             "brokers",
		"training: {checkpointEvery: 60}":                       "checkpointEvery",
		"training: {trainerArgs: [batch=128]}":                  "trainerArgs",
		"bzid: 'a b'":                                           "bzid",
		"logLevel: loud":                                        "logLevel",
		"serving: {sampleRate: 2}":                              "sampleRate",
		"networkPolicy: {predict: [{podSelectors: {}}]}":        "predict",
		"nats: {enabled: false}":                                "name the servers by nats.url",
		"nats: {url: 'nats://a:4222'}":                          "set nats.enabled to false",
		"nats: {enabled: false, url: 'nats://u:p@a:4222'}":      "put it into a Secret",
		"otlp: {endpoint: 'otel:4317'}":                         "endpoint",
		"otlp: {endpoint: 'http://otel'}":                       "endpoint",
		"otlp: {headersSecret: otel}":                           "which is empty",
		"training: {autoscaling: {enabled: true}, trainers: 9}": "maxTrainers is 8, fewer than training.trainers, 9",
		"serving: {autoscaling: {enabled: true}, entries: 9}":   "maxEntries is 8, fewer than serving.entries, 9",
		"training: {volume: {accessMode: ReadWriteMany}}":       "training.volumes.shard",
		"training: {volume: {existingClaim: shared}}":           "docs/guides/pods.md",
		"training: {volumes: {shard: {accessMode: x}}}":         "accessMode",
		"serving: {copies: 20Gi}":                               "serving.volume",
	} {
		if _, err := render(".", "monolith", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a refusal that says %q", values, err, want)
		}
	}
}

// TestTelemetryLeaves holds that every container of ours is told of the collector, and that its pod
// may go there.
func TestTelemetryLeaves(t *testing.T) {
	found, others := workloads(t, rendering(t, variants["telemetry"]))
	for _, w := range found {
		for _, c := range w.pod.Spec.Containers {
			env := map[string]core.EnvVar{}
			for _, e := range c.Env {
				env[e.Name] = e
			}
			if c.Name == "nats" {
				continue
			}
			if env["OTEL_EXPORTER_OTLP_ENDPOINT"].Value != "http://otel.monitoring:4317" || env["OTEL_EXPORTER_OTLP_HEADERS"].ValueFrom.SecretKeyRef.Name != "otel" {
				t.Errorf("%s: %s is not told of the collector: %v", w.id, c.Name, c.Env)
			}
			if !slices.ContainsFunc(others, func(o any) bool {
				p, ok := o.(*networking.NetworkPolicy)
				return ok && subset(p.Spec.PodSelector.MatchLabels, w.pod.Labels) && slices.ContainsFunc(p.Spec.Egress, func(e networking.NetworkPolicyEgressRule) bool {
					return len(e.To) == 0 && len(e.Ports) == 1 && e.Ports[0].Port.IntVal == 4317
				})
			}) {
				t.Errorf("%s may not talk to the collector", w.id)
			}
		}
	}
}

// TestNames holds that releases of other names get along beside one another.
func TestNames(t *testing.T) {
	names := map[string]string{}
	for _, release := range []string{"monolith", "shop", "a-release-with-a-name-of-fifty-three-characters-xxxxx"} {
		all, err := render(".", release, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if other, taken := names[m.id()]; taken || len(m.Metadata.Name) > 52 {
				t.Errorf("%s of release %q (release %q has it, or it is too long for a StatefulSet)", m.id(), release, other)
			}
			names[m.id()] = release
		}
	}
}

// TestRenderingIsCurrent holds that the committed manifests are the chart's.
func TestRenderingIsCurrent(t *testing.T) {
	files, err := rendered(".")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(filepath.FromSlash(path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the chart renders (%v): run `go run .` in deploy", path, err)
		}
	}
}
