# Frond's everyday commands. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# A toolchain that rustup or a tarball installed may be missing from a bare PATH.
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/local/go/bin

PORT ?= 27017
DBPATH ?= data
HTTP_PORT ?=
SUITES ?=
DOCUMENTS ?= 1000000
WORKLOAD ?= insert
OUT ?= .cache/bench
FROND_CRASHES ?= 200000
FROND_SETS ?= 20000
FROND_SET_SEEDS ?= 20000
FROND_LARGE_UPDATES ?= 1000000
FROND_PLAN_FUZZ ?= 2000000
PREEMPTIONS ?= 4
ENGINES ?= tree rocksdb lmdb fjall redb
OPERATIONS ?=

# Fuzzing: the target (all without one), seconds for each, and what the stable compiler needs to report coverage to libFuzzer.
TARGET ?=
SECONDS ?= 60
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks

HOURS ?= 1
MINUTES ?= 10

ROUNDS ?= 20000
SEED ?= $(shell date +%s)

SERVERS ?= 2
STORES ?= 3

.PHONY: help setup setup-build run replica-set replica-set-stop cluster cluster-stop test-cluster pauses test fmt lint unit clients clients-set clients-ferretdb differential console bench bench-engine bench-peers bench-pages profile package-deb package-tar package-oci packages-test simulate simulate-set proof-large plan-fuzz hostile loom fuzz soak bounded stalls growth bank streams history soak-set failover before-login login-timing deny clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup-build: ## Install what the build needs, if missing
	@scripts/setup.sh build

setup: ## Install what the build and the client suites need, if missing
	@scripts/setup.sh build deny clients differential console cluster

run: setup-build ## Build for release and serve DBPATH (data) on PORT (27017) and the console on HTTP_PORT (none), in the foreground
	@DBPATH="$(DBPATH)" PORT="$(PORT)" HTTP_PORT="$(HTTP_PORT)" scripts/run.sh

replica-set: setup-build ## Build for release and start a replica set of three members on this machine, from PORT (27017) on; prints how to connect
	@scripts/setup.sh python
	cargo build --release --locked --no-default-features
	@python3 scripts/replica_set.py start --port $(PORT)

replica-set-stop: ## Stop that replica set; its data stays in data/replica-set
	@python3 scripts/replica_set.py stop

cluster: setup-build ## Start a TiKV cluster of STORES (3) nodes on this machine, for tests, and SERVERS (2) servers of Frond from PORT (27017) on
	@scripts/setup.sh cluster
	cargo build --release --locked
	@scripts/cluster.sh start --stores $(STORES)
	@scripts/cluster.sh start-servers --servers $(SERVERS) --port $(PORT)

cluster-stop: ## Stop that cluster; its data stays in target/cluster
	@scripts/cluster.sh stop

test-cluster: setup ## Test servers over a TiKV cluster: clients, kills of servers, nodes and PD, schema changes, for MINUTES (5); SEED
	cargo build --workspace --bins --tests --locked
	MINUTES=$(if $(filter file,$(origin MINUTES)),5,$(MINUTES)) SEED=$(SEED) .cache/clients/venv/bin/python tests/cluster/run.py --server target/debug/frond

pauses: setup ## Measure for how long clients wait after faults of a TiKV cluster and its servers, in RUNS (20) of each
	cargo build --release --bin frond --locked
	.cache/clients/venv/bin/python benchmarks/cluster/pauses.py --server target/release/frond --runs $(or $(RUNS),20)

test: setup-build ## Run everything that CI checks: format, clippy, Rust tests, client suites, servers over a TiKV cluster
	@scripts/setup.sh python
	@python3 scripts/test.py

fmt: setup-build ## Format the Rust sources
	cargo fmt --all

lint: setup-build ## Check the format, and run clippy with warnings as errors
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

unit: setup-build ## Run the Rust tests only
	cargo test --workspace --locked

clients: setup ## Run the client suites only; SUITES="node mongosh" selects some
	cargo build --locked
	.cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond $(SUITES)

clients-set: setup ## Run the client suites against MEMBERS (3) members of a replica set; SUITES="node specs-go" selects some
	cargo build --locked
	.cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond --members $(if $(MEMBERS),$(MEMBERS),3) $(SUITES)

clients-ferretdb: setup ## Migrate between Frond and FerretDB, which is built from its sources
	@scripts/setup.sh ferretdb
	cargo build --locked
	.cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond migrate-ferretdb

console: setup ## Use the console in Chromium as a person does; pictures of its views in OUT, if given
	cargo build --locked
	.cache/console/bin/python tests/console/run.py --server target/debug/frond $(if $(filter file,$(origin OUT)),,--screenshots $(OUT))

