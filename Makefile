# Everything stays inside .venv, so `.venv/bin/quoracy` is the command and `make clean` removes it all.

# The python3 on the path, unless it was built without optimisation, as pyenv does by default, and the system has one
# that was built with: with Debian's a server did about 1.3 times as many setData as with pyenv's (means of four runs).
FAST_PYTHON := import ensurepip, sys, sysconfig; sys.exit(sys.version_info < (3, 11) or not ( \
	sys.base_prefix == "/usr" or "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))))
ifndef PYTHON
PYTHON := $(shell for each in python3 /usr/bin/python3; do \
	$$each -c '$(FAST_PYTHON)' 2>/dev/null && echo $$each && exit; done; echo python3)
endif
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq

# Programs some tests compare with or look through (by name, or by where Debian has them), and the Debian
# packages that bring them.
TOOLS := etcd etcdctl strace curl h2load java javac gcc ip nft redis-server pg_ctlcluster \
	/usr/share/java/zookeeper.jar /usr/share/java/curator-recipes.jar \
	/usr/lib/zookeeper/bin/cli_mt /usr/include/zookeeper/zookeeper.h
TOOL_PACKAGES := etcd-server etcd-client strace curl nghttp2-client default-jdk-headless gcc libc6-dev python3-dev \
	zookeeper libcurator-recipes-java zookeeper-bin libzookeeper-mt-dev iproute2 nftables faketime redis-server postgresql

.DEFAULT_GOAL := help
.PHONY: help install run compile pure wheel test test-faults soak bench check fmt clean tools

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

install: $(VENV)/.dev  ## make .venv with Quoracy and everything its tests need

run: $(VENV)/.run  ## start a server; ARGS="--engine memory:" and the like are passed on
	@[ ! -e build/compiled/digest ] || [ -z "$$(find src -name '*.py' -newer build/compiled/digest)" ] \
		|| echo "Compiled modules may be older than their source: make compile, or make pure" >&2
	@exec $(BIN)/quoracy serve $(ARGS)

compile: $(VENV)/.dev tools  ## the hot modules as C extensions, next to their source, for speed
	@if ! command -v cc >/dev/null; then \
		echo "No C compiler: Quoracy runs from its source, more slowly."; \
	elif ! $(BIN)/python -c 'import pathlib, sysconfig, sys; \
			sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())'; then \
		echo "No Python.h (Debian: python3-dev): Quoracy runs from its source, more slowly."; \
	else \
		$(BIN)/python hatch_build.py; \
	fi

pure:  ## remove what was compiled
	@find src \( -name '*.so' -o -name '*.pyd' \) -delete
	@rm -rf build/compiled

wheel: compile  ## a wheel with the compiled modules, for this Python and this kind of machine, in dist/
	@HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/python -m pip --disable-pip-version-check wheel -q --no-deps \
		--no-build-isolation -w dist .

# Three processes for two processors: a third of the time tests wait, for a lease to end, say.  A file of
# tests stays in one process, so that what it starts is started once.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) * 3 // 2 or 1)')

# Everything with the modules compiled, as people get them; then what tests those modules, from source.
PURE_TESTS := tests/unit/embedded tests/unit/etcd_engine tests/unit/faces tests/unit/wire \
	tests/membership/swim tests/membership/simulator

# Tests and benchmarks start hundreds of processes.  Where Python is told to write no bytecode, each of them
# would compile the same source again: half of the time that a server takes to start.
BYTECODE := $(BIN)/python -m compileall -q -j 0 src tests bench

test: $(VENV)/.dev tools  ## checks, then every test; minutes
	@$(MAKE) --no-print-directory -j 2 check compile
	@$(BYTECODE)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)
	@if [ -z "$(ARGS)" ] && [ -e build/compiled/digest ]; then \
		QUORACY_PURE=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(PURE_TESTS); \
	fi

test-faults: $(VENV)/.dev tools  ## kill -9, full disks, stopped processes: hundreds of rounds
	@QUORACY_FAULTS=long $(BIN)/python -m pytest -m faults --timeout 3600 $(ARGS)

soak: $(VENV)/.dev tools  ## the property tests and soaks, at length
	@QUORACY_SOAK=1 $(BIN)/python -m pytest --timeout 7200 tests/properties tests/differential tests/recipes \
		tests/fencing tests/membership $(ARGS)

bench: $(VENV)/.bench tools compile  ## measure, side by side with the raw disk, etcd and ZooKeeper; writes a table and plots
	@$(BYTECODE)
	@$(BIN)/python -m bench $(ARGS)

check: $(VENV)/.dev  ## ruff and mypy --strict
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "make fmt puts the layout right" >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary

fmt: $(VENV)/.dev  ## put the layout right
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format --quiet

clean:  ## remove .venv, caches and everything built
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
	@find src \( -name '*.so' -o -name '*.pyd' \) -delete

# -- the virtual environment: one stamp for each set of packages, renewed when pyproject.toml changes

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "Quoracy needs Python 3.11 or newer and finds no $(PYTHON); name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Quoracy needs Python 3.11 or newer; $$($(PYTHON) --version) is too old. Name another with PYTHON=..." >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make virtual environments; on Debian, apt-get install python3-venv brings that." >&2; \
		exit 1; }

$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "Installing Quoracy into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "Installing Quoracy and its development tools into $(VENV)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@echo "Installing Quoracy and what its benchmarks need into $(VENV)"
	@$(PIP) -e '.[dev,bench]'
	@touch $@ $(VENV)/.dev $(VENV)/.run

# -- programs from outside: installed where we may, named where we may not

tools:
	@missing() { for tool in $(TOOLS); do \
		[ -f $$tool ] || command -v $$tool >/dev/null || printf ' %s' $$tool; done; }; \
	if [ -n "$$(missing)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing$$(missing)"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq >/dev/null; \
		apt-get install -y -qq --no-install-recommends $(TOOL_PACKAGES) >/dev/null \
			|| for package in $(TOOL_PACKAGES); do \
				apt-get install -y -qq --no-install-recommends $$package >/dev/null; done; \
	fi; \
	if [ -n "$$(missing)" ]; then \
		echo "Missing:$$(missing). Tests that need them are skipped; on Debian: apt-get install $(TOOL_PACKAGES)"; \
	fi
