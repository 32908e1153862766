# All targets need only make and Python 3.11 or newer. Everything else is downloaded into .venv and the cache of `ome local`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup cluster-tools quick test versions packages e2e lint format demo demo-down bench soak crds charts well-known lock checksums clean \
	release release-images release-outputs release-sign release-page release-check

# Containers and coding agents set this variable. Each process would then compile 1,500 modules again, which takes a second of a
# core, and the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

# A Python without optimizations, as pyenv builds it, takes 50 % longer for everything. The Python of a distribution (prefix /usr) is
# built with optimizations, but its CONFIG_ARGS do not show them.
FAST := import ensurepip, sysconfig; assert sys.base_prefix == "/usr" or "--enable-optimizations" in sysconfig.get_config_var("CONFIG_ARGS")
FOUND = $(shell for more in '$(FAST)' pass; do for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	if $$p -c "import sys; assert sys.version_info >= (3, 11); $$more" >/dev/null 2>&1; then echo $$p; exit; fi; done; done)
PYTHON ?= $(eval PYTHON := $(FOUND))$(PYTHON)
BIN := .venv/bin
READY := .venv/.ready
UV := uv==0.13.8
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# More arguments for the program that a target runs: make test ARGS="-k rollout"
ARGS ?=
PROSE := README.md CONTRIBUTING.md CHANGELOG.md docs/*.md findings charts/*/README.md
# For a release: its version, and the registry (with a path) to push to. With an empty PUSH= the release is built for that registry
# and not pushed.
VERSION ?=
REGISTRY ?=
PUSH ?= yes

help: ## Show this list of targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(READY) ## Create the Python environment in .venv from requirements.lock

