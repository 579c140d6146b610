# Weir: build, test and measure. `make help` says what there is.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := all

GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
# grpcnotrace leaves the gRPC library's own trace pages out of the program, and with them
# html/template, by which the linker would have to keep every exported method: 13 MB.
export GOFLAGS += -tags=grpcnotrace
HELPER  := edge/sandbox/helper
PEERS   := edge/edgetest/peers
IDP     := edge/edgetest/idp
ASC     := sdk/assemblyscript
ROW     ?= all
FUZZTIME ?= 30s

# Every fuzz target, as PACKAGE:TARGET.
FUZZ = $(shell grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9]+' edge filters cmd scripting wasm sdk | sed -E 's|/[^/]*_test.go:func |:|')

.PHONY: all help build helper demo sign-in test check generate verify lint race cross fuzz golden peers conformance conformance-all storm storm-quick bench bench-quick bench-smoke house clean

all: build ## Build, and run the quick tests
	$(GO) test -short ./edge ./edge/mcp ./edge/compile ./edge/source ./edge/v1beta1 ./filters

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 14

# The helper of sandboxes, which weir has in it: its own architecture's, and both are built, so
# that weir can be built for either. gzip -n leaves out the time: the same source is the same file.
helper: ## Build the helper of sandboxes, for linux/amd64 and linux/arm64
	@for arch in amd64 arm64; do \
		GOFLAGS= CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o $(HELPER)/$$arch/weir-inside ./cmd/weir-inside && gzip -9nf $(HELPER)/$$arch/weir-inside; \
	done

build: helper ## Build bin/weir
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/weir ./cmd/weir

demo: build ## Serve the built-in demo and say how to talk to it
	$(BIN)/weir serve

sign-in: build $(IDP)/node_modules/.package-lock.json ## Serve examples/sign-in, with an identity provider on this machine (npm)
	sh examples/sign-in/local.sh

# One package at a time: each uses all processors, and many hold an edge to times.
test: helper ## Run every test; say what was skipped and why
	$(GO) test -json -p 1 -timeout 25m ./... | $(GO) run ./edge/edgetest/report

check: verify lint cross race ## All of this: generated files, format, vet, lint, other systems, race

generate: ## Generate what is generated: deep copies and CRDs
	$(GO) generate ./...

verify: generate ## Fail when generated or unformatted files are not as committed
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; exit 1; fi
	@if [ -n "$$(git status --porcelain)" ]; then git status --short; echo "the tree is not as committed: commit what make generate made"; exit 1; fi

lint: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

cross: helper ## Compile for every system that Weir is built for
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
		echo "$$os/$$arch"; GOOS=$$os GOARCH=$$arch CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/weir && GOOS=$$os GOARCH=$$arch CGO_ENABLED=0 $(GO) vet ./edge/serve ./edge/backend ./edge/sandbox ./edge/edgetest; \
	done; done

# One package at a time, as above; cmd/weir alone takes 40 minutes on two processors.
race: helper ## Run every test under the race detector (two to three hours on two processors)
	$(GO) test -race -json -p 1 -timeout 90m ./... | $(GO) run ./edge/edgetest/report

fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@for f in $(FUZZ); do echo "== $$f"; $(GO) test ./$${f%%:*} -run '^$$' -fuzz "^$${f##*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x; done

golden: ## Write the golden files anew; read the diff before you commit it
	$(GO) test ./cmd/weir/apps ./edge/authserver ./edge/catalog ./edge/compile ./edge/registry ./edge/source ./edge/v1beta1 ./filters/authz -update
	$(GO) test ./cmd/weir -run Mistakes -update

peers: $(PEERS)/node_modules/.package-lock.json $(IDP)/node_modules/.package-lock.json $(ASC)/node_modules/.package-lock.json ## Install the clients, servers, the conformance suite that tests talk to, and the compiler of AssemblyScript (npm)

%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund

conformance: build peers ## Run the conformance suite of MCP through the edge, same era
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir

conformance-all: build peers ## The suite in all four cells, with servers on standard streams and in WebAssembly, with the optimizer, its client scenarios with the edge as the client, and those for authorization servers with the edge as one
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir --all
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir --stdio
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir --wasm
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir --optimizer
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir --client
	$(GO) run ./edge/edgetest/conformance --edge $(BIN)/weir --issuer

storm: build ## Stop, kill, starve and overload the edge; ROW=drain for one of them (all: half an hour)
	$(GO) run ./edge/edgetest/storm --weir $(BIN)/weir $(ROW)

storm-quick: build ## The same, scaled
	$(GO) run ./edge/edgetest/storm --weir $(BIN)/weir --quick $(ROW)

bench: build ## Measure everything and write BENCHMARKS.md
	$(GO) run ./edge/edgetest/bench --weir $(BIN)/weir -o BENCHMARKS.md

bench-quick: build ## Measure what matters most, in under two minutes
	$(GO) run ./edge/edgetest/bench --weir $(BIN)/weir --quick

bench-smoke: build ## See that the benchmark runs; its figures say little
	$(GO) run ./edge/edgetest/bench --weir $(BIN)/weir --quick --calls 1000 --rounds 1 --case p1,p2,p4

house: ## Measure the structure of the code, and hold it to its limits
	$(GO) run ./edge/edgetest/house

clean: ## Remove what was built
	rm -rf $(BIN) $(HELPER)/*/weir-inside*
