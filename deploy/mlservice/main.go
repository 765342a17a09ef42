// Command mlservice is the controller of the resource MLService: it makes the Deployments and Services of each, and
// tells where it stands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	kube "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/monolith-go/monolith/deploy/mlservice/api/v1"
	"github.com/monolith-go/monolith/deploy/mlservice/controller"
)

// leader is the name of the lease for which controllers stand, the original's.
const leader = "183d5a48.volcengine.com"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mlservice:", err)
		stop()
		os.Exit(1)
	}
}

// run is the controller until ctx ends.
func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("mlservice", flag.ContinueOnError)
	metrics := fs.String("metrics-bind-address", ":8080", "`address` of /metrics; 0: none")
	probes := fs.String("health-probe-bind-address", ":8081", "`address` of /healthz and /readyz")
	elect := fs.Bool("leader-elect", false, "stand for leader; of several controllers one works at a time")
	namespace := fs.String("leader-election-namespace", "", "`namespace` of the lease (default: the pod's)")
	config.RegisterFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q is no flag", fs.Arg(0))
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log) // in which the client and the election write
	api, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server, by the pod's service account, --kubeconfig or KUBECONFIG: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(kube.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(api, ctrl.Options{
		Scheme: scheme, Cache: controller.Cached(), Metrics: server.Options{BindAddress: *metrics}, HealthProbeBindAddress: *probes,
		LeaderElection: *elect, LeaderElectionID: leader, LeaderElectionNamespace: *namespace,
		LeaderElectionReleaseOnCancel: true, // nothing is done after Start has returned
	})
	if err != nil {
		return err
	}
	if err := errors.Join(controller.Add(mgr, time.Now), mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
