# Every target sets itself up in .venv. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

SOURCES := $(wildcard csrc/cpu/*.cpp csrc/cpu/*.h csrc/python/*.cpp)

.DEFAULT_GOAL := help
.PHONY: help run test test-quick check lint bench bench-kernels plots gpu build clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMPS)/venv:
	@$(PYTHON) tools/preflight.py $(PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The core: no torch. Enough for `make run`.
$(STAMPS)/core: $(STAMPS)/venv constraints.txt pyproject.toml
	@tools/pip_install.sh $(BIN)/python -c constraints.txt setuptools pybind11 wheel
	@FLASHPERF_LEVELS=native tools/pip_install.sh $(BIN)/python -c constraints.txt --no-build-isolation -e .
	@touch $@ && touch $(STAMPS)/build

# Kernels for this CPU, again when a source changed; objects that did not change are kept.
$(STAMPS)/build: $(STAMPS)/core setup.py $(SOURCES)
	@FLASHPERF_LEVELS=native $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# Everything that tests need: torch, triton and the kernels of every instruction-set level.
$(STAMPS)/test: $(STAMPS)/core constraints.txt setup.py $(SOURCES)
	@tools/pip_install.sh $(BIN)/python -c constraints.txt --no-build-isolation -e '.[test]'
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@ $(STAMPS)/build

build: $(STAMPS)/build  ## build the CPU kernels

run: $(STAMPS)/build  ## measure Standard against Flash and say why
	@$(BIN)/flashperf explain

test: $(STAMPS)/test  ## all tests
	@$(BIN)/python -m pytest -q

test-quick: $(STAMPS)/test  ## tests that take less than ten seconds each
	@$(BIN)/python -m pytest -q -m "not slow"

lint: $(STAMPS)/test  ## ruff, clang-format, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@git ls-files 'csrc/*.cpp' 'csrc/*.h' 'csrc/*.cu' 'csrc/*.cuh' 'tests/*.cu' | xargs $(BIN)/clang-format --dry-run -Werror
	@$(BIN)/mypy

check: lint test  ## lint, types and tests

bench: $(STAMPS)/test  ## isolated benches of all mechanisms, and the end-to-end one
	@$(BIN)/python -m pytest bench/ --benchmark-autosave

bench-kernels: $(STAMPS)/test  ## our CPU kernels beside torch and likwid, as ratios
	@$(BIN)/python bench/kernels_vs_torch.py
	@$(BIN)/python bench/rowwise_vs_torch.py

# With the Python that is here and its packages: GPU machines come with torch and CuPy of their own. PYTHON=... chooses.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(firstword $(wildcard $(BIN)/python) $(PYTHON)),$(PYTHON))

gpu:  ## on a GPU: build, check, compare, bench, explain in 8 minutes; without one the same list emulated
	@$(GPU_PYTHON) tools/gpu_run.py

plots: $(STAMPS)/build  ## all pictures of the docs, from committed records
	@$(BIN)/python -m flashperf.plots

clean:  ## remove what was built, but not .venv
	rm -rf build flashperf/_cpu flashperf/_native*.so
