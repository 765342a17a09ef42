PROTOS := $(shell find events internal -name '*.proto')

.bin/protoc-gen-go: tools/go.mod
	cd tools && go build -o ../.bin/ google.golang.org/protobuf/cmd/protoc-gen-go

# Rewrites every generated file; needs protoc.
generate: .bin/protoc-gen-go
	protoc -I. --plugin=.bin/protoc-gen-go --go_out=. --go_opt=module=github.com/monolith-go/monolith $(PROTOS)

.PHONY: generate
