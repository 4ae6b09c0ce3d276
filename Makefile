# What you can do here. `make help` prints the targets.

export CGO_ENABLED = 0
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -X fencepost/edge/cli.version=$(VERSION)
EXAMPLE  = ./fencepost

.PHONY: help build run test race check lint cross schema bench bench-long crash crash-long fuzz plans-long model-long sim-long clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./fencepost
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o fencepost .

run: build ## run the example: a node and a receiver together; Ctrl-C stops both
	./fencepost demo

test: ## run all tests (needs nothing but Go)
	$(GO) test ./...

race: ## run the tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short ./edge/... ./handlers/...

check: lint test race cross crash fuzz ## what CI runs

lint: ## gofmt, vet and golangci-lint (pinned in .ci/tools)
	@test -z "$$(gofmt -l edge handlers main.go)" || { gofmt -l edge handlers main.go; echo 'run gofmt -w on these'; exit 1; }
	$(GO) vet ./...
	cd .ci/tools && $(GO) build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run

cross: ## build for the small boards and other systems
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null .
	GOOS=linux GOARCH=arm GOARM=7 $(GO) build -o /dev/null .
	GOOS=linux GOARCH=386 $(GO) build -o /dev/null .

schema: build ## rewrite schema.sql from a fresh database
	./fencepost schema > schema.sql

bench: build ## measure this build against the naive form, on this disk
	./fencepost bench --all --dir .

clean: ## remove what was built
	rm -rf fencepost bin run
