# tapecast: `make demo` shows it, `make test` checks it. `make help` lists the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# What `make demo` plays: synthetic (default), itch or dbn; FILE names the input of the last two.
SOURCE ?= synthetic
FILE ?=
SUBSCRIBERS ?= 64
DEMO_ARGS ?=
# Soft-RoCE delivers some 30,000 snapshots a second to all subscribers together, on two processors: a
# tenth of the demo's rates keeps it to a few minutes (`RDMA_DAY=` for the whole).
RDMA_DAY ?= $(if $(filter synthetic,$(SOURCE)),--steady-rate 2000 --burst-rate 100000)
# What `make sim` tries: the seeds from 0 on, or one of them again.
SEEDS ?= 10000
SEED ?=
PLANTED ?=
SIM_ARGS ?=
# What `make chaos` and `make restarts` go over: shm, or verbs in a virtual machine; and how often.
FABRIC ?= shm
ROUNDS ?= 20
KEEP ?=
CHAOS_ARGS ?=
# An emulated machine takes its time: after so many seconds it is stopped.
CHAOS_TIMEOUT ?= 7200
chaos = $(if $(filter verbs,$(FABRIC)),tests/vm/soft-roce.sh --mem 6G --timeout $(CHAOS_TIMEOUT) -- tests/vm/only-rxe.sh) \
	target/release/tapecast-chaos
chaos_choices = --rounds $(ROUNDS) $(if $(filter verbs,$(FABRIC)),--rdma) $(if $(SEED),--seed $(SEED)) \
	$(if $(FILE),--file '$(FILE)') $(CHAOS_ARGS)

# bindgen of the RDMA bindings needs libclang 14 or 15; empty where that is the default.
CARGO_ENV = path=$$(tests/scripts/prepare.sh --libclang-path) && { [ -z "$$path" ] || export LIBCLANG_PATH=$$path; } &&

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: prepare
prepare: ## install what the build and the tests need (asks for nothing, uses apt when something is missing)
	@tests/scripts/prepare.sh

.PHONY: build
build: prepare ## build everything, optimised
	$(CARGO_ENV) cargo build --release --workspace

.PHONY: demo
demo: prepare ## one publisher, 64 subscriber processes, an opening burst, and the table (SOURCE=itch|dbn FILE=… for real data)
	$(CARGO_ENV) cargo build --release -q -p tapecast-publisher -p tapecast-subscriber -p tapecast-tests --bins
	target/release/tapecast-demo --source $(SOURCE) $(if $(FILE),--file '$(FILE)') --subscribers $(SUBSCRIBERS) $(DEMO_ARGS)

.PHONY: demo-rdma
demo-rdma: prepare ## the same over RDMA, at a tenth of the rates: Soft-RoCE in a virtual machine, 64 queue pairs
	$(CARGO_ENV) cargo build --release -q -p tapecast-publisher -p tapecast-subscriber -p tapecast-tests --bins
	tests/vm/soft-roce.sh --mem 6G --timeout 1800 -- tests/vm/only-rxe.sh target/release/tapecast-demo --rdma --source $(SOURCE) \
		$(RDMA_DAY) $(if $(FILE),--file '$(FILE)') --subscribers $(SUBSCRIBERS) $(DEMO_ARGS)

.PHONY: test-vm
test-vm: prepare ## the tests that need an RDMA device, in virtual machines (SCOPE=core: only the quick ones)
	@$(CARGO_ENV) tests/vm/run.sh

.PHONY: bench-rdma
bench-rdma: prepare ## snapshots a second over 64 queue pairs and latency, beside ib_write_bw and ib_write_lat
	$(CARGO_ENV) cargo build --release -q -p tapecast-tests --features verbs --bin tapecast-rdma-bench
	tests/vm/bench.sh target/release/tapecast-rdma-bench

.PHONY: deb
deb: prepare ## the Debian package, into target/deb: daemon, command, unit, configuration, dashboards, manual pages
	@tests/scripts/deb.sh

.PHONY: test-systemd
test-systemd: prepare ## that package's whole life on a real systemd: install, reload, crash, hang, upgrade, purge
	@tests/systemd/run.sh

.PHONY: test-operations
test-operations: prepare ## every command of OPERATIONS.md, on two virtual machines with systemd and Soft-RoCE
	@tests/operations/run.sh

.PHONY: monitor
monitor: prepare ## a publisher, 64 subscribers, a real Prometheus, and the dashboards drawn (KEEP=1: until Ctrl-C)
	@$(CARGO_ENV) cargo build -q --workspace --bins --examples --features tapecast-tests/whole
	@KEEP=$(KEEP) tests/monitor/run.sh

.PHONY: monitor-rdma
monitor-rdma: prepare ## the same over RDMA between two virtual machines, and the alerts that take RDMA
	@$(CARGO_ENV) cargo build -q --workspace --bins --examples --features tapecast-tests/whole
	@tests/monitor/rdma.sh

.PHONY: alerts
alerts: prepare ## causes what alerts are about, on real processes, until a real Prometheus fires them
	@$(CARGO_ENV) cargo build -q --workspace --bins --examples --features tapecast-tests/whole
	@tests/monitor/alerts.sh

.PHONY: test
test: prepare ## everything that has to hold before a change lands
	@tests/scripts/check.sh

.PHONY: ab
ab: prepare ## two publishers of one feed, one killed at a random moment, ROUNDS times (default 100)
	$(CARGO_ENV) TAPECAST_TEST_AB_ROUNDS=$(if $(filter file,$(origin ROUNDS)),100,$(ROUNDS)) cargo test --release -q -p tapecast-tests \
		--test end_to_end ab:: -- --nocapture

.PHONY: bench
bench: prepare ## decode + book, publish cost by subscribers, latency and deliveries beside a bare ring
	$(CARGO_ENV) cargo bench -q -p tapecast-publisher --bench itch_book
	$(CARGO_ENV) cargo build --release -q -p tapecast-tests --bins
	target/release/tapecast-bench $(BENCH_ARGS)

.PHONY: fuzz
fuzz: prepare ## every fuzz target; RUNS=n inputs each, slow ones a part of it
	@tests/scripts/fuzz.sh $(RUNS)

.PHONY: sim
sim: prepare ## the deterministic simulator: SEEDS=n runs, or SEED=n again; SIM_ARGS for more, PLANTED=name plants a bug
	cargo run --profile sim -q -p tapecast-tests $(if $(PLANTED),--features planted) --bin tapecast-sim -- \
		$(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(PLANTED),--planted $(PLANTED)) $(SIM_ARGS)

.PHONY: chaos
chaos: prepare ## harm to real processes: ROUNDS=n of kills, stops, joins, leaves (SEED=n again; FILE=…; FABRIC=verbs: in a VM)
	$(CARGO_ENV) cargo build --release -q -p tapecast-publisher -p tapecast-subscriber -p tapecast-tests --bins
	$(chaos) $(chaos_choices)

.PHONY: restarts
restarts: prepare ## kill -9 of the publisher and a new one at once, ROUNDS=n times; how long subscribers take to be back
	$(CARGO_ENV) cargo build --release -q -p tapecast-publisher -p tapecast-subscriber -p tapecast-tests --bins
	$(chaos) restarts $(chaos_choices)

.PHONY: loom
loom: ## model-check the ring's writer/reader protocol
	@tests/scripts/loom.sh

.PHONY: clean
clean: ## remove build output
	cargo clean
