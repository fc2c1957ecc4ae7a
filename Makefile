PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
PIP := $(RUN)python -m pip install --quiet --disable-pip-version-check --no-compile # what is used is compiled then
IN_PARALLEL := --numprocesses 2 --dist worksteal # each process computes with one thread: tests/shared_fixtures.py
COMPUTING := $(addprefix tests/,run guard retrieval encoder deployment training)

unexport PYTHONDONTWRITEBYTECODE # else each process compiles torch and transformers again: half a minute

.PHONY: help install quickstart test test-slow test-processors test-all check site wheel environments fuzz chaos bench bench-all audit format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## set up .venv with pinned versions of all that development needs

$(VENV)/.installed: $(VENV)/.runtime requirements-dev.lock reproduction/pyproject.toml
	$(PIP) --requirement requirements-dev.lock
	$(PIP) --no-deps --editable ./reproduction
	touch $@

$(VENV)/.runtime: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "OPERA needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing what OPERA needs to run into $(VENV), about a minute"
	$(PIP) --requirement requirements.lock
	$(PIP) --no-deps --editable .
	touch $@

quickstart: $(VENV)/.runtime ## teach a real model to search the Python standard library (about 10 minutes on two cores)
	$(RUN)opera quickstart --out quickstart --overwrite

test: install ## run the tests (about 4 minutes on 2 cores)
	$(RUN)python -m pytest $(IN_PARALLEL)

test-slow: install ## run the tests that are marked slow, and the fuzzers of tables longer
	$(RUN)python -m pytest $(IN_PARALLEL) -m slow
	$(RUN)python -m pytest $(IN_PARALLEL) tests/fuzz/test_tables.py --hypothesis-profile=longer

test-processors: install ## run the tests that compute as on three kinds of processor (10 minutes on 2 cores)
	for kind in amx avx512_bf16 avx2; do \
	  echo "as on a processor with $$kind"; \
	  OPERA_TEST_PROCESSOR=$$kind $(RUN)python -m pytest $(IN_PARALLEL) $(COMPUTING) || exit 1; \
	done

test-all: test test-slow test-processors ## run every test

site: install ## build the documentation site in site/, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(RUN)mkdocs build --quiet --strict

wheel: install ## build dist/opera_retrieval-VERSION-py3-none-any.whl
	$(RUN)uv build --quiet --wheel --out-dir dist

environments: install ## install the wheel into empty environments, newest and oldest versions, and test there (3 minutes)
	$(RUN)python tools/environments.py newest oldest bare

fuzz: install ## spoil 10,000 files of each kind that OPERA reads (hours); a failure prints how to repeat it
	$(RUN)python -m pytest tests/fuzz --hypothesis-profile=nightly --hypothesis-show-statistics --timeout=36000

chaos: install ## kill, stop and starve every command at random, and compare its end (25 minutes); fills docs/security.md
	OMP_NUM_THREADS=1 $(RUN)python tests/chaos/chaos.py

check: install ## lint and type-check
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

bench: install ## compare the speed with other libraries and with the goals (at most 15 minutes on two slow idle cores); fills docs/benchmarks.md
	$(RUN)python benchmarks

bench-all: install ## the same with more settings and rounds, and with FlagEmbedding (an hour)
	$(RUN)python benchmarks --all

audit: install ## known vulnerabilities of the pinned packages: by PyPI, or by OSV_DATABASE=all.zip without a network
	test -n "$$OSV_DATABASE" || { $(PYTHON) -m venv $(VENV)/audit && \
	  $(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1; }
	$(RUN)python tools/audit.py --pip-audit $(VENV)/audit/bin/pip-audit

format: install ## rewrite files in the house style
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
