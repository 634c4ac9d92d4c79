# `make` alone lists the targets.

# Build products stay out of the working tree, where editors and Docker contexts would read them.
# Your own CARGO_TARGET_DIR wins.
CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/charge-once/target
export CARGO_TARGET_DIR

# sqlx's macros check every query while compiling. They read .sqlx/ for it, and never whatever
# database DATABASE_URL or .env happens to name.
SQLX_OFFLINE ?= true
export SQLX_OFFLINE

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## start charge-once, with a private PostgreSQL unless DATABASE_URL is set
	@scripts/install-postgres
# What is already in the environment wins over .env, which the shell reads: quote a value that
# holds `&` or spaces.
	@given=$$(export -p); \
	if [ -f .env ]; then set -a; . ./.env; set +a; eval "$$given"; fi; \
	exec cargo run --release --locked

.PHONY: test
test: ## run all tests against a private PostgreSQL
	@scripts/install-postgres
	cargo test --locked --workspace

.PHONY: schema-test
schema-test: ## hold the OpenAPI document against the server, with Schemathesis
	@scripts/install-postgres
	@scripts/schema-test

.PHONY: browser-test
browser-test: ## charge from Swagger UI in Chromium
	@scripts/install-postgres
	@scripts/browser-test

.PHONY: check
check: ## everything that CI checks
	@bash .ci/run

.PHONY: compose-test
compose-test: ## build the image, start docker-compose.yml and charge through it
	@scripts/compose-test

.PHONY: sdk-test
sdk-test: ## drive the service with Stripe's SDKs for Python and Node
	@scripts/install-postgres
	@tests/sdk/run

.PHONY: sdk-test-rust
sdk-test-rust: ## the same with async-stripe, which takes minutes to build
	@scripts/install-postgres
	@tests/sdk/run rust

.PHONY: openapi
openapi: ## write openapi/openapi.json
	@scripts/openapi

.PHONY: config-table
config-table: ## write the table of variables in README.md
	@scripts/config-table

.PHONY: sqlx-prepare
sqlx-prepare: ## write .sqlx/, after a query or a migration has changed
	@scripts/install-postgres
	@scripts/sqlx-prepare
