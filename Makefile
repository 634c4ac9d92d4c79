# `make` alone lists the targets. What is needed less often is a script; CONTRIBUTING.md names each.

# Build products stay outside the working tree, so that editors and Docker do not read them.
# A CARGO_TARGET_DIR in the environment wins.
CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/charge-once/target
export CARGO_TARGET_DIR

# sqlx's macros check every query while compiling, against .sqlx/. They ignore the database that
# DATABASE_URL or .env names.
SQLX_OFFLINE ?= true
export SQLX_OFFLINE

.DEFAULT_GOAL := help

.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## start charge-once, with a private PostgreSQL unless DATABASE_URL is set
	@scripts/install-postgres
	@# The script builds too, but quietly. The first time takes minutes, which should be seen.
	@cargo build --locked --bin charge-once
	@ALLOW_FAULTS=true exec scripts/charge-once

# The tests wait for PostgreSQL and for leases more than they calculate, so more of them run at once than
# there are cores.
export RUST_TEST_THREADS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))

.PHONY: test
test: ## run all tests against a private PostgreSQL
	@scripts/install-postgres
	@scripts/install-prometheus
	@# A part of the tests asks Cargo about packages that only other parts of the workspace use.
	cargo fetch --locked
	cargo test --locked -- --skip docs::copied_crates
	@# They compile and test crates by themselves, which would keep the machine from the others.
	cargo test --locked --test api -- docs::copied_crates

.PHONY: check
check: ## run everything that CI runs: about 25 minutes once the dependencies are compiled
	@bash .ci/run

.PHONY: generate
generate: ## write .sqlx/, openapi/openapi.json and the tables in docs/configuration.md from the code
	@scripts/install-postgres
	@scripts/sqlx-prepare
	@scripts/openapi
	@scripts/config-table

.PHONY: book
book: ## build docs/ as a book with search, and check its links
	@scripts/book

.PHONY: sdk-test
sdk-test: ## test the server with Stripe's SDKs for Python and Node
	@scripts/install-postgres
	@tests/sdk/run

.PHONY: bench
bench: ## measure what a request costs, beside pgbench: about 10 minutes
	@tools/bench/measure run

# How long each profile lasts, and what drives data and faults. CI and people choose their own.
SECONDS ?= 60
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

.PHONY: torture
torture: ## run load and faults, and check what must hold: SECONDS=60 SEED=1 PROFILE=transaction
	@scripts/install-postgres
	@scripts/install-faketime
	@# CHARGE_ONCE and TORTURE name programs that were built before.
	$(if $(TORTURE),,cargo build --locked --bin charge-once --bin torture)
	@CHARGE_ONCE=$(or $(CHARGE_ONCE),$(CARGO_TARGET_DIR)/debug/charge-once) \
	  $(or $(TORTURE),$(CARGO_TARGET_DIR)/debug/torture) \
	  --seconds $(SECONDS) --seed $(SEED) $(addprefix --profile ,$(PROFILE)) \
	  $(addprefix --histories ,$(HISTORIES))

.PHONY: fuzz
fuzz: ## give random bytes to everything that reads what strangers write: SECONDS=60 for each target
	FUZZ_SECONDS=$(SECONDS) cargo test --locked --test fuzz -- --test-threads 2

.PHONY: findings
findings: ## check libraries for idempotency, as docs/findings.md says: half an hour
	@tools/findings/run

# Not listed: before a release.
.PHONY: check-long
check-long:
	@scripts/check-long
