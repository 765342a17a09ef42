package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
	"github.com/monolith-go/monolith/deploy/mlservice/children"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// world is a real API server with the resource, a restricted namespace, and controllers as processes with the
// rights that config gives them.
type world struct {
	*oracle.Kubernetes
	t *testing.T
}

const namespace = "shop"

// TestOracleMLService walks one service through its life.
func TestOracleMLService(t *testing.T) {
	w := world{oracle.StartKubernetes(t), t}
	apply := []string{"apply", "--server-side", "--validate=strict", "-k", "config"}
	w.MustKubectl(t, "", apply...)
	w.MustKubectl(t, "", "wait", "--for=condition=Established", "--timeout=2m", "crd", "mlservices.mlplatform.volcengine.com")
	w.MustKubectl(t, "", apply...)
	w.Unchanged(t, "", "-k", "config")
	w.MustKubectl(t, "", "create", "namespace", namespace)
	w.MustKubectl(t, "", "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")

	binary := filepath.Join(t.TempDir(), "mlservice")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the controller: %v\n%s", err, out)
	}
	kubeconfig := w.As(t, "mlservice", "mlservice")
	leads := w.controller(binary, kubeconfig)
	wait.For(t, "it to lead", func() bool { return w.holder() != "" })
	w.controller(binary, kubeconfig)

	for _, step := range []struct {
		name string
		do   func(world)
	}{
		{"create", world.create}, {"change", world.change}, {"scale", world.scale}, {"drift", world.drift}, {"out of order", world.outOfOrder},
		{"leader", func(w world) { w.leader(leads) }},
		{"wrong", world.wrong}, {"refused", world.refused}, {"stop", world.stop}, {"delete", world.delete},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(world{w.Kubernetes, t}) }) {
			return // each begins where the one before has ended
		}
	}
}

// process is one controller.
type process struct {
	*exec.Cmd
	probes string
}

// controller starts one, and waits until it is ready.
func (w world) controller(binary, kubeconfig string) process {
	w.t.Helper()
	port, err := freeport.Find()
	if err != nil {
		w.t.Fatal(err)
	}
	p := process{exec.Command(binary, "--leader-elect", "--leader-election-namespace=mlservice", "--metrics-bind-address=0", fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", port)), fmt.Sprintf("http://127.0.0.1:%d", port)}
	p.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out strings.Builder
	p.Stdout, p.Stderr = &out, &out
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill() // it may have ended by itself
			_ = p.Wait()
		}
		if w.t.Failed() {
			w.t.Logf("a controller said:\n%s", out.String())
		}
	})
	wait.For(w.t, "the controller to be ready", func() bool {
		r, err := http.Get(p.probes + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close() // it was only looked at
		return r.StatusCode == http.StatusOK
	})
	return p
}

const (
	servicePath = "/apis/mlplatform.volcengine.com/v1/namespaces/" + namespace + "/mlservices/"
	leasePath   = "/apis/coordination.k8s.io/v1/namespaces/mlservice/leases/" + leader
	appsPath    = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	corePath    = "/api/v1/namespaces/" + namespace
)

// read is what lies at a path; false: nothing does.
func read[T any](w world, path string) (into T, found bool) {
	w.t.Helper()
	status, answer := w.Get(w.t, path)
	if status == http.StatusNotFound {
		return into, false
	}
	if err := json.Unmarshal(answer, &into); err != nil || status != http.StatusOK {
		w.t.Fatalf("GET %s: %d %v\n%s", path, status, err, answer)
	}
	return into, true
}

func (w world) service(name string) v1.MLService {
	w.t.Helper()
	svc, _ := read[v1.MLService](w, servicePath+name)
	return svc
}

// reaches waits until a service's phase is one of these, and returns it as it is then.
func (w world) reaches(name string, phases ...v1.Phase) (svc v1.MLService) {
	w.t.Helper()
	wait.Seen(w.t, fmt.Sprintf("%s to be %v", name, phases), func() (string, bool) {
		svc = w.service(name)
		return fmt.Sprintf("%s, %s: %s", svc.Status.Phase, svc.Status.Reason, svc.Status.Message), slices.Contains(phases, svc.Status.Phase)
	})
	return svc
}