$(READY): requirements.lock requirements-uv.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is required. Install it, or set PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot create virtual environments. On Debian, run apt install python3-venv." >&2; exit 1; }
	@echo "Installing the locked Python packages into .venv"
	@$(PIP) --require-hashes -r requirements-uv.lock
	@# uv takes seconds instead of two minutes. pip is the fallback, because only pip may be configured with the index and certificates.
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| $(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

cluster-tools: setup ## Download etcd, Kubernetes, kwok and helm, or build them once (minutes)
	@$(BIN)/ome local tools

quick: setup ## Run ruff, mypy, and the tests of the core and of golden manifests: a minute, before each commit
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run make format to format the code." >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 2 tests/unit/core tests/golden $(ARGS)

test: cluster-tools ## Run all tests, on a real control plane (ARGS are passed to pytest)
	@$(BIN)/python -m pytest -n 8 $(ARGS)

soak: cluster-tools ## Run the same tests with many more repetitions (hours)
	@OME_SOAK=1 $(BIN)/python -m pytest -n 3 --timeout=0 $(ARGS)

versions: cluster-tools ## Run the control-plane tests on other versions of Kubernetes (not in CI: each version is built first, 10 minutes)
	@for v in 1.31 1.37; do OME_KUBERNETES=$$v $(BIN)/python -m pytest tests/controlplane $(ARGS); done
	@OME_VERSIONS=1 $(BIN)/python -m pytest tests/controlplane/versions $(ARGS)

packages: setup ## Run the unit tests with the oldest and the newest packages that pyproject.toml allows
	@for which in lowest-direct highest; do \
		to=build/packages/$$which; \
		$(BIN)/uv venv --quiet --clear --python $(BIN)/python $$to && \
		$(BIN)/uv pip install --quiet --python $$to/bin/python --resolution $$which -e '.[agent]' && \
		$(BIN)/uv pip install --quiet --python $$to/bin/python --group dev uv && \
		$$to/bin/python -m pytest tests/unit tests/docs tests/golden tests/property $(ARGS) || exit 1; \
	done

e2e: setup ## Run the node tests: real pods on this machine, then in Docker on kind (Linux and root), and tests with other software
	@OME_E2E=1 $(BIN)/python -m pytest tests/node tests/controlplane/kueue tests/controlplane/keda tests/unit/cli/ui/test_browser.py tests/works_with \
		tests/controlplane/operator/test_helm_wait.py $(ARGS)
	@OME_E2E=kind $(BIN)/python -m pytest tests/node/kind tests/node/serving $(ARGS)

lint: setup ## Run ruff, its format check, mypy --strict, import-linter, typos over the pages, actionlint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run make format to format the code." >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/typos --format brief $(PROSE)
	@$(BIN)/python -m release lint

format: setup ## Format the code with ruff
	@$(BIN)/ruff format --quiet .

demo: setup ## Start the demo: Kimi K2 on 16 simulated nodes with 8 H200 GPUs each
	@$(BIN)/ome demo $(ARGS)

demo-down: setup ## Stop the demo and remove its files
	@$(BIN)/ome demo --down $(ARGS)

bench: cluster-tools ## Run the benchmarks, compared with a plain apply of the same objects
	@$(BIN)/python -m bench $(ARGS)

release: setup ## Build dist/ from this commit: VERSION=1.2.3; with REGISTRY=… push it, too
	@$(BIN)/python -m release $(if $(and $(REGISTRY),$(PUSH)),push,dist) --version '$(VERSION)' --registry '$(REGISTRY)'

release-images: setup ## Build the images of a release for this machine's platform (Linux and root)
	@$(BIN)/python -m release images

release-outputs: setup ## Print the digests of the artifacts in dist/ as outputs of a workflow step
	@$(BIN)/python -m release outputs

release-sign: setup ## Sign the artifacts in dist/ by digest, with the identity that cosign detects (keyless)
	@$(BIN)/python -m release digests | xargs -n 1 cosign sign --yes

release-page: ## Create the GitHub release with all files of dist/
	@find dist -maxdepth 1 -type f ! -name release.json ! -name NOTES.md -print0 \
		| xargs -0 gh release create 'v$(VERSION)' --verify-tag --title '$(VERSION)' --notes-file dist/NOTES.md

release-check: cluster-tools ## Push a release to a registry on loopback and install it from there on a real node (Linux and root)
	@OME_E2E=1 $(BIN)/python -m pytest tests/node/test_release.py $(ARGS)

crds: setup ## Generate crds/ from the Python models
	@$(BIN)/python -m ome_operator.api.crds

charts: setup ## Generate the charts' README.md and descriptions and docs/options.md from values.yaml and the declared options
	@$(BIN)/python -m release.pages

well-known: setup ## Generate the facts of well-known models from config/models
	@$(BIN)/python -m ome_operator.api.well_known

lock: ## Update requirements.lock and the requirements of images/ (ARGS=--upgrade for newer versions)
	@folder=$$(mktemp -d); trap "rm -rf $$folder" EXIT; \
	$(PYTHON) -m venv $$folder; \
	$$folder/bin/pip install --quiet --disable-pip-version-check $(UV); \
	echo "$(UV)" | $$folder/bin/uv pip compile - --universal --generate-hashes --no-header --quiet -o requirements-uv.lock; \
	$$folder/bin/uv pip compile pyproject.toml --extra agent --group dev --universal --python-version 3.11 --generate-hashes \
		--no-header --quiet $(ARGS) -o requirements.lock; \
	image="$$folder/bin/uv pip compile --python-version 3.11 --python-platform x86_64-manylinux_2_36 --only-binary :all: \
		--generate-hashes --no-header --no-annotate --quiet"; \
	$$image pyproject.toml -c requirements.lock -o images/operator/requirements.txt; \
	$$image pyproject.toml --extra agent -c requirements.lock -o images/agent/requirements.txt; \
	$$image images/router/requirements.in $(ARGS) -o images/router/requirements.txt; \
	$$image images/engine-cpu/requirements.in --no-deps -o images/engine-cpu/requirements.txt

checksums: setup ## Download the SHA-256 of programs that have none in ome_local/binaries/checksums.txt
	@$(BIN)/python -m ome_local.binaries.checksums

clean: ## Remove .venv, build outputs and caches of tools, but not clusters and their cache
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
