# Everything a person does with a fresh clone. Needs python3 (3.11 or newer) with venv and pip, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A second training gets a folder of its own.
RUN ?= $(if $(wildcard runs/pendulum),runs/pendulum-$(shell date +%Y%m%d-%H%M%S),runs/pendulum)
PYTEST_WORKERS ?= 2
# Each worker begins with a part of its own, so that what the tests of a file share is mostly made once.
PYTEST := $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal
# Most of a fast test's time is compilation of programs that run once: a third less without optimisation,
# and half of the rest without MLIR's emitters of fused loops.
UNOPTIMISED := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false"

# On Linux the plain version is built for CUDA and brings gigabytes with it; elsewhere there is no other.
TORCH_VERSION ?= $(if $(filter Linux,$(shell uname)),2.13.0+cpu,2.13.0)

# Else the first training would wait for them.
COMPILE_KERNELS := $(BIN)/python -c 'from dressage.kernels import kernels; print("Kernels:", kernels().about)'

# Stamps lie inside the environment, so that deleting it forgets them too.
CREATED := $(VENV)/.created
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
TORCH := $(VENV)/.torch

.DEFAULT_GOAL := help
.PHONY: help train test test-all lint format docs docs-serve bench lock torch clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: $(CORE)  ## Train an agent to swing up a pendulum and show what it learned.
	$(BIN)/dressage train pendulum --run $(RUN)

test: lint  ## Lint, types, import contracts and the fast tests.
	$(UNOPTIMISED) $(PYTEST) -m "not slow"

test-all: lint  ## The same with the slow tests (learning, long runs).
	$(PYTEST)

lint: $(DEV)  ## Style, formatting, types and import contracts alone.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config pyproject.toml

format: $(DEV)  ## Sort imports and lay out the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV)  ## Build the documentation into site/; a broken link or reference fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(DEV)  ## Show the documentation on this machine while you write it.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: $(DEV)  ## Measure against peers and against the machine's floor.
	$(BIN)/python benchmarks/ppo_throughput.py

lock: ## Resolve requirements/ci.in anew into requirements/ci.txt, in an environment of its own.
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet torch==$(TORCH_VERSION)
	build/lock/bin/pip install --quiet --requirement requirements/ci.in
	build/lock/bin/pip freeze --exclude-editable --exclude tfp-nightly | sed 's/+cpu$$//' >build/lock.txt
	sed -n '/^#/p' requirements/ci.txt | cat - build/lock.txt >build/ci.txt
	mv build/ci.txt requirements/ci.txt

torch: $(TORCH)  ## Install torch without CUDA.

clean:  ## Remove caches and what was built; runs and the environment stay.
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find dressage tests docs benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dressage needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(CORE): pyproject.toml requirements/ci.txt $(CREATED)
	$(BIN)/pip install --quiet --constraint requirements/ci.txt --editable .
	@$(COMPILE_KERNELS)
	@touch $@

$(DEV): pyproject.toml requirements/ci.txt $(CREATED) $(TORCH)
	$(BIN)/pip install --quiet --requirement requirements/ci.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@$(COMPILE_KERNELS)
	@touch $@ $(CORE)

# Before anything that depends on torch, so that pip never fetches the build with CUDA for it.
$(TORCH): $(CREATED)
	@$(BIN)/pip install --quiet torch==$(TORCH_VERSION) || { echo "pip finds no torch without CUDA. Point it at \
	an index that has one (PIP_EXTRA_INDEX_URL), or take the build with CUDA: make TORCH_VERSION=2.13.0 ..."; exit 1; }
	@touch $@