func (w world) patch(path, patch string) {
	w.t.Helper()
	if status, answer := w.Patch(w.t, path, patch); status != http.StatusOK {
		w.t.Fatalf("PATCH %s %s: %d\n%s", path, patch, status, answer)
	}
}

// deployments are those of the service movies, by name.
func (w world) deployments() map[string]apps.Deployment {
	w.t.Helper()
	list, _ := read[apps.DeploymentList](w, appsPath+"?labelSelector="+children.ServiceID+"=movies")
	all := map[string]apps.Deployment{}
	for _, d := range list.Items {
		all[d.Name] = d
	}
	return all
}

func (w world) pods() []core.Pod {
	w.t.Helper()
	list, _ := read[core.PodList](w, corePath+"/pods?labelSelector="+children.ServiceID+"=movies")
	return list.Items
}

// ready tells that all pods run and answer, as kubelets would, until so many do and the service says Running.
func (w world) ready(want int) v1.MLService {
	w.t.Helper()
	var svc v1.MLService
	wait.Seen(w.t, fmt.Sprintf("%d pods and the service to run", want), func() (string, bool) {
		pods := w.pods()
		for _, p := range pods {
			if p.Status.Phase != core.PodRunning {
				w.tell(p.Name, `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`)
			}
		}
		svc = w.service("movies")
		return fmt.Sprintf("%d pods, %s, %s: %s", len(pods), svc.Status.Phase, svc.Status.Reason, svc.Status.Message), len(pods) == want && svc.Status.Phase == v1.Running
	})
	return svc
}

// tell writes the status of a pod, which may be gone by now.
func (w world) tell(pod, status string) {
	w.t.Helper()
	if code, answer := w.Patch(w.t, corePath+"/pods/"+pod+"/status", `{"status":`+status+`}`); code != http.StatusOK && code != http.StatusNotFound {
		w.t.Fatalf("the status of %s: %d\n%s", pod, code, answer)
	}
}

// create applies the sample: every child is there, its pods are restricted enough, and its status is told.
func (w world) create() {
	sample := []string{"-n", namespace, "apply", "--server-side", "--validate=strict", "-f", "config/sample.yaml"}
	w.MustKubectl(w.t, "", sample...)
	w.reaches("movies", v1.Deploying)
	began := w.service("movies").Status.LastTransitionTime
	svc := w.ready(6)
	var names []string
	for name := range svc.Status.RoleShardStatusMap {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"movies-entry-1", "movies-ps-1", "movies-ps-2"}; !slices.Equal(names, want) || svc.Status.RoleShardStatusMap["movies-ps-2"].AvailableReplicas != 2 {
		w.t.Errorf("the status tells of %v, want %v: %+v", names, want, svc.Status)
	}
	entry, found := read[core.Service](w, corePath+"/services/movies-entry")
	if !found || entry.Spec.ClusterIP == "" || svc.Status.RoleServiceClusterIPs["movies-entry"] != entry.Spec.ClusterIP {
		w.t.Errorf("the Service is %+v, and the status tells %v", entry.Spec, svc.Status.RoleServiceClusterIPs)
	}
	if at := svc.Status.LastTransitionTime; began == nil || at == nil || at.Before(began) || time.Since(at.Time) > time.Hour {
		w.t.Errorf("it began at %v and runs since %v", began, at)
	}
	out := w.MustKubectl(w.t, "", "-n", namespace, "get", "mlsvc")
	if fields := strings.Fields(out); len(fields) != 6 || fields[1] != "AGE" || fields[2] != "PHASE" || fields[5] != "Running" {
		w.t.Errorf("kubectl get mlsvc prints\n%s", out)
	}
	if out := w.MustKubectl(w.t, "", "-n", namespace, "get", "events", "--field-selector=involvedObject.kind=MLService"); !strings.Contains(out, "Running") {
		w.t.Errorf("no event tells that it runs:\n%s", out)
	}
	before := w.deployments()
	w.MustKubectl(w.t, "", sample...)
	w.Unchanged(w.t, "", "-n", namespace, "-f", "config/sample.yaml")
	for name, d := range w.deployments() {
		if d.Generation != before[name].Generation {
			w.t.Errorf("applied again, %s is of generation %d, and was of %d", name, d.Generation, before[name].Generation)
		}
	}
}

