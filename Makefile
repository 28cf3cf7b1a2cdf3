# Every target is self-contained: it makes the environment that it needs, from pinned versions, once.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: bench bench-compare clean compat coverage demo dist dist-test docs e2e environments help lint lock mutants sbom screenshots test test-all \
  test-commands test-deployment test-servers ui

PYTHON ?= python3
PY := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
UV := .venv/bin/uv
READY := .venv/.ready

# The versions that the provider is tested on besides Airflow 3.3 on the Python that runs this, each pinned by the constraints file of
# that name; `lowest` is the oldest Airflow with the lowest versions of all that we depend on.
CELLS := airflow-2.11-py3.11 airflow-3.1-py3.12 airflow-3.3-py3.13 airflow-3.4-py3.13 lowest-py3.11

# Airflow keeps its files where the tests say, never in the user's home.
export AIRFLOW_HOME := $(CURDIR)/.venv/airflow-home
export AIRFLOW__CORE__LOAD_EXAMPLES := False
# Tests start Airflow again and again: not from its source each time.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## two nights of ingestion and assessment on a real Airflow: one minute
	.venv/bin/python -m demo $(ARGS)

ui: $(READY) ## every example DAG in the Airflow UI, against the emulator, until Ctrl-C
	.venv/bin/python -m demo.ui $(ARGS)

# Everything that decides behavior, on all cores. Many tests wait for sockets and processes, hence more workers than cores.
WORKERS ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
PYTEST := .venv/bin/python -m pytest
PARALLEL := -q --numprocesses=$(WORKERS) --dist=worksteal
without = not $(subst $() , and not ,$(strip $(1)))
ELSEWHERE := browser command deployment distributed identity_provider release stores

test: $(READY) ## the tests, in parallel: ten minutes at most, with the environment; ARGS='-k token -x' is passed to pytest
	$(PYTEST) $(PARALLEL) -m '$(call without,$(ELSEWHERE))' $(ARGS)
	@echo "Left out: Airflow's commands, the demo, servers, browsers and deployments (make test-all), Celery (make e2e), other versions (make compat)"

test-all: test test-commands test-servers test-deployment coverage ## also commands, storage and identity servers, a whole Airflow, a browser

test-commands: $(READY)
	$(PYTEST) $(PARALLEL) -m command

test-servers: $(READY) .venv-idp/.ready .venv-stores/.ready .venv-stores/azurite/.ready
	$(PYTEST) $(PARALLEL) -m '(identity_provider or browser) and $(call without,deployment distributed)'
	AIRFLOW_HOME=$(CURDIR)/.venv-stores/airflow-home .venv-stores/bin/python -m pytest $(PARALLEL) -m stores tests/stores

test-deployment: $(READY)
	$(PYTEST) -m deployment

e2e: $(READY) ## every example DAG and many faults on Airflow with Celery, PostgreSQL and Redis
	.venv/bin/python -m pytest -m distributed tests/e2e $(ARGS)

# What does no I/O is tested to its last branch.
comma := ,
CORE := $(subst $() ,$(comma),$(patsubst %,*/airflow_provider/%.py,$(addprefix client/,tokens batches endpoints exchange http/bodies http/wire models responses settings) waiting/frameworks/catalog redaction/addresses redaction/text))

coverage: $(READY) ## every branch of the modules without I/O
	.venv/bin/coverage run --include='$(CORE)' -m pytest -q -m '$(call without,$(ELSEWHERE))' tests/client tests/contract \
	  tests/frameworks/test_catalog.py
	.venv/bin/coverage report --include='$(CORE)' --fail-under=100 --show-missing

lint: $(READY) ## ruff, mypy strict, the layers
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: $(READY) ## the documentation as HTML, warnings are errors
	.venv/bin/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

screenshots: $(READY) ## pictures for the documentation, in docs/images
	.venv/bin/python -m demo.screenshots

bench: $(READY) ## memory, throughput and import time, printed as ratios
	.venv/bin/python -m benchmarks $(ARGS)

bench-compare: $(READY) ## two commits and bare scripts, alternating: make bench-compare BASE=<commit> ARGS='--only ingest'
	.venv/bin/python -m benchmarks.compare $(BASE) $(ARGS)

mutants: $(READY) ## mistakes put into the code, to see whether tests notice them; ARGS=client/exchange for one module
	.venv/bin/python -m mutants $(ARGS)

# The Python of a cell: by its name, or where pyenv keeps it; nothing where there is none.
version_of = $(lastword $(subst -py, ,$(1)))
python_of = $(shell for python in python$(version_of) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(version_of).*/bin/python; do \
  "$$python" -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)

ifneq ($(filter compat environments,$(MAKECMDGOALS)),)
HERE := $(foreach cell,$(CELLS),$(if $(call python_of,$(cell)),$(cell)))
ABSENT := $(filter-out $(HERE),$(CELLS))
ifneq ($(and $(CI),$(ABSENT)),)
$(error There is no Python for $(ABSENT), and CI leaves nothing out)
endif
endif

compat: $(addprefix cell-,$(HERE)) ## what knows Airflow, on other versions of Airflow and Python; CELLS=airflow-3.1-py3.12 for one
	@cat $(HERE:%=build/cells/%.txt)
	@for cell in $(ABSENT); do echo "$$cell: SKIPPED, there is no python$${cell##*-py}"; done

