# Everything here needs only make and Python 3.11 or newer; the rest is fetched into .venv and the cache of `ome local`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup cluster-tools quick test versions packages e2e lint format demo demo-down bench soak crds charts well-known lock checksums clean \
	release release-images release-outputs release-sign release-page release-check

# Containers and agents set it: each process would compile 1,500 modules anew, a second of a core, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

# Without optimizations, as pyenv builds it, Python takes half as long again for everything. A distribution's has them and does not say so.
FAST := import ensurepip, sysconfig; assert sys.base_prefix == "/usr" or "--enable-optimizations" in sysconfig.get_config_var("CONFIG_ARGS")
FOUND = $(shell for more in '$(FAST)' pass; do for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	if $$p -c "import sys; assert sys.version_info >= (3, 11); $$more" >/dev/null 2>&1; then echo $$p; exit; fi; done; done)
PYTHON ?= $(eval PYTHON := $(FOUND))$(PYTHON)
BIN := .venv/bin
READY := .venv/.ready
UV := uv==0.13.8
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# More words for the program behind a target: make test ARGS="-k rollout"
ARGS ?=
PROSE := README.md CONTRIBUTING.md CHANGELOG.md docs/*.md findings charts/*/README.md
# Of a release: its version, and the registry (with a path) that it is pushed to. PUSH= makes it for that registry and does not push.
VERSION ?=
REGISTRY ?=
PUSH ?= yes

help: ## Show what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(READY) ## Python environment in .venv, from requirements.lock

$(READY): requirements.lock requirements-uv.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; PYTHON=/path/to/python names one." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make virtual environments (on Debian: apt install python3-venv)." >&2; exit 1; }
	@echo "installing the locked Python packages into .venv"
	@$(PIP) --require-hashes -r requirements-uv.lock
	@# Seconds instead of two minutes. pip knows indexes and certificates of which uv may not have been told.
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| $(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

cluster-tools: setup ## etcd, Kubernetes, kwok and helm: fetched, or built once (minutes)
	@$(BIN)/ome local tools

quick: setup ## ruff, mypy, and the tests of core and of golden manifests: a minute, before each commit
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "make format writes it" >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 2 tests/unit/core tests/golden $(ARGS)

test: cluster-tools ## Every test, on a real control plane (ARGS for pytest)
	@$(BIN)/python -m pytest -n 5 $(ARGS)

soak: cluster-tools ## The same tests with the long counts (hours)
	@OME_SOAK=1 $(BIN)/python -m pytest -n 3 --timeout=0 $(ARGS)

versions: cluster-tools ## The same control-plane tests on other Kubernetes (by hand: each is built first, 10 minutes)
	@for v in 1.31 1.37; do OME_KUBERNETES=$$v $(BIN)/python -m pytest tests/controlplane $(ARGS); done
	@OME_VERSIONS=1 $(BIN)/python -m pytest tests/controlplane/versions $(ARGS)

packages: setup ## The unit tests with the oldest and the newest packages that pyproject.toml allows
	@for which in lowest-direct highest; do \
		to=build/packages/$$which; \
		$(BIN)/uv venv --quiet --clear --python $(BIN)/python $$to && \
		$(BIN)/uv pip install --quiet --python $$to/bin/python --resolution $$which -e '.[agent]' && \
		$(BIN)/uv pip install --quiet --python $$to/bin/python --group dev uv && \
		$$to/bin/python -m pytest tests/unit tests/docs tests/golden tests/property $(ARGS) || exit 1; \
	done

e2e: setup ## The node suite: real pods on this machine, then in Docker on kind (Linux and root)
	@OME_E2E=1 $(BIN)/python -m pytest tests/node tests/unit/cli/ui/test_browser.py $(ARGS)
	@OME_E2E=kind $(BIN)/python -m pytest tests/node/kind tests/node/serving $(ARGS)

lint: setup ## ruff, its format, mypy --strict, import-linter, codespell over the pages, actionlint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "make format writes it" >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell --dictionary - $(PROSE)
	@$(BIN)/python -m release lint

format: setup ## Write the code as ruff formats it
	@$(BIN)/ruff format --quiet .

demo: setup ## Kimi K2 on 16 simulated nodes of 8 H200 GPUs
	@$(BIN)/ome demo $(ARGS)

demo-down: setup ## End the demo and remove its files
	@$(BIN)/ome demo --down $(ARGS)

bench: cluster-tools ## Measure against a bare apply of the same objects
	@$(BIN)/python -m bench $(ARGS)

release: setup ## Make dist/ of this commit: VERSION=1.2.3; REGISTRY=… pushes it
	@$(BIN)/python -m release $(if $(and $(REGISTRY),$(PUSH)),push,dist) --version '$(VERSION)' --registry '$(REGISTRY)'

release-images: setup ## The images of a release, for this machine's platform (Linux and root)
	@$(BIN)/python -m release images

release-outputs: setup ## The digests of what dist/ holds, as outputs of a workflow's step
	@$(BIN)/python -m release outputs

release-sign: setup ## Sign what dist/ holds by digest, as whom cosign finds (keyless)
	@$(BIN)/python -m release digests | xargs -n 1 cosign sign --yes

release-page: ## The page of the release at GitHub, with all files of dist/
	@find dist -maxdepth 1 -type f ! -name release.json ! -name NOTES.md -print0 \
		| xargs -0 gh release create 'v$(VERSION)' --verify-tag --title '$(VERSION)' --notes-file dist/NOTES.md

release-check: cluster-tools ## A release into a registry on loopback, installed from there on a real node (Linux and root)
	@OME_E2E=1 $(BIN)/python -m pytest tests/node/test_release.py $(ARGS)

crds: setup ## Write crds/ from the Python models
	@$(BIN)/python -m ome_operator.api.crds

charts: setup ## Write the charts' README.md, descriptions and docs/options.md from values.yaml and the declared options
	@$(BIN)/python -m release.pages

well-known: setup ## Write the facts of well-known models from config/models
	@$(BIN)/python -m ome_operator.api.well_known

lock: ## Write requirements.lock and those of images/ again (ARGS=--upgrade for newer versions)
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

checksums: setup ## Ask the hosts for the SHA-256 of programs that have none in ome_local/binaries/checksums.txt
	@$(BIN)/python -m ome_local.binaries.checksums

clean: ## Remove .venv and what tools left; clusters and their cache stay
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