// roles changes those of the service.
func (w world) roles(change func(roles []v1.Role) []v1.Role) {
	w.t.Helper()
	svc := w.service("movies")
	roles, err := json.Marshal(change(svc.Spec.Roles))
	if err != nil {
		w.t.Fatal(err)
	}
	w.patch(servicePath+"movies", `{"spec":{"roles":`+string(roles)+`}}`)
}

func (w world) change() {
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[0].Template.Spec.Template.Spec.Containers[0].Image = "monolith:0.2.0"
		return roles
	})
	wait.For(w.t, "the new image", func() bool {
		all := w.deployments()
		return all["movies-ps-1"].Spec.Template.Spec.Containers[0].Image == "monolith:0.2.0" && all["movies-ps-2"].Spec.Template.Spec.Containers[0].Image == "monolith:0.2.0"
	})
	w.ready(6)
	for _, p := range w.pods() {
		if p.Labels[children.RoleName] == "PS" && p.Spec.Containers[0].Image != "monolith:0.2.0" {
			w.t.Errorf("%s still runs %s", p.Name, p.Spec.Containers[0].Image)
		}
	}
}

// scale is more replicas, then more shards, then fewer, then a role less.
func (w world) scale() {
	three := int32(3)
	one := int32(1)
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[1].Template.Spec.Replicas, roles[0].ShardNum = &three, &three
		return roles
	})
	w.ready(9)
	for name, d := range w.deployments() {
		if strings.HasPrefix(name, "movies-ps-") && d.Labels[children.ShardNum] != "3" {
			w.t.Errorf("%s is of %s shards", name, d.Labels[children.ShardNum])
		}
	}
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[1].Template.Spec.Replicas, roles[0].ShardNum = &one, &one
		return roles
	})
	svc := w.ready(3)
	if len(svc.Status.RoleShardStatusMap) != 2 || len(w.deployments()) != 2 {
		w.t.Errorf("the status tells of %v", svc.Status.RoleShardStatusMap)
	}
	entry := w.service("movies").Spec.Roles[1]
	w.roles(func(roles []v1.Role) []v1.Role { return roles[:1] })
	w.ready(2)
	if _, found := read[core.Service](w, corePath+"/services/movies-entry"); found {
		w.t.Error("the Service of a role that went is left")
	}
	w.roles(func(roles []v1.Role) []v1.Role { return append(roles, entry) })
	w.ready(3)
}

// drift is somebody else's hand on a child.
func (w world) drift() {
	w.MustKubectl(w.t, "", "-n", namespace, "delete", "deployment", "movies-ps-1")
	w.patch(corePath+"/services/movies-entry", `{"spec":{"selector":{"`+children.RoleName+`":"other"}}}`)
	w.ready(3)
	wait.For(w.t, "the Service to be as it was", func() bool {
		s, found := read[core.Service](w, corePath+"/services/movies-entry")
		return found && s.Spec.Selector[children.RoleName] == "Entry"
	})
	// What the service says nothing of is nobody's but its writer's: a scaler sets replicas that are not given.
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[0].Template.Spec.Replicas = nil
		return roles
	})
	wait.For(w.t, "replicas to be left to others", func() bool { return *w.deployments()["movies-ps-1"].Spec.Replicas == 1 })
	w.MustKubectl(w.t, "", "-n", namespace, "scale", "deployment", "movies-ps-1", "--replicas=2")
	w.ready(3)
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[0].Template.Spec.Template.Spec.Containers[0].Image = "monolith:0.3.0"
		return roles
	})
	wait.For(w.t, "the new image", func() bool {
		return w.deployments()["movies-ps-1"].Spec.Template.Spec.Containers[0].Image == "monolith:0.3.0"
	})
	w.ready(3)
	if n := *w.deployments()["movies-ps-1"].Spec.Replicas; n != 2 {
		w.t.Errorf("a scaler asked for 2 replicas, and there are %d", n)
	}
}

