// Package v1 is the resource MLService of the original: roles that serve a model, each of so many shards, and each
// shard a Deployment.
//
// +kubebuilder:object:generate=true
// +groupName=mlplatform.volcengine.com
package v1

import (
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

//go:generate go tool controller-gen object crd:maxDescLen=0,generateEmbeddedObjectMeta=true paths=. output:crd:dir=../../config

var group = &scheme.Builder{GroupVersion: schema.GroupVersion{Group: "mlplatform.volcengine.com", Version: "v1"}}

// Kind is the resource's.
const Kind = "MLService"

// AddToScheme lets clients read and write the resource.
func AddToScheme(s *runtime.Scheme) error {
	return group.Register(&MLService{}, &MLServiceList{}).AddToScheme(s)
}

// MLService is a service of several roles.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mlsvc
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
type MLService struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`

	Spec   MLServiceSpec   `json:"spec"`
	Status MLServiceStatus `json:"status,omitempty"`
}

// MLServiceList is several of them.
//
// +kubebuilder:object:root=true
type MLServiceList struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata,omitempty"`
	Items         []MLService `json:"items"`
}

// MLServiceSpec is what is asked for.
type MLServiceSpec struct {
	// Selector is met by all pods of the service: they get its matchLabels.
	Selector *meta.LabelSelector `json:"selector"`
	// +kubebuilder:validation:MinItems=1
	Roles []Role `json:"roles"`
}

// Role is one of the parts of a service.
type Role struct {
	Name string `json:"name"`
	// ShardNum is on how many Deployments what the role serves is spread.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	ShardNum *int32 `json:"shardNum,omitempty"`
	// Template is of each shard's Deployment; replicas are those of one shard.
	Template RoleTemplate `json:"template"`
	// ServiceSpec, where it is given, asks for a Service in front of all shards.
	ServiceSpec *ServiceSpec `json:"serviceSpec,omitempty"`
}

// Shards is how many there are.
func (r Role) Shards() int32 {
	if r.ShardNum == nil {
		return 1
	}
	return *r.ShardNum
}

// RoleTemplate is what Deployments are made of.
type RoleTemplate struct {
	meta.ObjectMeta `json:"metadata,omitempty"`

	Spec apps.DeploymentSpec `json:"spec"`
}

// ServiceSpec is how a role is reached.
type ServiceSpec struct {
	// ServiceType is ClusterIP; no other is made.
	ServiceType core.ServiceType `json:"serviceType,omitempty"`
	Ports       []Port           `json:"ports,omitempty"`
}

// PortType is what is spoken on a port.
//
// +kubebuilder:validation:Enum=HTTP;RPC;Metrics;Other
type PortType string

// The types of ports.
const (
	HTTP    PortType = "HTTP"
	RPC     PortType = "RPC"
	Metrics PortType = "Metrics"
	Other   PortType = "Other"
)

// Port is one of a role's.
type Port struct {
	Type PortType `json:"type"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// Phase is where a service stands.
//
// +kubebuilder:validation:Enum=Queuing;Deploying;Running;Abnormal;Deleting;Stopping;Stopped
type Phase string

// The phases.
const (
	Queuing   Phase = "Queuing"   // no node has room
	Deploying Phase = "Deploying" // pods are on their way
	Running   Phase = "Running"   // every shard has all its replicas
	Abnormal  Phase = "Abnormal"  // it will not get there by itself
	Deleting  Phase = "Deleting"
	Stopping  Phase = "Stopping" // scaled to nothing, and pods are left
	Stopped   Phase = "Stopped"
)

// Reasons of a phase, beside those that Kubernetes gives for a container.
const (
	InsufficientClusterResources = "InsufficientClusterResources"
	StatusNotFound               = "StatusNotFound"
	Evicted                      = "Evicted"
	ExceptionExited              = "ExceptionExited"
)

// MLServiceStatus is what was seen last.
type MLServiceStatus struct {
	Phase Phase `json:"phase,omitempty"`
	// RoleShardStatusMap is by Deployment, the next two by Service.
	RoleShardStatusMap    map[string]apps.DeploymentStatus `json:"roleShardStatusMap,omitempty"`
	RoleServiceStatusMap  map[string]core.ServiceStatus    `json:"roleServiceStatusMap,omitempty"`
	RoleServiceClusterIPs map[string]string                `json:"roleServiceClusterIps,omitempty"`
	// LastTransitionTime is when the phase became what it is.
	LastTransitionTime *meta.Time `json:"lastTransitionTime,omitempty"`
	Reason             string     `json:"reason,omitempty"`
	Message            string     `json:"message,omitempty"`
}
