#!/usr/bin/env bash
# Builds Kubernetes' control plane and kubectl from their modules, for the tests of deploy/, into .oracles/kube,
# and puts the definitions of Prometheus's operator beside them. Some ten minutes of a processor, once.
set -euo pipefail
cd "$(dirname "$0")"
here=$(cd ../../../.. && pwd)/.oracles/kube
if cat go.mod crds/go.mod 2>/dev/null | cmp -s - "$here/.complete"; then exit; fi
rm -rf "$here"
mkdir -p "$here/crds"

export GOFLAGS=-mod=mod CGO_ENABLED=0
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
# Without its version a server calls itself v0.0.0, which kubectl refuses.
go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$here/" \
  k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kubectl
go build -trimpath -ldflags "-s -w" -o "$here/etcd" go.etcd.io/etcd/server/v3

(
  cd crds
  operator=github.com/prometheus-operator/prometheus-operator
  go mod download $operator
  definitions=$(go list -m -f '{{.Dir}}' $operator)/example/prometheus-operator-crd
  install -m 644 "$definitions"/monitoring.coreos.com_{prometheusrules,servicemonitors}.yaml "$here/crds/"
)
cat go.mod crds/go.mod >"$here/.complete"
echo "Kubernetes is in $here."
