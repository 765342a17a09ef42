// Package phase says where an MLService stands, by what its Deployments and their pods tell.
package phase

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
)

// Seen is what there is of a service.
type Seen struct {
	Deleting    bool
	Wrong       error // what keeps the controller from making what is asked for
	Deployments []apps.Deployment
	Services    []core.Service
	Pods        []core.Pod
}

// Of is the status that follows from what was seen. It says no time.
func Of(s Seen) v1.MLServiceStatus {
	status := v1.MLServiceStatus{
		RoleShardStatusMap: map[string]apps.DeploymentStatus{}, RoleServiceStatusMap: map[string]core.ServiceStatus{}, RoleServiceClusterIPs: map[string]string{},
	}
	for _, d := range s.Deployments {
		status.RoleShardStatusMap[d.Name] = d.Status
	}
	for _, svc := range s.Services {
		status.RoleServiceStatusMap[svc.Name], status.RoleServiceClusterIPs[svc.Name] = svc.Status, svc.Spec.ClusterIP
	}
	status.Phase, status.Reason, status.Message = of(s)
	return status
}

func of(s Seen) (phase v1.Phase, reason, message string) {
	switch {
	case s.Deleting:
		return v1.Deleting, "", ""
	case s.Wrong != nil:
		return v1.Abnormal, "", s.Wrong.Error()
	case !slices.ContainsFunc(s.Deployments, func(d apps.Deployment) bool { return asked(d) > 0 }):
		if left := live(s.Pods); left > 0 || slices.ContainsFunc(s.Deployments, func(d apps.Deployment) bool { return !told(d) || d.Status.Replicas > 0 }) {
			return v1.Stopping, "", fmt.Sprintf("pods that are left: %d", left)
		}
		return v1.Stopped, "", ""
	}
	var behind []string
	silent := false
	for _, d := range s.Deployments {
		silent = silent || !told(d)
		if !told(d) || d.Status.UpdatedReplicas < asked(d) || d.Status.AvailableReplicas < asked(d) || d.Status.Replicas > asked(d) {
			behind = append(behind, d.Name)
		}
	}
	if len(behind) == 0 {
		return v1.Running, "", ""
	}
	// Of several pods one that is out of order tells more than one that waits for a node.
	slices.Sort(behind)
	phase, message = v1.Deploying, strings.Join(behind, ", ")+": not all replicas are available"
	if silent {
		reason = v1.StatusNotFound
	}
	for _, p := range sorted(s.Pods) {
		switch ph, why, text := ofPod(p); {
		case ph == v1.Abnormal:
			return ph, why, text
		case ph == v1.Queuing:
			phase, reason, message = ph, why, text
		}
	}
	for _, d := range s.Deployments {
		for _, c := range d.Status.Conditions {
			// No pod can be made, as for a quota, or none becomes available.
			if c.Type == apps.DeploymentReplicaFailure && c.Status == core.ConditionTrue || c.Type == apps.DeploymentProgressing && c.Status == core.ConditionFalse {
				return v1.Abnormal, c.Reason, d.Name + ": " + c.Message
			}
		}
	}
	return phase, reason, message
}

// live are the pods that have not ended.
func live(pods []core.Pod) (n int) {
	for _, p := range pods {
		if p.Status.Phase != core.PodFailed && p.Status.Phase != core.PodSucceeded {
			n++
		}
	}
	return n
}

func sorted(pods []core.Pod) []core.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b core.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

// asked is how many replicas a Deployment is to have.
func asked(d apps.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// told says whether Kubernetes has looked at the Deployment as it is now.
func told(d apps.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

// starting are the reasons of a container that is on its way.
var starting = []string{"", "ContainerCreating", "PodInitializing"}

// ofPod is the phase that one pod by itself stands for; none: it is well, or on its way.
func ofPod(p core.Pod) (phase v1.Phase, reason, message string) {
	if p.DeletionTimestamp != nil {
		return "", "", ""
	}
	if p.Status.Phase == core.PodFailed {
		return v1.Abnormal, cmp.Or(p.Status.Reason, v1.ExceptionExited), p.Name + ": " + cmp.Or(p.Status.Message, "its containers have ended")
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && !slices.Contains(starting, w.Reason) {
			return v1.Abnormal, w.Reason, fmt.Sprintf("%s, container %s: %s", p.Name, c.Name, cmp.Or(w.Message, "it waits"))
		}
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			return v1.Abnormal, cmp.Or(e.Reason, v1.ExceptionExited), fmt.Sprintf("%s, container %s: it ended with code %d", p.Name, c.Name, e.ExitCode)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return v1.Queuing, v1.InsufficientClusterResources, p.Name + ": " + c.Message
		}
	}
	return "", "", ""
}
