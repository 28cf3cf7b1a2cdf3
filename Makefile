# Every target is self-contained: it makes the environment that it needs, from pinned versions, once.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: environments help demo ui test e2e lint docs screenshots bench compat lock clean

PYTHON ?= python3
PY := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
UV := .venv/bin/uv
READY := .venv/.ready
# Airflow of the compat cells, each with the Python it runs on here.
PYTHON_2_11 ?= $(if $(filter 3.11 3.12,$(PY)),$(PYTHON),python3.11)

# Airflow keeps its files where the tests say, never in the user's home.
export AIRFLOW_HOME := $(CURDIR)/.venv/airflow-home
export AIRFLOW__CORE__LOAD_EXAMPLES := False

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## the nightly job end to end, on a real Airflow: less than two minutes
	.venv/bin/python -m demo $(ARGS)

ui: $(READY) ## the nightly job in Airflow's user interface, until Ctrl-C
	.venv/bin/python -m demo.ui $(ARGS)

test: $(READY) .venv-idp/.ready .venv-stores/.ready .venv-stores/azurite/.ready ## all tests on Airflow 3.3, with the coverage of the core
	.venv/bin/coverage run -m pytest -m 'not stores and not distributed' --ignore tests/stores/test_servers.py $(ARGS)
	AIRFLOW_HOME=$(CURDIR)/.venv-stores/airflow-home .venv-stores/bin/python -m pytest -m stores tests/stores
	.venv/bin/coverage report --include='$(CORE)' --fail-under=100 --show-missing

e2e: $(READY) ## every example DAG and many faults on Airflow with Celery, PostgreSQL and Redis
	.venv/bin/python -m pytest -m distributed tests/e2e $(ARGS)

# What does no I/O is tested to its last branch.
comma := ,
CORE := $(subst $() ,$(comma),$(patsubst %,*/client/%.py,answers catalogue endpoints exchange models plans settings text tokens wire))

lint: $(READY) ## ruff, mypy strict, the layers
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: $(READY) ## the documentation as HTML, warnings are errors
	.venv/bin/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

screenshots: $(READY) ## pictures of DAGs for the documentation, in docs/images
	.venv/bin/python -m demo.screenshots

bench: $(READY) ## memory, throughput and import time, printed as ratios
	.venv/bin/python -m benchmarks $(ARGS)

compat: test .venv-2.11/.ready ## the unit tests on the other supported Airflow versions too
	AIRFLOW_HOME=$(CURDIR)/.venv-2.11/airflow-home .venv-2.11/bin/python -m pytest -m 'not identity_provider and not deployment and not distributed and not stores' \
	  $(patsubst %,--ignore tests/%,client contract emulator stores) $(ARGS) # what does not depend on Airflow

lock: $(READY) ## make the constraints files anew
	UV=$(UV) constraints/lock.sh

clean: ## remove everything that make made
	rm -rf .venv .venv-2.11 .venv-idp .venv-stores build dist .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

environments: $(READY) .venv-2.11/.ready .venv-idp/.ready .venv-stores/.ready .venv-stores/azurite/.ready

UV_VERSION := 0.13.7
export UV_LINK_MODE := copy

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "Python 3.11, 3.12 or 3.13 is needed, $(PYTHON) is $(PY): make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet uv==$(UV_VERSION)

$(READY): pyproject.toml constraints/airflow-3.3-py$(PY).txt | $(UV)
	$(UV) pip install --quiet --python .venv/bin/python --constraint constraints/airflow-3.3-py$(PY).txt \
	  --editable '.[amazon,emulator]' --group dev
	touch $@

.venv-2.11/.ready: pyproject.toml constraints/airflow-2.11-py3.11.txt | $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON_2_11) .venv-2.11
	$(UV) pip install --quiet --python .venv-2.11/bin/python --constraint constraints/airflow-2.11-py3.11.txt \
	  --editable '.[amazon,emulator]' --group test
	touch $@

.venv-idp/.ready: constraints/identity-provider.txt | $(UV)
	$(UV) venv --quiet --allow-existing --python .venv/bin/python .venv-idp
	$(UV) pip install --quiet --python .venv-idp/bin/python --requirement constraints/identity-provider.txt
	touch $@

# The Azure and Google providers bring some 2 GB, which no other test needs; Azurite is a Node.js program.
AZURITE_VERSION := 3.37.0

.venv-stores/.ready: pyproject.toml constraints/airflow-3.3-py$(PY).txt | $(UV)
	$(UV) venv --quiet --allow-existing --python .venv/bin/python .venv-stores
	$(UV) pip install --quiet --python .venv-stores/bin/python --constraint constraints/airflow-3.3-py$(PY).txt \
	  --editable '.[amazon,azure,google,openlineage,emulator]' --group test --group stores
	touch $@

.venv-stores/azurite/.ready: | .venv-stores/.ready
	@if command -v npm >/dev/null; then \
	  npm install --prefix $(@D) --no-audit --no-fund --loglevel=error azurite@$(AZURITE_VERSION) && touch $@; \
	else echo "There is no npm: the tests against Azurite are skipped."; fi
