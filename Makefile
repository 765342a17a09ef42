# make test needs Go and a C compiler; make oracles brings the real counterparts.

PROTOS := $(shell find events internal -name '*.proto' -not -path './.oracles/*' | LC_ALL=C sort)
GO ?= go

.PHONY: build test vet generate generated-is-current oracles soak mutants amx-emulator peers bench image manifests kube

build:
	$(GO) build -o monolith ./cmd/monolith

# A test that fails is run once more by itself, as a machine that stands still may fail it; what
# then passed is named at the end, to be mended. Never after a data race, nor after more than three failures.
test: vet generated-is-current .bin/gotestsum
	$(GO) build ./...
	@rm -f .bin/failed-once
	.bin/gotestsum --format pkgname-and-test-fails --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
	  --rerun-fails-report=.bin/failed-once --packages=./... -- -race -timeout 40m
	@test ! -s .bin/failed-once || { echo "FAILED ONCE, passed when run by itself; the test or what it tests needs mending:"; cat .bin/failed-once; }
	$(GO) test -timeout 40m -run TestWhatWasAcceptedIsFoldedEverywhere ./projections/registry
	$(GO) test -timeout 40m -run 'Allocate|Precisions' ./internal/model/runtime ./internal/input ./services/trainer/step # not beside the race detector
	$(GO) test -tags purego ./kernels/...
	cd tools && $(GO) test ./...
	cd deploy && $(GO) vet ./... && $(GO) test ./...
	cd deploy/mlservice && $(GO) vet ./... && $(GO) test ./...

vet: .bin/staticcheck .bin/sloglint
	$(GO) vet ./...
	.bin/sloglint -kv-only -forbidden-keys error -key-naming-case snake -msg-style lowercased ./...
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt these: $$unformatted"; exit 1; }
	.bin/staticcheck ./...

.bin/staticcheck .bin/sloglint .bin/gotestsum .bin/protoc-gen-go .bin/protoc-gen-go-grpc &: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../.bin/ honnef.co/go/tools/cmd/staticcheck go-simpler.org/sloglint/cmd/sloglint gotest.tools/gotestsum \
	  google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc

MODULE = module=github.com/monolith-go/monolith
PROTOC = protoc -I. --plugin=.bin/protoc-gen-go --plugin=.bin/protoc-gen-go-grpc --go_opt=$(MODULE) \
  --go-grpc_opt=$(MODULE),require_unimplemented_servers=false

# Rewrites every generated file; needs protoc.
generate: .bin/protoc-gen-go .bin/protoc-gen-go-grpc
	$(PROTOC) --go_out=. --go-grpc_out=. $(PROTOS)

# Where protoc is there, generated code must be what the .proto files say.
generated-is-current: .bin/protoc-gen-go .bin/protoc-gen-go-grpc
	@if command -v protoc >/dev/null 2>&1; then \
	  out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && $(PROTOC) --go_out="$$out" --go-grpc_out="$$out" $(PROTOS) && \
	  (cd "$$out" && find . -name '*.pb.go') | while read -r f; do cmp -s "$$out/$$f" "$$f" || { echo "$$f is stale: run make generate"; exit 1; }; done; \
	elif [ "$$CI" = true ]; then echo "protoc is missing and CI must have it: run make oracles"; exit 1; \
	else echo "SKIPPED, protoc is missing: whether generated code is current was not checked"; fi

# The real counterparts: Apache Kafka and ZooKeeper, nats-server and its CLI, kazoo, TensorFlow.
oracles:
	internal/testenv/oracle/install.sh

# Kills, disturbances and network faults at random moments, many times, two namespaces of
# which one is disturbed, three machines each of which is killed, cut off, paused and restarted, and 10^6 operations beside Apache ZooKeeper; see docs/operations.md.
soak:
	MONOLITH_SOAK=50 $(GO) test -race -timeout 60m -run 'TestSoak$$' -v ./cmd/monolith
	MONOLITH_SOAK=200 $(GO) test -race -timeout 180m -run TestKillsBesideKafka -v ./cmd/monolith
	MONOLITH_SOAK=50 $(GO) test -race -timeout 60m -run TestSoakNamespaces -v ./cmd/monolith
	MONOLITH_SOAK=4 $(GO) test -race -timeout 60m -run TestSoakDisturbances -v ./cmd/monolith
	MONOLITH_SOAK=40 $(GO) test -race -timeout 60m -run TestSoakReplicatedLog -v ./cmd/monolith
	MONOLITH_SOAK=1 $(GO) test -timeout 90m -run TestThreeMachines -v ./internal/testenv/cluster
	MONOLITH_POWERCUTS=25 $(GO) test -timeout 60m -run TestPowerCut -v ./cmd/monolith
	MONOLITH_SOAK=20 $(GO) test -timeout 60m -run 'TestSoakPartition|TestKilledProcesses' -v ./services/replicaregistry
	MONOLITH_SOAK=1 $(GO) test -timeout 20m -run TestOracleGoZooKeeperSuite -v ./services/replicaregistry
	MONOLITH_ZKDIFF_OPS=1000000 $(GO) test -timeout 6h -run TestOracleDifferential -v ./services/replicaregistry
	MONOLITH_AUC_STARTS=16 $(GO) test -timeout 60m -run TestBF16OverManyStarts -v ./internal/model/runtime
	MONOLITH_LONG=1 $(GO) test -timeout 60m -run TestWhatStalenessCosts -v ./internal/model/runtime
	MONOLITH_LONG=1 $(GO) test -timeout 120m -run TestPrecisionsOfReadyModels -v ./internal/model/runtime
	MONOLITH_LONG=1 $(GO) test -timeout 60m -run TestModelBeats -v ./loadtest/replay

# Operators changed by chance in the core packages, which their tests must notice. Half an
# hour; MUTANTS draws more or fewer, SEED the same ones again.
MUTANTS ?= 50
CORE = bus/... projections/... services/trainer/... services/ps/... services/modelserver/... \
  internal/input internal/input/framing internal/input/itempool internal/input/jsontext internal/input/pbfield internal/wire/rowwire internal/model/checkpoint internal/model/entrydump kernels/table kernels/internal/offheap
mutants:
	cd tools && $(GO) build -o ../.bin/mutants ./mutants
	.bin/mutants -n $(MUTANTS) $(if $(SEED),-seed $(SEED)) $(CORE)

# AMX where no processor has it: kernels/gemm on an emulated Sapphire Rapids. Minutes.
amx-emulator:
	tools/amx-emulator/run.sh

# The container image for amd64 and arm64, without a daemon: an OCI layout in .bin/image and
# .bin/image.tar for docker load. PUSH=registry/name:tag pushes it too.
image:
	cd deploy && $(GO) run ./image -o ../.bin/image $(if $(PUSH),-push $(PUSH))

# Renders the Helm chart into deploy/k8s, after a change to it.
manifests:
	cd deploy && $(GO) run .

# Kubernetes' control plane and kubectl, which tests of deploy/ apply everything to; ten minutes of a processor.
kube:
	internal/testenv/oracle/kube/install.sh

# The peers that benchmarks are measured beside, some 5 GB.
peers:
	loadtest/peers/install.sh

bench: build
	./monolith bench
