# tapecast: `make demo` shows it, `make test` checks it. `make help` lists the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# What `make demo` plays: synthetic (default), itch or dbn; FILE names the input of the last two.
SOURCE ?= synthetic
FILE ?=
SUBSCRIBERS ?= 64
DEMO_ARGS ?=

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: prepare
prepare: ## install what the build and the tests need (asks for nothing, uses apt when something is missing)
	@tests/scripts/prepare.sh

.PHONY: build
build: prepare ## build everything, optimised
	cargo build --release --workspace

.PHONY: demo
demo: prepare ## one publisher, 64 subscriber processes, an opening burst, and the table (SOURCE=itch|dbn FILE=… for real data)
	cargo build --release -q -p tapecast-publisher -p tapecast-subscriber -p tapecast-tests --bins
	target/release/tapecast-demo --source $(SOURCE) $(if $(FILE),--file '$(FILE)') --subscribers $(SUBSCRIBERS) $(DEMO_ARGS)

.PHONY: test
test: prepare ## everything that has to hold before a change lands
	@tests/scripts/check.sh

.PHONY: bench
bench: prepare ## decode + book, publish cost by subscribers, latency and deliveries beside a bare ring
	cargo bench -q -p tapecast-publisher --bench itch_book
	cargo build --release -q -p tapecast-tests --bins
	target/release/tapecast-bench $(BENCH_ARGS)

.PHONY: fuzz
fuzz: prepare ## every fuzz target; RUNS=n inputs each
	@tests/scripts/fuzz.sh $(RUNS)

.PHONY: loom
loom: ## model-check the ring's writer/reader protocol
	@tests/scripts/loom.sh

.PHONY: clean
clean: ## remove build output
	cargo clean