// outOfOrder is a pod that finds no node, then no image, then runs.
func (w world) outOfOrder() {
	pod := w.pods()[0].Name
	w.tell(pod, `{"phase":"Pending","conditions":[{"type":"Ready","status":"False"},{"type":"PodScheduled","status":"False","message":"0/3 nodes are available"}]}`)
	if svc := w.reaches("movies", v1.Queuing); svc.Status.Reason != v1.InsufficientClusterResources || !strings.Contains(svc.Status.Message, "0/3 nodes are available") {
		w.t.Errorf("queuing: %+v", svc.Status)
	}
	w.tell(pod, `{"containerStatuses":[{"name":"tfs-supervisor","image":"a","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}`)
	if svc := w.reaches("movies", v1.Abnormal); svc.Status.Reason != "ImagePullBackOff" || !strings.Contains(svc.Status.Message, pod) {
		w.t.Errorf("without an image: %+v", svc.Status)
	}
	w.tell(pod, `{"phase":"Running","containerStatuses":[],"conditions":[{"type":"Ready","status":"True"}]}`)
	w.ready(3)
}

// holder is who leads.
func (w world) holder() string {
	type lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	l, _ := read[lease](w, leasePath)
	return l.Spec.HolderIdentity
}

// leader ends the controller that leads, and the other one takes over.
func (w world) leader(leads process) {
	was := w.holder()
	if err := leads.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	if err := leads.Wait(); err != nil {
		w.t.Errorf("a controller that was asked to stop: %v", err)
	}
	before := w.deployments()["movies-entry-1"].UID
	w.MustKubectl(w.t, "", "-n", namespace, "delete", "deployment", "movies-entry-1")
	wait.Seen(w.t, "another leader to make it anew", func() (string, bool) {
		is, uid := w.holder(), w.deployments()["movies-entry-1"].UID
		return is, is != "" && is != was && uid != "" && uid != before
	})
	w.ready(3)
}

// wrong is what the API server takes and cannot be made: a sentence says why, and what runs goes on.
func (w world) wrong() {
	typed := w.service("movies").Spec.Roles[1].ServiceSpec.ServiceType
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[1].ServiceSpec.ServiceType = core.ServiceTypeNodePort
		return roles
	})
	if svc := w.reaches("movies", v1.Abnormal); svc.Status.Message != `the serviceType of the role Entry is "NodePort": only ClusterIP is made` {
		w.t.Errorf("a NodePort: %+v", svc.Status)
	}
	if len(w.deployments()) != 2 {
		w.t.Errorf("what ran is gone: %v", w.deployments())
	}
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[1].ServiceSpec.ServiceType = typed
		roles[1].Template.Spec.Template.Spec.Containers[0].Ports[0].Name = "a-name-that-is-too-long"
		return roles
	})
	wait.Seen(w.t, "what the API server says", func() (string, bool) {
		svc := w.service("movies")
		return fmt.Sprintf("%+v", svc.Status), svc.Status.Phase == v1.Abnormal && strings.Contains(svc.Status.Message, "must be no more than 15 characters")
	})
	w.roles(func(roles []v1.Role) []v1.Role {
		roles[1].Template.Spec.Template.Spec.Containers[0].Ports[0].Name = "status"
		return roles
	})
	w.ready(3)

	w.MustKubectl(w.t, "", "-n", namespace, "create", "deployment", "films-ps-1", "--image=other", "--replicas=0")
	w.MustKubectl(w.t, `{apiVersion: mlplatform.volcengine.com/v1, kind: MLService, metadata: {name: films}, spec: {selector: {}, roles: [
		{name: PS, template: {spec: {replicas: 0, selector: {}, template: {spec: {containers: [{name: a, image: a}]}}}}}]}}`, "-n", namespace, "apply", "--server-side", "-f", "-")
	if svc := w.reaches("films", v1.Abnormal); !strings.Contains(svc.Status.Message, "there is a Deployment films-ps-1 already, which is not of this service") {
		w.t.Errorf("another's Deployment: %+v", svc.Status)
	}
	if d, _ := read[apps.Deployment](w, appsPath+"/films-ps-1"); d.Spec.Template.Spec.Containers[0].Image != "other" || len(d.OwnerReferences) > 0 {
		w.t.Errorf("another's Deployment was taken: %+v", d)
	}
	w.MustKubectl(w.t, "", "-n", namespace, "delete", "deployment", "films-ps-1")
	w.patch(servicePath+"films", `{"metadata":{"annotations":{"looked":"again"}}}`)
	w.reaches("films", v1.Stopped)
	w.MustKubectl(w.t, "", "-n", namespace, "delete", "mlsvc", "films")
}

