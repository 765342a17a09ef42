// The definitions of Prometheus's operator, which lie in its module as YAML. No package is imported: do not tidy.
module github.com/monolith-go/monolith/internal/testenv/oracle/kube/crds

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
