package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// apply is how everything is applied: a field that the API server does not know is an error.
var apply = []string{"apply", "--server-side", "--validate=strict"}

// ofDefault is what this API server says of every headless Service: it has filled in the field itself.
const ofDefault = "spec.SessionAffinity is ignored for headless services"

// TestOracleAPIServer applies the base, the overlays and every rendering of the chart to a real API server.
func TestOracleAPIServer(t *testing.T) {
	k := oracle.StartKubernetes(t)
	k.MustKubectl(t, "", append(slices.Clone(apply), "-f", k.CRDs())...)
	k.MustKubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=2m")

	// Each has the namespace to itself, which is gone with everything in it before the next one comes.
	for _, folder := range []string{"k8s/base", "k8s/overlays/small", "k8s/overlays/own-nats", "k8s/overlays/production"} {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			defer k.MustKubectl(t, "", "delete", "namespace", "monolith", "--wait", "--timeout=4m")
			taken(t, k, "monolith", "", "-k", folder)
			if folder == "k8s/base" {
				evictions(t, k)
			}
		})
	}
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			ns := "chart-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			restrictedNamespace(t, k, ns)
			taken(t, k, ns, string(join(rendering(t, values))), "-n", ns, "-f", "-")
		})
	}
	t.Run("refusals", func(t *testing.T) { refused(t, k) })
}

func restrictedNamespace(t *testing.T, k *oracle.Kubernetes, name string) {
	t.Helper()
	k.MustKubectl(t, "", "create", "namespace", name)
	k.MustKubectl(t, "", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
}

// taken applies what the arguments name, and holds that the API server takes it without a warning, that it makes a pod of each
// workload, and that applying it again changes nothing.
func taken(t *testing.T, k *oracle.Kubernetes, namespace, stdin string, args ...string) {
	t.Helper()
	for line := range strings.Lines(k.MustKubectl(t, stdin, append(slices.Clone(apply), args...)...)) {
		if strings.Contains(line, "Warning") && !strings.Contains(line, ofDefault) {
			t.Errorf("taken with a warning: %s", line)
		}
	}
	before := generations(t, k, namespace)
	if len(before) < 15 {
		t.Fatalf("only %d objects: %v", len(before), slices.Sorted(maps.Keys(before)))
	}
	k.MustKubectl(t, stdin, append(slices.Clone(apply), args...)...)
	if after := generations(t, k, namespace); !maps.Equal(before, after) {
		t.Errorf("applied again, generations are\n%v, and were\n%v", after, before)
	}
	k.Unchanged(t, stdin, args...)
	for _, resource := range []string{"deployments", "statefulsets"} {
		for _, w := range list[workloadObject](t, k, "/apis/apps/v1/namespaces/"+namespace+"/"+resource) {
			wait.Seen(t, "a pod of "+w.Name+", which is restricted enough", func() (string, bool) {
				pods := list[core.Pod](t, k, "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+meta.FormatLabelSelector(w.Spec.Selector))
				if len(pods) > 0 {
					return "", true
				}
				out, _ := k.Kubectl(t, "", "-n", namespace, "get", "events", "--field-selector=involvedObject.name="+w.Name)
				return out, false
			})
		}
	}
}

// workloadObject is what a Deployment and a StatefulSet have in common.
type workloadObject struct {
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector *meta.LabelSelector `json:"selector"`
	} `json:"spec"`
}

// generations are those of the objects of a namespace that the chart makes: a generation counts the changes of a spec;
// what has none is counted by its version.
func generations(t *testing.T, k *oracle.Kubernetes, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range []string{
		"/apis/apps/v1 deployments", "/apis/apps/v1 statefulsets", "/apis/networking.k8s.io/v1 networkpolicies", "/apis/policy/v1 poddisruptionbudgets",
		"/apis/monitoring.coreos.com/v1 prometheusrules", "/apis/monitoring.coreos.com/v1 servicemonitors", "/api/v1 services", "/api/v1 configmaps",
	} {
		group, resource, _ := strings.Cut(path, " ")
		for _, o := range list[meta.PartialObjectMetadata](t, k, group+"/namespaces/"+namespace+"/"+resource) {
			if o.Name == "kube-root-ca.crt" {
				continue // every namespace has it, some time after it was made
			}
			counted := fmt.Sprint(o.Generation)
			if o.Generation == 0 {
				counted = "version " + o.ResourceVersion
			}
			out[resource+"/"+o.Name] = counted
		}
	}
	return out
}

func list[T any](t *testing.T, k *oracle.Kubernetes, path string) []T {
	t.Helper()
	var status int
	var answer []byte
	// A resource whose definition has just come is told to be asked for again.
	wait.For(t, "the API server to list "+path, func() bool {
		status, answer = k.Get(t, path)
		return status != http.StatusTooManyRequests
	})
	var items struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal(answer, &items); err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d %v\n%s", path, status, err, answer)
	}
	return items.Items
}

