// Package children says what an MLService consists of.
package children

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
)

// Labels of what a service consists of; all but ShardNum, which may change, select its pods.
const (
	prefix    = "inference.mlplatform.volcengine.com/"
	ServiceID = prefix + "service-id"
	RoleName  = prefix + "role-name"
	ShardID   = prefix + "shard-id"
	ShardNum  = prefix + "shard-num"
)

// Of is each shard's Deployment and each role's Service. The error is a sentence for whoever wrote the service.
func Of(svc *v1.MLService) (deployments []*apps.Deployment, services []*core.Service, err error) {
	taken := map[string]string{}
	for _, role := range svc.Spec.Roles {
		name := svc.Name + "-" + strings.ToLower(role.Name)
		if other, ok := taken[name]; ok {
			return nil, nil, fmt.Errorf("the roles %s and %s both make %s: rename one", other, role.Name, name)
		}
		taken[name] = role.Name
		if err := named(name, role); err != nil {
			return nil, nil, err
		}
		for shard := int32(1); shard <= role.Shards(); shard++ {
			d, err := deployment(svc, role, shard)
			if err != nil {
				return nil, nil, err
			}
			d.Name = fmt.Sprintf("%s-%d", name, shard)
			deployments = append(deployments, d)
		}
		if role.ServiceSpec != nil {
			s, err := service(svc, role)
			if err != nil {
				return nil, nil, err
			}
			s.Name = name
			services = append(services, s)
		}
	}
	return deployments, services, nil
}

// named says what keeps name, by the role's, from being that of its Deployments and its Service.
func named(name string, role v1.Role) error {
	longest := fmt.Sprintf("%s-%d", name, role.Shards())
	wrong := validation.IsDNS1123Label(longest)
	if role.ServiceSpec != nil {
		wrong = validation.IsDNS1035Label(longest)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the role %q would make %s, which is no name (%s): rename the role or the service", role.Name, longest, strings.Join(wrong, ", "))
	}
	return nil
}

// identity is what tells the pods of a shard from all others.
func identity(svc *v1.MLService, role v1.Role, shard int32) map[string]string {
	return map[string]string{ServiceID: svc.Name, RoleName: role.Name, ShardID: fmt.Sprint(shard)}
}

func deployment(svc *v1.MLService, role v1.Role, shard int32) (*apps.Deployment, error) {
	selected := identity(svc, role, shard)
	told := with(selected, map[string]string{ShardNum: fmt.Sprint(role.Shards())})
	d := &apps.Deployment{TypeMeta: meta.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Spec: *role.Template.Spec.DeepCopy()}
	d.Namespace = svc.Namespace
	d.Labels = with(role.Template.Labels, told)
	d.Annotations = with(role.Template.Annotations, told)
	// A selector can never be changed, so it is of what never changes.
	d.Spec.Selector = &meta.LabelSelector{MatchLabels: selected}

	pod := &d.Spec.Template
	pod.Labels = with(pod.Labels, told)
	if s := svc.Spec.Selector; s != nil {
		pod.Labels = with(s.MatchLabels, pod.Labels)
		meets, err := meta.LabelSelectorAsSelector(s)
		if err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		if !meets.Matches(labels.Set(pod.Labels)) {
			return nil, fmt.Errorf("the selector %s does not select the pods of the role %s, whose labels are %s: change one of them", meets, role.Name, labels.Set(pod.Labels))
		}
	}
	pod.Annotations = with(pod.Annotations, told)
	env := environment(svc, role, shard)
	for _, containers := range [][]core.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].Env = before(env, containers[i].Env)
		}
	}
	return d, nil
}

// service is in front of all shards of a role.
func service(svc *v1.MLService, role v1.Role) (*core.Service, error) {
	spec := role.ServiceSpec
	if spec.ServiceType != core.ServiceTypeClusterIP {
		return nil, fmt.Errorf("the serviceType of the role %s is %q: only %s is made", role.Name, spec.ServiceType, core.ServiceTypeClusterIP)
	}
	if len(spec.Ports) == 0 {
		return nil, fmt.Errorf("the serviceSpec of the role %s has no ports: name them, or leave serviceSpec out", role.Name)
	}
	s := &core.Service{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	s.Namespace = svc.Namespace
	s.Labels = map[string]string{ServiceID: svc.Name, RoleName: role.Name}
	s.Spec.Type, s.Spec.Selector = core.ServiceTypeClusterIP, maps.Clone(s.Labels)
	numbers, count := map[int32]bool{}, map[string]int{}
	for _, p := range spec.Ports {
		if numbers[p.Port] {
			return nil, fmt.Errorf("the role %s has the port %d twice: one of them is another's", role.Name, p.Port)
		}
		numbers[p.Port] = true
		name := strings.ToLower(string(p.Type))
		if count[name]++; count[name] > 1 {
			name += "-" + strconv.Itoa(count[name])
		}
		s.Spec.Ports = append(s.Spec.Ports, core.ServicePort{Name: name, Protocol: core.ProtocolTCP, Port: p.Port, TargetPort: intstr.FromInt32(p.Port)})
	}
	return s, nil
}

func with(m, more map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	maps.Copy(out, more)
	return out
}
