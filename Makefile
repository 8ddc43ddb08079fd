# `make help` lists the targets. Every target works on a fresh machine, without running another one first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Hashes pin every file; --no-deps makes pip install exactly the files listed.
PIP_INSTALL_LOCKED := $(PIP) install --require-hashes --no-deps

# The CPU build of torch that pip finds is not the registry's file, so torch alone is pinned without a hash.
TORCH ?= torch==2.13.0

# Extras the test suite needs besides the default install; `make test TEST_EXTRAS=` leaves them out.
TEST_EXTRAS ?= train
# What `make test` selects; `real` tests need a live engine, which no test starts by itself.
MARKERS ?= not real
# Number of test processes; 0 runs everything in one process.
JOBS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(JOBS)

KERNEL_SOURCES := $(shell find llmserve_env/engine -name '*.py') $(wildcard llmserve_env/*.py llmserve_env/env/*.py)
CODE := $(wildcard llmserve_env server tools benchmarks scripts tests *.py)
NOJIT_TESTS := $(wildcard tests/engine tests/laws)
BROWSER_TESTS := $(if $(findstring not browser,$(MARKERS)),,$(shell grep -rl --include='*.py' 'pytest\.mark\.browser' tests))
POSTGRES_TESTS := $(if $(findstring not slow,$(MARKERS)),,$(wildcard tests/server/test_postgres.py))
POSTGRES := $(or $(shell command -v initdb),$(firstword $(wildcard /usr/lib/postgresql/*/bin/initdb)))
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Install

.PHONY: setup
setup: $(VENV)/.warm ## Create .venv with the default install and everything the tests need, and compile the simulator

.PHONY: setup-train
setup-train: $(VENV)/.train ## Add what training needs: torch, Stable-Baselines3, TensorBoard

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is %s: name another with PYTHON=..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.locked: requirements.txt requirements-dev.txt | $(BIN)/python
	$(PIP_INSTALL_LOCKED) -r requirements.txt -r requirements-dev.txt
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.locked
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# The module itself knows whether anything is left to compile; the stamp keeps `make` from asking for every command.
$(VENV)/.warm: $(VENV)/.project $(KERNEL_SOURCES)
	$(BIN)/python -m llmserve_env.env.warmup
	@touch $@

$(VENV)/.train: requirements-train.txt $(VENV)/.project
	$(PIP_INSTALL_LOCKED) -r requirements-train.txt
	$(PIP) install $(TORCH)
	$(BIN)/python -m pip check
	@touch $@

##@ Run

HOST ?= 127.0.0.1
PORT ?= 7860

.PHONY: serve
serve: setup ## Serve the environment and its page at http://127.0.0.1:7860/web (HOST=, PORT= to change)
	$(BIN)/server --host $(HOST) --port $(PORT)

##@ Test

.PHONY: test
test: setup $(TEST_EXTRAS:%=setup-%) $(if $(BROWSER_TESTS),browser) $(if $(POSTGRES_TESTS),postgres) ## Run every test, including slow and browser tests
	$(PYTEST) -m '$(MARKERS)' --cov --cov-report=

.PHONY: test-llm
test-llm: setup setup-train ## The extra job: train a tiny language model with TRL, and the tests of onnxruntime, Minari and sb3-contrib
	$(PIP) install 'trl>=1.16' 'transformers>=5.2' datasets onnx onnxruntime 'minari[hdf5]' sb3-contrib
	$(BIN)/python -m pytest -n 0 -m '' tests/examples tests/agents/own tests/gym_envs tests/tools/test_minari_dataset.py

.PHONY: validate
validate: setup ## Start a server, then run OpenEnv's validator and the endpoint checks on it
	$(BIN)/python scripts/pre_submission_check.py --skip-tests --skip-docker

.PHONY: test-fast
test-fast: setup ## Run the fast tests, like a plain `pytest`
	$(PYTEST)

.PHONY: test-nojit
test-nojit: setup ## Run the engine's tests without compilation, so that coverage includes the kernels
	$(if $(NOJIT_TESTS),NUMBA_DISABLE_JIT=1 $(PYTEST) --cov --cov-append --cov-report= $(NOJIT_TESTS),@echo "no engine tests to run")

.PHONY: coverage
coverage: setup ## Print the coverage of the last `make test` and `make test-nojit`
	$(BIN)/python -m coverage report