differential: setup ## Compare ROUNDS (20000) rounds of random operations with two other implementations; SEED
	cargo build --locked
	node tests/differential/run.mjs --server target/debug/frond --rounds $(ROUNDS) --seed $(SEED)

bench: setup-build ## Run WORKLOAD (insert) of frond bench, or all, on a server of its own; DOCUMENTS (1000000 for insert), report in OUT
	WORKLOAD=$(WORKLOAD) \
	$(if $(filter command line environment,$(origin DOCUMENTS))$(filter insert multikey,$(WORKLOAD)),DOCUMENTS=$(DOCUMENTS)) \
	scripts/bench-workload.sh $(OUT)

bench-engine: setup-build ## Compare Frond's engine with RocksDB, LMDB, fjall and redb; DOCUMENTS, ENGINES, report in OUT
	ENGINES="$(ENGINES)" $(if $(filter command line environment,$(origin DOCUMENTS)),DOCUMENTS=$(DOCUMENTS)) \
	scripts/bench-engine.sh $(if $(filter file,$(origin OUT)),.cache/bench-engine,$(OUT))

bench-peers: setup-build ## Run the workloads on Frond and on PostgreSQL, in turns; WORKLOADS, SCALE (1 takes an hour), report in OUT
	benchmarks/peers/run.sh $(if $(filter file,$(origin OUT)),.cache/bench-peers,$(OUT))

profile: setup-build ## Where the server's CPU time of each kind of request goes, with flame graphs; OPERATIONS, report in OUT (as root)
	$(if $(OPERATIONS),OPERATIONS="$(OPERATIONS)") scripts/profile.sh $(if $(filter file,$(origin OUT)),.cache/profile,$(OUT))

bench-pages: setup-build ## Write the figures of README.md and other pages from the runs in benchmarks/runs
	FROND_WRITE_PAGES=1 cargo test --locked --quiet --test all -- --exact pages::every_figure_on_the_pages_is_that_of_its_run
	cargo test --locked --quiet --test all pages::

package-deb: setup-build ## Make the Debian packages frond and frond-dbgsym in OUT (.cache/packages)
	scripts/package-deb.sh $(if $(filter file,$(origin OUT)),.cache/packages,$(OUT))

package-tar: setup-build ## Make an archive of a static program in OUT (.cache/packages)
	scripts/package-tar.sh $(if $(filter file,$(origin OUT)),.cache/packages,$(OUT))

package-oci: setup-build ## Make a container image in OUT (.cache/packages), without a daemon
	scripts/package-oci.sh $(if $(filter file,$(origin OUT)),.cache/packages,$(OUT))

packages-test: setup ## Build the packages, then install, use, upgrade and remove them in a root of their own (as root)
	scripts/setup.sh packages
	scripts/packages-test.sh

simulate: setup-build ## Crash the engine FROND_CRASHES (200000) times on a simulated disk, flip every bit, and run FROND_SETS (20000) replica sets
	FROND_CRASHES=$(FROND_CRASHES) FROND_FLIP_STEP=1 \
		cargo test --release --locked -p frond-tree --test all -- simulation:: --nocapture
	FROND_SETS=$(FROND_SETS) \
		cargo test --release --locked -p frond-tree --test all -- replica_set:: --nocapture

simulate-set: setup-build ## Run FROND_SET_SEEDS (20000) replica sets on simulated machines and networks, from SEED (default the time) on
	FROND_SET_SEEDS=$(FROND_SET_SEEDS) FROND_SEED=$(SEED) \
		cargo test --release --locked -p frond-replica --test all -- simulation:: --nocapture

proof-large: setup-build ## Compare FROND_LARGE_UPDATES (1000000) random updates of large documents, with crashes, with a model
	FROND_LARGE_UPDATES=$(FROND_LARGE_UPDATES) \
		cargo test --release --locked -p frond-store --test all -- large_documents:: --nocapture

plan-fuzz: setup-build ## Compare FROND_PLAN_FUZZ (2000000) results of random plans with collection scans; SEED (default the time)
	FROND_PLAN_FUZZ=$(FROND_PLAN_FUZZ) FROND_PLAN_FUZZ_SEED=$(SEED) \
		cargo test --locked -p frond-store --test all -- plan_fuzz:: --nocapture

hostile: setup-build ## Evaluate hostile expressions for SECONDS (1800), and interrupt all hostile functions of JavaScript
	FROND_HOSTILE_SECONDS=$(if $(filter command line,$(origin SECONDS)),$(SECONDS),1800) \
		cargo test --release --locked -p frond-query --test all -- hostile::random --nocapture
	FROND_HOSTILE=all cargo test --locked -p frond-javascript --test scripts -- hostile:: --nocapture

