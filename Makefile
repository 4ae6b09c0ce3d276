# What you can do here. `make help` prints the targets.

export CGO_ENABLED = 0
GO      ?= go
VERSION ?= $(shell .ci/release/version 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -X fencepost/edge/cli.version=$(VERSION)

.PHONY: help build run test race check fuzz plans-long bounds-long start-long mutations-long backups-long side-file disk-full model-long crash crash-long faults faults-long sandbox clock clock-long limits together-long soak soak-long power power-long histories-long lint cross schema fixture bench unit-score release reproducible clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./fencepost
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o fencepost .

run: build ## run the example: a node and a receiver together; Ctrl-C stops both
	./fencepost demo

test: ## run all tests (needs nothing but Go)
	$(GO) test ./...

# What one goroutine does for long, or another process, shows the race detector nothing: it is left out, and of the random histories few are run.
ALONE = TestModel$$|TestP7_|TestQ12_|TestP22_|TestPlans|TestPrune|TestNothingGrows|TestControl_ASettle|TestSchemaFixtures|TestP26_|TestT25_
race: ## run the tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -p 1 -skip '$(ALONE)' $$($(GO) list ./... | grep -v -e /internal/crash -e /internal/bench)
	CGO_ENABLED=1 $(GO) test -race ./edge/sqlite -run 'TestModel$$' -rapid.checks=5

check: lint test race cross fuzz ## what CI runs

# By count: a run that a time limit ends can fail as "context deadline exceeded".
FUZZTIME ?= 100000x
fuzz: ## run each fuzz target for a short while (FUZZTIME=10m for long)
	@set -e; for target in edge/config:FuzzParse edge/route:FuzzPattern edge/route:FuzzKey edge/expression:FuzzExpression edge/expression:FuzzTemplate edge/api:FuzzDecode edge/schedule:FuzzParse; do \
		echo "fuzz $$target"; \
		$(GO) test ./$${target%:*} -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(FUZZTIME); \
	done

plans-long: ## query plans on a skewed million rows
	FENCEPOST_LONG=1 $(GO) test ./edge/sqlite -count=1 -v -run 'TestPlans$$'

bounds-long: ## what pruning a million rows costs other writers, beside the promise (250 ms)
	FENCEPOST_LONG=1 $(GO) test ./edge/sqlite -count=1 -v -timeout 30m -run 'TestP22_StallsLong$$'

mutations-long: ## 1,000 flipped bits in the log and in bodies: each must be noticed
	FENCEPOST_MUTATIONS=1000 $(GO) test ./edge/sqlite -count=1 -v -timeout 30m -run 'TestP7_EveryFlippedBit'

start-long: ## what a start costs at ten million rows, beside the promise (2 s)
	FENCEPOST_ROWS=10000000 $(GO) test ./edge/sqlite -count=1 -v -timeout 60m -run 'TestP22_AStart'

backups-long: ## 100 backups under load: each must be whole
	FENCEPOST_BACKUPS=100 $(GO) test ./edge/sqlite -count=1 -v -timeout 30m -run 'TestP11_'

side-file: ## what the side file costs: single commits by turns, with and without
	$(GO) test ./edge/sqlite -run '^$$' -bench SideFile -benchtime 3000x

model-long: ## the store against its model, 5,000 random histories
	$(GO) test ./edge/sqlite -count=1 -run 'TestModel$$' -timeout 60m -rapid.checks=5000 -rapid.steps=100

crash: ## kill -9, zombies and graceful stops of the real binary, short form
	$(GO) test -count=1 -v ./edge/internal/crash

crash-long: ## the same with 1,000 kills and more of everything (about 20 minutes)
	FENCEPOST_KILLS=1000 FENCEPOST_ZOMBIES=10 FENCEPOST_STOPS=20 FENCEPOST_STEPS=10 FENCEPOST_KEYS=1000 \
		$(GO) test -count=1 -v -timeout 90m ./edge/internal/crash

faults: ## make syncs, reads, names and other system calls fail under strace, short form (needs root and strace)
	$(GO) test -tags faults -count=1 -v -run '_SyncErrors|_ErrorSweep|_KillAtEachWrite|_UnsyncedCommits|_SlowSyncs|_ReadErrors|_Resolver|_ScrapeReads|_OpensOf' ./edge/internal/crash

faults-long: ## the same with 200 syncs, 500 errors and 500 kills (about 20 minutes)
	FENCEPOST_SYNCS=200 FENCEPOST_ERRORS=500 FENCEPOST_WRITES=500 \
		$(GO) test -tags faults -count=1 -v -timeout 90m -run '_SyncErrors|_ErrorSweep|_KillAtEachWrite|_UnsyncedCommits' ./edge/internal/crash

clock: ## move the wall clock of a node under load, by a build with another time.Now
	$(GO) test -tags faults -count=1 -v -timeout 30m -run 'TestP15_ClockSteps' ./edge/internal/crash

clock-long: ## the same, and fail when leases outlive a restart by more than promised
	FENCEPOST_LONG=1 $(GO) test -tags faults -count=1 -v -timeout 30m -run 'TestP15_ClockSteps' ./edge/internal/crash

limits: ## 64 descriptors, a tenth of a processor, slow syncs, 96 MiB, short writes (needs strace)
	$(GO) test -tags faults -count=1 -v -timeout 15m -run 'TestP23_|TestP20_|TestP5_Short' ./edge/internal/crash

together-long: ## three processes on one file beside 45,000 commands (about 10 minutes)
	FENCEPOST_COMMANDS=45000 $(GO) test -count=1 -v -timeout 60m -run 'TestP12_' ./edge/internal/crash

soak: ## memory, goroutines and descriptors over 5 minutes at 100 events a second
	$(GO) test -tags soak -count=1 -v -timeout 30m -run 'TestP21_|_ALeakHas' ./edge/internal/crash

soak-long: ## the same over 2 hours; fails when memory grows by more than promised
	FENCEPOST_SOAK_S=7200 $(GO) test -tags soak -count=1 -v -timeout 180m -run 'TestP21_|_ALeakHas' ./edge/internal/crash

disk-full: ## fill, take away and make read-only the disk of a node at work (needs root, e2fsprogs and loop devices)
	$(GO) test -tags faults -count=1 -v -timeout 15m -run 'TestP4_Disk|TestP6_TheFile' ./edge/internal/crash

power: ## cut the power of a virtual machine, 5 times, and 4 with durability normal (installs qemu and a kernel)
	.ci/power/prepare
	FENCEPOST_KERNEL=$(CURDIR)/bin/power $(GO) test -tags power -count=1 -v -timeout 20m -run '_PowerCuts|_NormalLoses' ./edge/internal/crash

power-long: ## the same with 50 cuts and 20 (about 20 minutes)
	.ci/power/prepare
	FENCEPOST_KERNEL=$(CURDIR)/bin/power FENCEPOST_CUTS=50 FENCEPOST_NORMAL_CUTS=20 \
		$(GO) test -tags power -count=1 -v -timeout 120m -run '_PowerCuts|_NormalLoses' ./edge/internal/crash

histories-long: ## check 1,000 histories of leases against a model of one lease (about 2 minutes)
	FENCEPOST_HISTORIES=1000 $(GO) test ./edge/sqlite -count=1 -v -timeout 30m -run 'TestP34_|_ASettleWithoutTheToken'

sandbox: ## run the tests of the program in a sandbox: no user, no capability, no network, read-only (needs bubblewrap)
	.ci/sandbox -count=1 ./edge/internal/crash ./edge/internal/service ./edge/cli

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

fixture: ## write the database of the present schema that later builds must be able to open
	$(GO) test ./edge/sqlite -count=1 -run 'TestSchemaFixtures$$' -update

bench: build ## measure this build against the naive form, on this disk
	./fencepost bench --all --n 20000 --dir .

unit-score: ## score the sandbox of the systemd unit (needs systemd-analyze)
	@.ci/release/unit-score

release: ## tarballs, deb, rpm, bill of materials and checksums into dist/, the same bytes for the same commit
	.ci/release/build

reproducible: ## build the release of this commit twice, elsewhere and otherwise, and compare
	.ci/release/reproducible

clean: ## remove what was built
	rm -rf fencepost bin dist run