# Every version runs what depends on Airflow; the oldest also what it brings along, such as fsspec, and a whole night; the lowest
# versions what our dependencies are used for.
ON_AIRFLOW := operators policies nights/review sensors transfers triggers $(patsubst %,nights/assess/test_%.py,agreement golden inputs operator reviewed_nights) \
  $(patsubst %,nights/evidence/test_%.py,dag on_closed operator) $(patsubst %,frameworks/test_%.py,older_airflow operators watching watching_faults) \
  $(patsubst %,hooks/test_%.py,compliance_hook configuration connection forking) nights/ingest/test_operator.py \
  runtime/test_params.py $(patsubst %,test_%.py,imports private_apis provider_info)
ON_EACH_AIRFLOW := airflow-2.11-py3.11 airflow-3.1-py3.12 airflow-3.4-py3.13 # 3.3: make test-commands
ON_OLDEST := storage stores $(patsubst %,nights/ingest/test_%.py,kills resuming sources) test_demo.py
ON_LOWEST := storage stores contract $(patsubst %,client/test_%.py,both_clients content encodings limits network uploads) \
  $(patsubst %,emulator/test_%.py,extraction samples service) emulator/service/test_tokens.py
tests_in = $(addprefix tests/,$(ON_AIRFLOW) $(if $(filter $(ON_EACH_AIRFLOW),$(1)),test_night_runs.py) $(if $(filter airflow-2.%,$(1)),$(ON_OLDEST)) $(if $(filter lowest-%,$(1)),$(ON_LOWEST)))

cell-%: .venv-cells/%/.ready
	@mkdir -p build/cells
	AIRFLOW_HOME=$(CURDIR)/.venv-cells/$*/airflow-home .venv-cells/$*/bin/python -m pytest $(PARALLEL) $(call tests_in,$*) \
	  -m '$(call without,$(filter-out command,$(ELSEWHERE)) once)' $(ARGS) | tee build/cells/$*.log
	@echo "$*: $$(tail -n 1 build/cells/$*.log | tr -d '=')" >build/cells/$*.txt
.PRECIOUS: .venv-cells/%/.ready

# The same sources give the same files, to the byte: their date is that of the commit, or one for all without git.
dist dist-test sbom: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),1580601600)

dist: .venv-release/.ready ## the sdist and the wheel made of it, in dist/
	rm -rf dist
	.venv-release/bin/python -m build --no-isolation
	.venv-release/bin/python -m twine check --strict dist/*

dist-test: $(READY) dist ## look into them, install the wheel elsewhere, run the demo there
	.venv/bin/python -m pytest -m release tests/release $(ARGS)

sbom: .venv-release/.ready .venv-stores/.ready ## what we depend on with all extras, as CycloneDX; fails on a license not allowed
	.venv-release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --no-validate .venv-stores/bin/python | .venv-stores/bin/python -m release.sbom build/sbom.json

lock: $(READY) ## make the constraints files again
	UV=$(UV) constraints/lock.sh

clean: ## remove everything that make made
	rm -rf .venv .venv-cells .venv-idp .venv-release .venv-stores build dist .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

environments: $(READY) .venv-idp/.ready .venv-stores/.ready .venv-stores/azurite/.ready .venv-release/.ready \
  $(HERE:%=.venv-cells/%/.ready) # what CI needs

UV_VERSION := 0.13.7

$(UV):
	@test -e constraints/airflow-3.3-py$(PY).txt \
	  || { echo "Python 3.11, 3.12, 3.13 or 3.14 is needed, $(PYTHON) is $(PY): make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet uv==$(UV_VERSION)

$(READY): pyproject.toml constraints/airflow-3.3-py$(PY).txt | $(UV)
	$(UV) pip install --quiet --python .venv/bin/python --constraint constraints/airflow-3.3-py$(PY).txt \
	  --editable '.[amazon,emulator,parquet]' --group dev
	touch $@

.venv-cells/%/.ready: pyproject.toml constraints/%.txt | $(UV)
	$(UV) venv --quiet --allow-existing --python '$(call python_of,$*)' .venv-cells/$*
	$(UV) pip install --quiet --python .venv-cells/$*/bin/python --constraint constraints/$*.txt \
	  --editable '.[amazon,emulator]' --group test
	touch $@

.venv-idp/.ready: constraints/identity-provider.txt | $(UV)
	$(UV) venv --quiet --allow-existing --python .venv/bin/python .venv-idp
	$(UV) pip install --quiet --python .venv-idp/bin/python --requirement constraints/identity-provider.txt
	touch $@

.venv-release/.ready: pyproject.toml constraints/release.txt | $(UV)
	$(UV) venv --quiet --allow-existing --python .venv/bin/python .venv-release
	$(UV) pip install --quiet --python .venv-release/bin/python --constraint constraints/release.txt --group release
	touch $@

# The Azure and Google providers bring some 2 GB, which no other test needs; Azurite is a Node.js program.
AZURITE_VERSION := 3.37.0

.venv-stores/.ready: pyproject.toml constraints/airflow-3.3-py$(PY).txt | $(UV)
	$(UV) venv --quiet --allow-existing --python .venv/bin/python .venv-stores
	$(UV) pip install --quiet --python .venv-stores/bin/python --constraint constraints/airflow-3.3-py$(PY).txt \
	  --editable '.[amazon,azure,google,openlineage,emulator,parquet]' --group test --group stores
	touch $@

.venv-stores/azurite/.ready: | .venv-stores/.ready
	@if command -v npm >/dev/null; then \
	  npm install --prefix $(@D) --no-audit --no-fund --loglevel=error azurite@$(AZURITE_VERSION) && touch $@; \
	else echo "There is no npm: the tests against Azurite are skipped."; fi