loom: setup-build ## Check the engine's lock-free parts with up to PREEMPTIONS (4) preemptions per run
	FROND_PREEMPTIONS=$(PREEMPTIONS) cargo test --locked -p frond-tree --test loom

fuzz: setup-build ## Fuzz TARGET, or all targets, for SECONDS (60) each with libFuzzer; inputs in .cache/fuzz
	@TARGET="$(TARGET)" SECONDS_EACH="$(SECONDS)" FUZZ_FLAGS="$(FUZZ_FLAGS)" scripts/fuzz.sh

soak: setup ## Mixed work on a server in 512 MiB that is killed every few minutes, for HOURS (1); report in OUT (.cache/soak)
	HOURS=$(HOURS) scripts/soak.sh $(if $(filter file,$(origin OUT)),.cache/soak,$(OUT))

bounded: setup ## What clients do to the memory of a server in 512 MiB, MINUTES (10) for each load; report in OUT (.cache/bounded)
	MINUTES=$(MINUTES) scripts/bounded.sh $(if $(filter file,$(origin OUT)),.cache/bounded,$(OUT))

stalls: setup-build ## How long finds, inserts and creations of collections wait beside changes of the catalog, with DOCUMENTS (10000000); report in OUT (.cache/stalls/stalls.txt)
	DOCUMENTS=$(DOCUMENTS) scripts/bench-stalls.sh $(if $(filter file,$(origin OUT)),.cache/stalls/stalls.txt,$(OUT))

growth: setup ## What operations cost at SIZES (1000000,10000000,100000000) documents in 512 MiB; as root
	cargo build --release --locked
	.cache/clients/venv/bin/python benchmarks/growth.py --server target/release/frond $(if $(SIZES),--sizes $(SIZES))

bank: setup ## 64 clients move money in transactions for MINUTES (5 unless given), with KILLS (20) of the server; SEED
	cargo build --locked
	FROND_SECONDS=$$((60 * $(if $(filter file,$(origin MINUTES)),5,$(MINUTES)))) FROND_KILLS=$(if $(KILLS),$(KILLS),20) \
		FROND_SEED=$(SEED) .cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond bank

streams: setup ## Change streams beside bulk inserts and transactions in 512 MiB for MINUTES (5 unless given), with KILLS (20) of the server; SEED
	cargo build --locked
	FROND_SECONDS=$$((60 * $(if $(filter file,$(origin MINUTES)),5,$(MINUTES)))) FROND_KILLS=$(if $(KILLS),$(KILLS),20) \
		FROND_SEED=$(SEED) .cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond streams

history: setup ## Record transactions for SECONDS (120 unless given) for each workload, with KILLS (5) of the server, and check them; SEED
	cargo build --locked
	FROND_SECONDS=$(if $(filter file,$(origin SECONDS)),120,$(SECONDS)) FROND_KILLS=$(if $(KILLS),$(KILLS),5) \
		FROND_SEED=$(SEED) .cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond history

soak-set: setup ## Three members that are killed, stopped and cut off under load for SECONDS (90 unless given), checked at the end; SEED
	cargo build --locked
	FROND_SECONDS=$(if $(filter file,$(origin SECONDS)),90,$(SECONDS)) FROND_SEED=$(SEED) \
		.cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond replica-set-soak

failover: setup ## Kill and step down the primary of three members TIMES (50 unless given) under 16 clients, and time it
	cargo build --release --locked
	.cache/clients/venv/bin/python tests/clients/failover.py --server target/release/frond --times $(if $(TIMES),$(TIMES),50)

before-login: setup ## Send MESSAGES (1000000) messages of clients that did not log in, most of them changed at random; SEED
	cargo build --locked
	FROND_MESSAGES=$(if $(MESSAGES),$(MESSAGES),1000000) FROND_SEED=$(SEED) \
		.cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond before-login

login-timing: setup ## Compare how long logins of unknown users and with wrong passwords take, by ATTEMPTS (2000) of each
	cargo build --release --locked
	FROND_ATTEMPTS=$(if $(ATTEMPTS),$(ATTEMPTS),2000) FROND_SEED=$(SEED) \
		.cache/clients/venv/bin/python tests/clients/run.py --server target/release/frond login-timing

deny: setup-build ## Check dependencies with cargo-deny: licences, bans, sources, advisories (needs a network)
	@scripts/setup.sh deny
	@scripts/deny.sh

clean: ## Remove build results and downloads; keeps DBPATH
	cargo clean
	rm -rf .cache tests/clients/node_modules tests/differential/node_modules