// refused is what the API server does not take at all.
func (w world) refused() {
	sample, err := os.ReadFile("config/sample.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	for what, c := range map[string]struct{ was, is, want string }{
		"no shards":         {"shardNum: 2", "shardNum: 0", "should be greater than or equal to 1"},
		"a misspelt field":  {"shardNum: 2", "shardNumber: 2", ".spec.roles[0].shardNumber: field not declared in schema"},
		"deep in a pod":     {"containerPort: 7000", "containerPorts: 7000", "containerPorts: field not declared in schema"},
		"another protocol":  {"type: HTTP", "type: FTP", `Unsupported value: "FTP"`},
		"a port of nowhere": {"type: HTTP, port: 8501", "type: HTTP, port: 85010", "should be less than or equal to 65535"},
		"no selector":       {"selector: {matchLabels: {app: movies}}", "", "spec.selector: Required value"},
		"a text for number": {"replicas: 2", "replicas: two", "spec.roles[0].template.spec.replicas"},
	} {
		changed := strings.Replace(string(sample), c.was, c.is, 1)
		if changed == string(sample) {
			w.t.Fatalf("%s: the sample does not say %q", what, c.was)
		}
		out, err := w.Kubectl(w.t, strings.Replace(changed, "name: movies", "name: refused", 1), "-n", namespace, "apply", "--server-side", "--validate=strict", "-f", "-")
		if err == nil || !strings.Contains(out, c.want) {
			w.t.Errorf("%s: %v; want a refusal that says %q\n%s", what, err, c.want, out)
		}
	}
}

// stop is no replicas at all, and back.
func (w world) stop() {
	before := w.service("movies").Spec.Roles
	none := int32(0)
	// A pod that does not go holds the service in Stopping.
	held := w.pods()[0].Name
	w.patch(corePath+"/pods/"+held, `{"metadata":{"finalizers":["shop/held"]}}`)
	w.roles(func(roles []v1.Role) []v1.Role {
		for i := range roles {
			roles[i].Template.Spec.Replicas = &none
		}
		return roles
	})
	w.reaches("movies", v1.Stopping)
	wait.For(w.t, "the other pods to go", func() bool { return len(w.pods()) == 1 })
	if svc := w.service("movies"); svc.Status.Phase != v1.Stopping {
		w.t.Errorf("with a pod left it is %s", svc.Status.Phase)
	}
	w.patch(corePath+"/pods/"+held, `{"metadata":{"finalizers":null}}`)
	w.reaches("movies", v1.Stopped)
	w.roles(func([]v1.Role) []v1.Role { return before })
	w.ready(2) // replicas that nobody gives are one
}

// delete takes everything along; a service that is held is Deleting, and makes nothing any more.
func (w world) delete() {
	w.patch(servicePath+"movies", `{"metadata":{"finalizers":["shop/held"]}}`)
	w.MustKubectl(w.t, "", "-n", namespace, "delete", "mlsvc", "movies", "--wait=false")
	w.reaches("movies", v1.Deleting)
	w.MustKubectl(w.t, "", "-n", namespace, "delete", "deployment", "movies-ps-1")
	wait.For(w.t, "the status to tell that it is gone", func() bool {
		_, told := w.service("movies").Status.RoleShardStatusMap["movies-ps-1"]
		return !told
	})
	w.patch(servicePath+"movies", `{"metadata":{"finalizers":null}}`)
	wait.For(w.t, "everything to go", func() bool {
		_, found := read[v1.MLService](w, servicePath+"movies")
		_, entry := read[core.Service](w, corePath+"/services/movies-entry")
		return !found && !entry && len(w.deployments()) == 0 && len(w.pods()) == 0
	})
}
