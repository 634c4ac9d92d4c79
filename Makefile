# `make` alone lists the targets.

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
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	cargo test --locked -- --skip idempotency::copied_crate
	@# It compiles and tests the idempotency crate, which would keep the machine from the others.
	cargo test --locked --test api -- idempotency::copied_crate

# How the sender of webhooks takes turns, and what receivers do to it, involves no request.
RESOURCES_ALONE = --skip webhook_turns --skip webhook_receivers --skip webhook_workers \
  --skip idempotency::copied_crate

.PHONY: test-alone
test-alone: ## run what a shortcut can change again, without batches and replays from memory, sorted by a locale
	@scripts/install-postgres
	@# Keys, answers and money. The console, the commands, metrics and documents see only what these wrote,
	@# checkouts and phases never enter a batch, and events are delivered as they are found.
	TEST_SHORTCUTS=off scripts/with-locale cargo test --locked --test api -- idempotency:: resources:: faults:: \
	  http::headers http::bodies process::secrecy $(RESOURCES_ALONE)

.PHONY: pgbouncer-test
pgbouncer-test: ## run the tests of keys and resources again, behind PgBouncer where servers have the default limits
	@scripts/install-postgres
	TEST_THROUGH=pgbouncer cargo test --locked --test api -- idempotency:: resources:: pgbouncer \
	  $(RESOURCES_ALONE)

.PHONY: alert-test
alert-test: ## make the fault of every alert, and see the alert fire in Prometheus
	@scripts/install-postgres
	@scripts/install-prometheus
	cargo test --locked --test api -- --ignored every_alert_fires

.PHONY: schema-test
schema-test: ## check the server against the OpenAPI document, with Schemathesis
	@scripts/install-postgres
	@scripts/schema-test

.PHONY: openapi-lint
openapi-lint: ## lint the OpenAPI document, with Redocly and Spectral
	@scripts/openapi-lint

.PHONY: client-test
client-test: ## generate a client for Python from the OpenAPI document, and call every operation through it
	@scripts/install-postgres
	@scripts/client-test

.PHONY: browser-test
browser-test: ## charge a card from Swagger UI and from the console, in Chromium
	@scripts/install-postgres
	@scripts/browser-test

.PHONY: check
check: ## run everything that CI runs: a quarter of an hour once the dependencies are compiled
	@bash .ci/run

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
	  --seconds $(SECONDS) --seed $(SEED) $(addprefix --profile ,$(PROFILE))

.PHONY: fuzz
fuzz: ## give random bytes to everything that reads what strangers write: SECONDS=60 for each target
	FUZZ_SECONDS=$(SECONDS) cargo test --locked --test fuzz -- --test-threads 2

.PHONY: torture-bugs
torture-bugs: ## plant each bug of crates/torture/bugs, and measure how soon it is found
	@scripts/install-postgres
	@scripts/install-faketime
	@crates/torture/find-bugs

.PHONY: check-long
check-long: ## test what takes too long for CI: features one by one, the SDK for Rust, minutes of fuzz and torture
	@scripts/install-postgres
	@scripts/sqlx-prepare --check
	@for feature in phases batch inspect replay-cache workflow; do \
	  scripts/with-postgres cargo test --locked --package charge-once-idempotency \
	    --features "$$feature" || exit 1; \
	done
	@tests/sdk/run rust
	@scripts/sbom $(CARGO_TARGET_DIR)/charge-once.cdx.json
	@scripts/schema-test --phases examples,coverage,fuzzing --max-examples 50
	@$(MAKE) fuzz SECONDS=120
	@$(MAKE) torture SECONDS=180
	@$(MAKE) torture-bugs

# Where the databases of measurements are kept: on a disk, in a folder that PostgreSQL's user can enter.
BENCH_FOLDER ?= /var/tmp/charge-once-bench
ROWS ?= 1000000
# PostgreSQL's memory for the pages of the large database.
SHARED_BUFFERS ?= 1GB
BENCH = CHARGE_ONCE=$(CARGO_TARGET_DIR)/dist/charge-once $(CARGO_TARGET_DIR)/dist/bench

.PHONY: bench-programs
bench-programs:
	@scripts/install-postgres
	@# One after the other: built together, the program would have the features that the tool needs.
	cargo build --profile dist --locked --package charge-once
	cargo build --profile dist --locked --package charge-once-bench

.PHONY: bench
bench: bench-programs ## measure what a request costs, beside pgbench: about 10 minutes
	@$(BENCH) run --folder $(BENCH_FOLDER)/run

.PHONY: big-data
big-data: bench-programs ## fill a database with ROWS=1000000 keys and charges, and keep it
	@$(BENCH) big-data --rows $(ROWS) --folder $(BENCH_FOLDER)/$(ROWS)

.PHONY: scale
scale: bench-programs ## compare what work costs on ROWS=1000000 and on 100,000 rows
	@$(BENCH) big-data --rows 100000 --folder $(BENCH_FOLDER)/100000
	@$(BENCH) big-data --rows $(ROWS) --folder $(BENCH_FOLDER)/$(ROWS)
	@$(BENCH) scale --folder $(BENCH_FOLDER)/$(ROWS) --baseline $(BENCH_FOLDER)/100000 \
	  --shared-buffers $(SHARED_BUFFERS)

.PHONY: expiry
EXPIRED ?= 1000000
expiry: bench-programs ## measure charges while EXPIRED=1000000 of ROWS=1000000 keys are swept, twice
	@$(BENCH) big-data --rows $(ROWS) --folder $(BENCH_FOLDER)/$(ROWS)
	@$(BENCH) expiry --folder $(BENCH_FOLDER)/$(ROWS) --shared-buffers $(SHARED_BUFFERS) --expired $(EXPIRED)

.PHONY: neighbors
neighbors: bench-programs ## measure what an account notices of a busy neighbor, and of strangers: needs wrk
	@CHARGE_ONCE=$(CARGO_TARGET_DIR)/dist/charge-once crates/bench/neighbors/run

.PHONY: compose-test
compose-test: ## build the image, start docker-compose.yml, and charge through it
	@scripts/compose-test

.PHONY: sdk-test
sdk-test: ## test the server with Stripe's SDKs for Python and Node
	@scripts/install-postgres
	@tests/sdk/run

.PHONY: sdk-test-rust
sdk-test-rust: ## test the server with async-stripe, which takes minutes to build
	@scripts/install-postgres
	@tests/sdk/run rust

.PHONY: retry-test
retry-test: ## prove the retry code of clients in Python, Node and Rust against every fault
	@scripts/install-postgres
	@examples/retry_tests/run

.PHONY: deploy-check
deploy-check: ## check the manifests for Kubernetes and the units for systemd
	cargo build --locked --bin charge-once
	@CHARGE_ONCE=$(CARGO_TARGET_DIR)/debug/charge-once scripts/deploy-check

.PHONY: openapi
openapi: ## write openapi/openapi.json from the code
	@scripts/openapi

.PHONY: config-table
config-table: ## write the table in docs/configuration.md from the code
	@scripts/config-table

.PHONY: sqlx-prepare
sqlx-prepare: ## write .sqlx/ after a change of a query or a migration
	@scripts/install-postgres
	@scripts/sqlx-prepare
