// Package controller makes what an MLService asks for, and tells where it stands.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
	"github.com/monolith-go/monolith/deploy/mlservice/children"
	"github.com/monolith-go/monolith/deploy/mlservice/phase"
)

const (
	// owner is whose the fields are that the controller applies.
	owner = "mlservice"
	// stopping and blocked are after how long a service is looked at again that waits for its last pods, or
	// for what only its writer can change.
	stopping = 2 * time.Second
	blocked  = 30 * time.Second
)

// Controller keeps the Deployments and Services of each MLService as it asks for.
type Controller struct {
	client client.Client
	events record.EventRecorder
	now    func() time.Time
}

// Add has the manager run a controller, which tells the time by now.
func Add(mgr ctrl.Manager, now func() time.Time) error {
	c := &Controller{client: mgr.GetClient(), events: mgr.GetEventRecorderFor(owner), now: now}
	return ctrl.NewControllerManagedBy(mgr).For(&v1.MLService{}).Owns(&apps.Deployment{}).Owns(&core.Service{}).
		Watches(&core.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).Complete(c)
}

// Cached leaves out of the manager's memory the pods that are of no service.
func Cached() cache.Options {
	ours, err := labels.NewRequirement(children.ServiceID, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{&core.Pod{}: {Label: labels.NewSelector().Add(*ours)}}}
}

// ofPod is the service that a pod is of.
func ofPod(_ context.Context, pod client.Object) []reconcile.Request {
	name, ok := pod.GetLabels()[children.ServiceID]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: name}}}
}

// Reconcile brings one service a step nearer to what it asks for.
func (c *Controller) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	svc := &v1.MLService{}
	if err := c.client.Get(ctx, r.NamespacedName, svc); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // its children go with it, as they are its own
	}
	var wrong *wrongError
	if svc.DeletionTimestamp.IsZero() {
		if err := c.make(ctx, svc); err != nil && !errors.As(err, &wrong) {
			return reconcile.Result{}, err
		}
	}
	seen, err := c.look(ctx, svc)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wrong != nil {
		seen.Wrong = wrong
	}
	status, err := c.tell(ctx, svc, phase.Of(seen))
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case status == v1.Stopping:
		return reconcile.Result{RequeueAfter: stopping}, nil
	case wrong != nil:
		return reconcile.Result{RequeueAfter: blocked}, nil
	}
	return reconcile.Result{}, nil
}

// wrongError is what only a change of the service, or of what is in its way, can mend.
type wrongError struct{ error }

func (e *wrongError) Unwrap() error { return e.error }

// make applies what the service asks for, and deletes what it no longer does.
func (c *Controller) make(ctx context.Context, svc *v1.MLService) error {
	deployments, services, err := children.Of(svc)
	if err != nil {
		return &wrongError{err}
	}
	wanted := map[string]bool{}
	for _, d := range deployments {
		wanted["Deployment "+d.Name] = true
		if err := c.apply(ctx, svc, d, &apps.Deployment{}); err != nil {
			return err
		}
	}
	for _, s := range services {
		wanted["Service "+s.Name] = true
		if err := c.apply(ctx, svc, s, &core.Service{}); err != nil {
			return err
		}
	}
	seen, err := c.look(ctx, svc)
	if err != nil {
		return err
	}
	for i := range seen.Deployments {
		if d := &seen.Deployments[i]; !wanted["Deployment "+d.Name] {
			if err := c.delete(ctx, d); err != nil {
				return err
			}
		}
	}
	for i := range seen.Services {
		if s := &seen.Services[i]; !wanted["Service "+s.Name] {
			if err := c.delete(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply makes a child be as it is wanted; current is of its type, to read into. What is somebody else's is
// left alone, as are fields that the service says nothing of.
func (c *Controller) apply(ctx context.Context, svc *v1.MLService, child, current client.Object) error {
	switch err := c.client.Get(ctx, client.ObjectKeyFromObject(child), current); {
	case err == nil && !meta.IsControlledBy(current, svc):
		return &wrongError{fmt.Errorf("there is a %s %s already, which is not of this service: delete it, or rename the service or the role",
			child.GetObjectKind().GroupVersionKind().Kind, child.GetName())}
	case client.IgnoreNotFound(err) != nil:
		return err
	}
	if err := controllerutil.SetControllerReference(svc, child, c.client.Scheme()); err != nil {
		return err
	}
	err := c.client.Patch(ctx, child, client.Apply, client.FieldOwner(owner), client.ForceOwnership)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return &wrongError{fmt.Errorf("what the service asks for is refused; change it: %w", err)}
	}
	return err
}

func (c *Controller) delete(ctx context.Context, child client.Object) error {
	return client.IgnoreNotFound(c.client.Delete(ctx, child, client.PropagationPolicy(meta.DeletePropagationBackground)))
}

// look reads what there is of the service.
func (c *Controller) look(ctx context.Context, svc *v1.MLService) (phase.Seen, error) {
	var deployments apps.DeploymentList
	var services core.ServiceList
	var pods core.PodList
	for _, list := range []client.ObjectList{&deployments, &services, &pods} {
		if err := c.client.List(ctx, list, client.InNamespace(svc.Namespace), client.MatchingLabels{children.ServiceID: svc.Name}); err != nil {
			return phase.Seen{}, err
		}
	}
	seen := phase.Seen{Deleting: !svc.DeletionTimestamp.IsZero(), Pods: pods.Items}
	for _, d := range deployments.Items {
		if meta.IsControlledBy(&d, svc) {
			seen.Deployments = append(seen.Deployments, d)
		}
	}
	for _, s := range services.Items {
		if meta.IsControlledBy(&s, svc) {
			seen.Services = append(seen.Services, s)
		}
	}
	return seen, nil
}

// tell writes the status where it is another than the service has, and an event where the phase is.
func (c *Controller) tell(ctx context.Context, svc *v1.MLService, status v1.MLServiceStatus) (v1.Phase, error) {
	was := svc.Status
	status.LastTransitionTime = was.LastTransitionTime
	if was.Phase != status.Phase || status.LastTransitionTime == nil {
		status.LastTransitionTime = &meta.Time{Time: c.now()}
	}
	if equality.Semantic.DeepEqual(was, status) {
		return status.Phase, nil
	}
	before := svc.DeepCopy()
	svc.Status = status
	// The version says that nobody has told another status since this one was read.
	if err := c.client.Status().Patch(ctx, svc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return status.Phase, client.IgnoreNotFound(err)
	}
	if was.Phase != status.Phase {
		kind := core.EventTypeNormal
		if status.Phase == v1.Abnormal {
			kind = core.EventTypeWarning
		}
		c.events.Event(svc, kind, string(status.Phase), status.Message)
	}
	return status.Phase, nil
}
