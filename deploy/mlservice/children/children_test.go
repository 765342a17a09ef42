package children

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
)

// movies has a role of two shards behind a Service, and one that is behind none.
const movies = `
metadata: {name: movies, namespace: shop, annotations: {MLP_IDC: here}}
spec:
  selector: {matchLabels: {app: movies}}
  roles:
    - name: PS
      shardNum: 2
      serviceSpec: {serviceType: ClusterIP, ports: [{type: RPC, port: 9000}, {type: Other, port: 9001}, {type: Other, port: 9002}]}
      template:
        metadata: {labels: {team: shop}, annotations: {note: a}}
        spec:
          replicas: 3
          selector: {matchLabels: {ignored: "yes"}}
          template:
            metadata: {labels: {tier: rows}}
            spec:
              initContainers: [{name: first, image: i}]
              containers: [{name: ps, image: i, env: [{name: MLP_SHARD_ID, value: "7"}, {name: OWN, value: $(MLP_SHARD_ID)}]}]
    - name: Entry
      template:
        spec:
          selector: {}
          template:
            metadata: {annotations: {MLP_IDC: there}}
            spec: {containers: [{name: entry, image: i}]}
`

func parsed(t *testing.T, text string) *v1.MLService {
	t.Helper()
	svc := &v1.MLService{}
	if err := yaml.UnmarshalStrict([]byte(text), svc); err != nil {
		t.Fatal(err)
	}
	return svc
}

func TestOf(t *testing.T) {
	svc := parsed(t, movies)
	before := svc.DeepCopy()
	deployments, services, err := Of(svc)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(svc, before) {
		t.Error("the service itself was changed")
	}
	var names []string
	for _, d := range deployments {
		names = append(names, d.Namespace+"/"+d.Name)
	}
	if want := []string{"shop/movies-ps-1", "shop/movies-ps-2", "shop/movies-entry-1"}; !slices.Equal(names, want) {
		t.Fatalf("Deployments %v, want %v", names, want)
	}
	second := deployments[1]
	identity := map[string]string{ServiceID: "movies", RoleName: "PS", ShardID: "2"}
	told := with(identity, map[string]string{ShardNum: "2"})
	for what, got := range map[string][2]map[string]string{
		"labels":              {second.Labels, with(told, map[string]string{"team": "shop"})},
		"annotations":         {second.Annotations, with(told, map[string]string{"note": "a"})},
		"selector":            {second.Spec.Selector.MatchLabels, identity},
		"labels of pods":      {second.Spec.Template.Labels, with(told, map[string]string{"app": "movies", "tier": "rows"})},
		"annotations of pods": {second.Spec.Template.Annotations, told},
	} {
		if !equality.Semantic.DeepEqual(got[0], got[1]) {
			t.Errorf("%s are %v, want %v", what, got[0], got[1])
		}
	}
	if *second.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *second.Spec.Replicas)
	}

	if len(services) != 1 || services[0].Name != "movies-ps" || services[0].Spec.Type != core.ServiceTypeClusterIP {
		t.Fatalf("Services %+v", services)
	}
	if want := map[string]string{ServiceID: "movies", RoleName: "PS"}; !equality.Semantic.DeepEqual(services[0].Spec.Selector, want) {
		t.Errorf("the Service selects %v, want %v", services[0].Spec.Selector, want)
	}
	var ports []string
	for _, p := range services[0].Spec.Ports {
		ports = append(ports, fmt.Sprintf("%s %d to %s", p.Name, p.Port, p.TargetPort.String()))
	}
	if want := []string{"rpc 9000 to 9000", "other 9001 to 9001", "other-2 9002 to 9002"}; !slices.Equal(ports, want) {
		t.Errorf("ports %q, want %q", ports, want)
	}
}

// TestEnvironment holds what containers are told, first of all, so that their own variables can refer to it.
func TestEnvironment(t *testing.T) {
	deployments, _, err := Of(parsed(t, movies))
	if err != nil {
		t.Fatal(err)
	}
	identity := "MLP_SHARD_ID=%d MLP_SHARD_NUM=%d MLP_SERVICE_NAME=movies MLP_ROLE_NAME=%s MLP_IDC=%s MLP_POD_NAME=metadata.name MLP_HOST_IP=status.podIP"
	ps := fmt.Sprintf(identity, 2, 2, "PS", "here") + " MLP_HTTP_PORT=8501 MLP_RPC_PORT=9000"
	for _, c := range []struct {
		container core.Container
		want      string
	}{
		{deployments[1].Spec.Template.Spec.InitContainers[0], ps},
		{deployments[1].Spec.Template.Spec.Containers[0], ps + " OWN=$(MLP_SHARD_ID)"},
		{deployments[2].Spec.Template.Spec.Containers[0], fmt.Sprintf(identity, 1, 1, "Entry", "there")},
	} {
		var got []string
		for _, e := range c.container.Env {
			if e.ValueFrom != nil {
				e.Value = e.ValueFrom.FieldRef.FieldPath
			}
			got = append(got, e.Name+"="+e.Value)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s is told\n%s, want\n%s", c.container.Name, strings.Join(got, " "), c.want)
		}
	}
}

// TestWrong holds that what cannot be made is said in a sentence that names the role and the mend.
func TestWrong(t *testing.T) {
	for what, c := range map[string]struct{ was, is, want string }{
		"no type of service":   {"serviceType: ClusterIP, ", "", `the serviceType of the role PS is "": only ClusterIP is made`},
		"another type":         {"serviceType: ClusterIP", "serviceType: NodePort", "only ClusterIP is made"},
		"no ports":             {"ports: [{type: RPC, port: 9000}, {type: Other, port: 9001}, {type: Other, port: 9002}]", "ports: []", "has no ports: name them"},
		"a port twice":         {"port: 9002", "port: 9001", "has the port 9001 twice"},
		"one name twice":       {"name: Entry", "name: ps", "the roles PS and ps both make movies-ps: rename one"},
		"no name":              {"name: Entry", "name: an entry", "which is no name"},
		"no name of a Service": {"name: movies, namespace", "name: 1movies, namespace", "which is no name"},
		"a long name":          {"name: Entry", "name: " + strings.Repeat("e", 55), "rename the role or the service"},
		"another selector":     {"selector: {matchLabels: {app: movies}}", "selector: {matchExpressions: [{key: tier, operator: In, values: [rows]}]}", "does not select the pods of the role Entry"},
		"an unknown operator":  {"selector: {matchLabels: {app: movies}}", "selector: {matchExpressions: [{key: tier, operator: Like}]}", "selector: "},
	} {
		changed := strings.Replace(movies, c.was, c.is, 1)
		if changed == movies {
			t.Fatalf("%s: the service does not say %q", what, c.was)
		}
		if _, _, err := Of(parsed(t, changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want a refusal that says %q", what, err, c.want)
		}
	}
}