// evictions holds that each budget lets its pods go as long as one is left, and no further.
func evictions(t *testing.T, k *oracle.Kubernetes) {
	const pods = "/api/v1/namespaces/monolith/pods"
	budgets := list[policy.PodDisruptionBudget](t, k, "/apis/policy/v1/namespaces/monolith/poddisruptionbudgets")
	if len(budgets) < 6 {
		t.Fatalf("only %d budgets", len(budgets))
	}
	of := func(b policy.PodDisruptionBudget) []core.Pod {
		return list[core.Pod](t, k, pods+"?labelSelector="+meta.FormatLabelSelector(b.Spec.Selector))
	}
	for _, b := range budgets {
		path := "/apis/policy/v1/namespaces/monolith/poddisruptionbudgets/" + b.Name
		current := func() (b policy.PodDisruptionBudget) {
			_, answer := k.Get(t, path)
			if err := json.Unmarshal(answer, &b); err != nil {
				t.Fatal(err)
			}
			return b
		}
		wait.Seen(t, "the pods of "+b.Name+" to be ready", func() (string, bool) {
			for _, p := range of(b) {
				ready(t, k, p)
			}
			now := current()
			return fmt.Sprintf("%+v", now.Status), now.Status.ExpectedPods > 0 && now.Status.CurrentHealthy == now.Status.ExpectedPods && now.Status.DisruptionsAllowed > 0
		})
		allowed := int(current().Status.DisruptionsAllowed)
		healthy := of(b)
		if least := len(healthy) - allowed; least < 1 {
			t.Errorf("%s lets all its %d pods go", b.Name, len(healthy))
			continue
		}
		for i, p := range healthy[:allowed+1] {
			status, answer := k.Post(t, pods+"/"+p.Name+"/eviction", fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":"monolith"}}`, p.Name))
			if i < allowed && status != http.StatusCreated {
				t.Errorf("%s: eviction %d of the %d that it allows is answered %d\n%s", b.Name, i+1, allowed, status, answer)
			}
			if i == allowed && (status != http.StatusTooManyRequests || !strings.Contains(string(answer), "violate the pod's disruption budget")) {
				t.Errorf("%s: eviction %d, where it allows %d, is answered %d\n%s", b.Name, i+1, allowed, status, answer)
			}
		}
	}
}

// ready tells the API server that a pod runs and answers, as its kubelet would.
func ready(t *testing.T, k *oracle.Kubernetes, p core.Pod) {
	t.Helper()
	if p.Status.Phase == core.PodRunning || p.DeletionTimestamp != nil {
		return
	}
	status, answer := k.Patch(t, "/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name+"/status", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if status != http.StatusOK && status != http.StatusNotFound {
		t.Fatalf("tell that %s is ready: %d\n%s", p.Name, status, answer)
	}
}

// refused holds that the checks above can fail: what is misspelt, or not restricted, is not taken.
func refused(t *testing.T, k *oracle.Kubernetes) {
	restrictedNamespace(t, k, "refusals")
	base := string(join(rendering(t, "")))
	for what, c := range map[string]struct{ was, is, want string }{
		"a misspelt field":     {"topologySpreadConstraints:", "topologySpreadConstraint:", ".spec.template.spec.topologySpreadConstraint: field not declared in schema"},
		"a word for a number":  {"containerPort: 9100", "containerPort: status", "containerPort"},
		"an unknown policy":    {"podManagementPolicy: Parallel", "podManagementPolicy: Together", "podManagementPolicy"},
		"a port of no pod":     {"port: status", "port: a-name-that-is-too-long-for-one", "must be no more than 15 characters"},
		"a selector of others": {"app.kubernetes.io/component: portal\n      app.kubernetes.io/instance: monolith\n      app.kubernetes.io/name", "app.kubernetes.io/component: portals\n      app.kubernetes.io/instance: monolith\n      app.kubernetes.io/name", "`selector` does not match template `labels`"},
	} {
		changed := strings.Replace(base, c.was, c.is, 1)
		if changed == base {
			t.Fatalf("%s: the rendering does not say %q", what, c.was)
		}
		if out, err := k.Kubectl(t, changed, append(slices.Clone(apply), "--dry-run=server", "-n", "refusals", "-f", "-")...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v; want a refusal that says %q\n%s", what, err, c.want, out)
		}
	}
	for what, pod := range map[string]string{
		"root":         `{containers: [{name: a, image: a, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}], securityContext: {seccompProfile: {type: RuntimeDefault}}}`,
		"capabilities": `{containers: [{name: a, image: a, securityContext: {allowPrivilegeEscalation: false}}], securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}}`,
		"host network": `{hostNetwork: true, containers: [{name: a, image: a, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}], securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}}`,
	} {
		if out, err := k.Kubectl(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: "+pod+"}", append(slices.Clone(apply), "-n", "refusals", "-f", "-")...); err == nil || !strings.Contains(out, `violates PodSecurity "restricted`) {
			t.Errorf("a pod with %s: %v\n%s", what, err, out)
		}
	}
}
