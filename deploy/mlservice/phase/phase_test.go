package phase

import (
	"errors"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
)

// shard is a Deployment of which so many replicas are asked for and available.
func shard(name string, asked, available int32) apps.Deployment {
	d := apps.Deployment{ObjectMeta: meta.ObjectMeta{Name: name, Generation: 2}}
	d.Spec.Replicas = &asked
	d.Status = apps.DeploymentStatus{ObservedGeneration: 2, Replicas: asked, UpdatedReplicas: asked, AvailableReplicas: available}
	return d
}

func changed[T any](v T, change func(*T)) T {
	change(&v)
	return v
}

func pod(name string, status core.PodStatus) core.Pod {
	return core.Pod{ObjectMeta: meta.ObjectMeta{Name: name}, Status: status}
}

func container(state core.ContainerState) core.PodStatus {
	return core.PodStatus{Phase: core.PodRunning, ContainerStatuses: []core.ContainerStatus{{Name: "c", State: state}}}
}

func TestPhases(t *testing.T) {
	behind := []apps.Deployment{shard("a", 1, 0)}
	waiting := func(reason string) core.PodStatus {
		return container(core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: "m"}})
	}
	ended := func(code int32, reason string) core.PodStatus {
		return container(core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, Reason: reason}})
	}
	unscheduled := core.PodStatus{Phase: core.PodPending, Conditions: []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "no room"}}}
	evicted := core.PodStatus{Phase: core.PodFailed, Reason: v1.Evicted, Message: "disk"}

	for what, c := range map[string]struct {
		seen    Seen
		phase   v1.Phase
		reason  string
		message string
	}{
		"all there":                      {Seen{Deployments: []apps.Deployment{shard("a", 2, 2), shard("b", 1, 1)}}, v1.Running, "", ""},
		"one of replicas by default":     {Seen{Deployments: []apps.Deployment{changed(shard("a", 1, 1), func(d *apps.Deployment) { d.Spec.Replicas = nil })}}, v1.Running, "", ""},
		"an old pod that was evicted":    {Seen{Deployments: []apps.Deployment{shard("a", 1, 1)}, Pods: []core.Pod{pod("p", evicted)}}, v1.Running, "", ""},
		"one behind":                     {Seen{Deployments: []apps.Deployment{shard("a", 2, 2), shard("b", 2, 1)}}, v1.Deploying, "", "b: not all replicas are available"},
		"not looked at":                  {Seen{Deployments: []apps.Deployment{changed(shard("a", 1, 1), func(d *apps.Deployment) { d.Generation++ })}}, v1.Deploying, v1.StatusNotFound, "a: not all replicas are available"},
		"an update under way":            {Seen{Deployments: []apps.Deployment{changed(shard("a", 2, 2), func(d *apps.Deployment) { d.Status.UpdatedReplicas = 1 })}}, v1.Deploying, "", "a: not all replicas are available"},
		"an old replica left":            {Seen{Deployments: []apps.Deployment{changed(shard("a", 2, 2), func(d *apps.Deployment) { d.Status.Replicas = 3 })}}, v1.Deploying, "", "a: not all replicas are available"},
		"one role is scaled down":        {Seen{Deployments: []apps.Deployment{shard("a", 1, 1), changed(shard("b", 0, 0), func(d *apps.Deployment) { d.Status.Replicas = 1 })}}, v1.Deploying, "", "b: not all replicas are available"},
		"no node":                        {Seen{Deployments: behind, Pods: []core.Pod{pod("p", unscheduled)}}, v1.Queuing, v1.InsufficientClusterResources, "p: no room"},
		"evicted":                        {Seen{Deployments: behind, Pods: []core.Pod{pod("p", evicted)}}, v1.Abnormal, v1.Evicted, "p: disk"},
		"failed":                         {Seen{Deployments: behind, Pods: []core.Pod{pod("p", core.PodStatus{Phase: core.PodFailed})}}, v1.Abnormal, v1.ExceptionExited, "p: its containers have ended"},
		"no image":                       {Seen{Deployments: behind, Pods: []core.Pod{pod("p", waiting("ImagePullBackOff"))}}, v1.Abnormal, "ImagePullBackOff", "p, container c: m"},
		"being made":                     {Seen{Deployments: behind, Pods: []core.Pod{pod("p", waiting("ContainerCreating"))}}, v1.Deploying, "", "a: not all replicas are available"},
		"an init container":              {Seen{Deployments: behind, Pods: []core.Pod{pod("p", core.PodStatus{InitContainerStatuses: waiting("CrashLoopBackOff").ContainerStatuses})}}, v1.Abnormal, "CrashLoopBackOff", "p, container c: m"},
		"ended":                          {Seen{Deployments: behind, Pods: []core.Pod{pod("p", ended(3, ""))}}, v1.Abnormal, v1.ExceptionExited, "p, container c: it ended with code 3"},
		"no memory":                      {Seen{Deployments: behind, Pods: []core.Pod{pod("p", ended(137, "OOMKilled"))}}, v1.Abnormal, "OOMKilled", "p, container c: it ended with code 137"},
		"ended well":                     {Seen{Deployments: behind, Pods: []core.Pod{pod("p", ended(0, "Completed"))}}, v1.Deploying, "", "a: not all replicas are available"},
		"one waits, one is out of order": {Seen{Deployments: behind, Pods: []core.Pod{pod("q", evicted), pod("p", unscheduled)}}, v1.Abnormal, v1.Evicted, "q: disk"},
		"one that goes":                  {Seen{Deployments: behind, Pods: []core.Pod{changed(pod("p", ended(1, "Error")), func(p *core.Pod) { p.DeletionTimestamp = &meta.Time{} })}}, v1.Deploying, "", "a: not all replicas are available"},
		"a quota": {Seen{Deployments: []apps.Deployment{changed(shard("a", 1, 0), func(d *apps.Deployment) {
			d.Status.Conditions = []apps.DeploymentCondition{{Type: apps.DeploymentReplicaFailure, Status: core.ConditionTrue, Reason: "FailedCreate", Message: "quota"}}
		})}}, v1.Abnormal, "FailedCreate", "a: quota"},
		"too late": {Seen{Deployments: []apps.Deployment{changed(shard("a", 1, 0), func(d *apps.Deployment) {
			d.Status.Conditions = []apps.DeploymentCondition{{Type: apps.DeploymentProgressing, Status: core.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "late"}}
		})}}, v1.Abnormal, "ProgressDeadlineExceeded", "a: late"},
		"wrong":                   {Seen{Wrong: errors.New("change it"), Deployments: []apps.Deployment{shard("a", 1, 1)}}, v1.Abnormal, "", "change it"},
		"going":                   {Seen{Deleting: true, Wrong: errors.New("x"), Deployments: behind}, v1.Deleting, "", ""},
		"stopping":                {Seen{Deployments: []apps.Deployment{changed(shard("a", 0, 0), func(d *apps.Deployment) { d.Status.Replicas = 1 })}}, v1.Stopping, "", "pods that are left: 0"},
		"stopping, said just now": {Seen{Deployments: []apps.Deployment{changed(shard("a", 0, 0), func(d *apps.Deployment) { d.Generation++ })}}, v1.Stopping, "", "pods that are left: 0"},
		"stopping, a pod is left": {Seen{Deployments: []apps.Deployment{shard("a", 0, 0)}, Pods: []core.Pod{pod("p", core.PodStatus{Phase: core.PodRunning})}}, v1.Stopping, "", "pods that are left: 1"},
		"stopped":                 {Seen{Deployments: []apps.Deployment{shard("a", 0, 0)}, Pods: []core.Pod{pod("p", evicted)}}, v1.Stopped, "", ""},
	} {
		got := Of(c.seen)
		if got.Phase != c.phase || got.Reason != c.reason || got.Message != c.message {
			t.Errorf("%s: %s, reason %q: %q\nwant %s, reason %q: %q", what, got.Phase, got.Reason, got.Message, c.phase, c.reason, c.message)
		}
	}
}

// TestMaps holds that the status tells what each Deployment and Service tells.
func TestMaps(t *testing.T) {
	svc := core.Service{ObjectMeta: meta.ObjectMeta{Name: "s"}}
	svc.Spec.ClusterIP = "10.0.0.1"
	got := Of(Seen{Deployments: []apps.Deployment{shard("a", 2, 1)}, Services: []core.Service{svc}})
	if got.RoleShardStatusMap["a"].AvailableReplicas != 1 || got.RoleServiceClusterIPs["s"] != "10.0.0.1" || len(got.RoleServiceStatusMap) != 1 {
		t.Errorf("%+v", got)
	}
}