.PHONY: browser
browser: ## Install Chromium for the browser tests
ifeq ($(CHROMIUM),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
	else \
		echo "The browser tests need Chromium, and installing it needs root and apt-get." >&2; \
		echo "Install it (Debian: apt-get install chromium) or run: make test MARKERS='not real and not browser'" >&2; \
		exit 1; \
	fi
endif

.PHONY: postgres
postgres: ## Install PostgreSQL for the tests of shared sessions; without it they are skipped
ifeq ($(POSTGRES),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends postgresql; \
	else \
		echo "PostgreSQL is not installed, and installing it needs root and apt-get: its tests are skipped." >&2; \
	fi
endif

# The live engine is installed in its own folder, separate from $(VENV).
REAL ?= .real

.PHONY: real-install
real-install: ## Install vLLM (CPU) and a small random model into .real: 3 GB, about five minutes
	PYTHON=$(PYTHON) tools/install_vllm.sh $(REAL)

.PHONY: real-test
real-test: setup real-install ## Start vLLM and run the tests that need a live engine
	LLMSERVE_REAL_PYTHON=$(abspath $(REAL))/venv/bin/python LLMSERVE_REAL_MODEL_DIR=$(abspath $(REAL))/model \
		LLMSERVE_REAL_ARTIFACTS=artifacts/real $(BIN)/python -m pytest -n 0 -m real tests/backends/real tests/pilot tests/planning/report

.PHONY: real-figures
real-figures: setup real-install ## Repeat the comparison with a live engine for docs/fidelity.md and the README
	$(BIN)/python -m benchmarks.live_server --engine $(REAL)
	$(BIN)/python -m tools.figures README.md docs/fidelity.md

##@ Quality

.PHONY: check
check: setup types ## Check lint, formatting, types and spelling, as CI does before the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

.PHONY: types
types: setup ## Check the types
	$(BIN)/mypy $(CODE)

.PHONY: format
format: setup ## Format the code and apply the linter's safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

##@ Measure and document

.PHONY: bench
bench: setup ## Measure the engine, the environment and the agreement with recorded vLLM runs
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.env
	$(BIN)/python -m benchmarks.fidelity

.PHONY: leaderboard
leaderboard: setup ## Verify every submission in leaderboard/ and write docs/leaderboard.md and docs/leaderboard.html
	$(BIN)/llmserve leaderboard

.PHONY: leaderboard-entries
leaderboard-entries: setup ## Submit the shipped agents again, after a change of tasks or weights, then render
	$(BIN)/python -m tools.submit_shipped
	$(BIN)/python -m tools.submit_shipped --suite extended default_knobs heuristic tuned ppo_generalist
	$(BIN)/llmserve leaderboard

.PHONY: docs
docs: setup ## Rewrite the generated tables in README.md and docs/
	$(BIN)/python -m tools.build_docs

.PHONY: notebook
notebook: setup setup-train ## Run the demo notebook from top to bottom and keep its outputs
	$(BIN)/python -m tools.run_notebook

.PHONY: figures
figures: setup ## Rerun every command whose output is shown in README.md and docs/ (half an hour)
	$(BIN)/llmserve benchmark --readme README.md
	$(BIN)/python -m tools.build_docs
	$(BIN)/python -m tools.record_opening
	$(BIN)/python -m tools.record_page
	$(BIN)/python -m tools.figures

# What belongs to the newest version of the core tasks: references, constants, policies, data files and tables.
CORE := $(shell ls llmserve_env/tasks/data/*_*-v*.yaml | sed -E 's|.*/||; s|-v([0-9]+)[.]yaml| \1|' | sort -k1,1 -k2,2n \
	| awk '{newest[$$1] = $$1 "-v" $$2} END {for (id in newest) print newest[id]}')

.PHONY: core
core: setup-train setup ## Freeze, tune and train the newest version of the core tasks, and rewrite what is made from it
	$(BIN)/llmserve task freeze $(CORE) adversarial_spike
	$(BIN)/llmserve tune --task static_workload,bursty_workload,adversarial_multitenant --method halving --trials 96
	$(BIN)/python train.py --task static_workload --steps 120000 --seed 0
	$(BIN)/python train.py --task bursty_workload --steps 360000 --seed 0
	$(BIN)/python train.py --task adversarial_multitenant --steps 360000 --seed 0
	$(BIN)/python train.py --task static_workload,bursty_workload,adversarial_multitenant --steps 720000 --seed 0 --generalist
	$(BIN)/python -m tools.make_data
	$(BIN)/python -m benchmarks.lost_requests
	$(BIN)/python -m tools.build_docs

##@ Maintain

UV_COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command 'make lock'
# Each lock file holds only what the previous ones lack.
names_in = $$(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package \1/p' $(1) | sort -u)
CUDA := torch|triton|nvidia-[a-z0-9-]*|cuda-[a-z0-9-]*

.PHONY: lock
lock: $(if $(UV_LOCK),uv-lock) | $(BIN)/python ## Resolve pyproject.toml into the pinned, hashed requirements*.txt (UV_LOCK=1: and uv.lock)
	$(PIP) install uv
	$(UV_COMPILE) --upgrade --generate-hashes -o requirements.txt
	$(UV_COMPILE) --upgrade --generate-hashes --extra dev -c requirements.txt -o requirements-dev.txt \
		$(call names_in,requirements.txt)
	$(UV_COMPILE) --extra train -c requirements.txt -c requirements-dev.txt -c <(echo '$(TORCH)') --no-header \
		| sed -En 's/^($(CUDA))==.*/--no-emit-package \1/p' > $(VENV)/cuda
	$(UV_COMPILE) --upgrade --generate-hashes --extra train -c requirements.txt -c requirements-dev.txt \
		-c <(echo '$(TORCH)') -o requirements-train.txt \
		$(call names_in,requirements.txt requirements-dev.txt) $$(cat $(VENV)/cuda)

# Only for people who use `uv sync`; the file names the registry it was resolved from, so it is not committed.
.PHONY: uv-lock
uv-lock: | $(BIN)/python ## Write uv.lock for `uv sync --frozen`; it is not committed
	$(PIP) install uv
	$(BIN)/uv lock --upgrade

.PHONY: clean
clean: ## Remove caches and build output, but not .venv
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* build dist
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
