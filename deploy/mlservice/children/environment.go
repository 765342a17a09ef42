package children

import (
	"cmp"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
)

// Where a role that names no such port answers.
const (
	httpPort = 8501
	rpcPort  = 8500
)

// idc is the annotation that says in which data centre a service runs, and the variable that tells its pods.
const idc = "MLP_IDC"

// environment tells the containers of a shard who they are.
func environment(svc *v1.MLService, role v1.Role, shard int32) []core.EnvVar {
	env := []core.EnvVar{
		{Name: "MLP_SHARD_ID", Value: fmt.Sprint(shard)},
		{Name: "MLP_SHARD_NUM", Value: fmt.Sprint(role.Shards())},
		{Name: "MLP_SERVICE_NAME", Value: svc.Name},
		{Name: "MLP_ROLE_NAME", Value: role.Name},
		{Name: idc, Value: cmp.Or(role.Template.Spec.Template.Annotations[idc], role.Template.Annotations[idc], svc.Annotations[idc])},
		field("MLP_POD_NAME", "metadata.name"),
		field("MLP_HOST_IP", "status.podIP"),
	}
	if role.ServiceSpec != nil {
		env = append(env,
			core.EnvVar{Name: "MLP_HTTP_PORT", Value: fmt.Sprint(port(role, v1.HTTP, httpPort))},
			core.EnvVar{Name: "MLP_RPC_PORT", Value: fmt.Sprint(port(role, v1.RPC, rpcPort))})
	}
	return env
}

func field(name, path string) core.EnvVar {
	return core.EnvVar{Name: name, ValueFrom: &core.EnvVarSource{FieldRef: &core.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// port is the first of its type, or standard.
func port(role v1.Role, of v1.PortType, standard int32) int32 {
	for _, p := range role.ServiceSpec.Ports {
		if p.Type == of {
			return p.Port
		}
	}
	return standard
}

// before puts env first, where variables of the container itself can refer to it; what the container has under
// the same names goes.
func before(env, own []core.EnvVar) []core.EnvVar {
	return append(slices.Clone(env), slices.DeleteFunc(slices.Clone(own), func(e core.EnvVar) bool {
		return slices.ContainsFunc(env, func(f core.EnvVar) bool { return f.Name == e.Name })
	})...)
}
