# All set-up and the two main commands. Every target may be repeated: what is
# done is skipped.

SHELL := /bin/bash
PYTHON ?= python3
# What pytest gets, e.g. `make test PYTEST_ARGS='-k loop'`. Two workers,
# because more only compete for the cores that XLA uses anyway.
PYTEST_ARGS ?= -n 2 --dist worksteal
# The folder of the quickstart's worlds, checkpoints and report.
RUN ?= runs/quickstart
DEMO ?= runs/demo

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
  --constraint requirements.lock
DEPENDENCIES := setup.cfg pyproject.toml requirements.lock
EGL_PACKAGES := libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri
# Succeeds when a picture can be drawn without a screen.
EGL_CHECK := $(BIN)/python -c 'import moderngl; \
  moderngl.create_context(standalone=True, backend="egl")'

# Succeeds when there is a browser for the tests, by any of its names.
BROWSER_CHECK := command -v chromium chromium-browser google-chrome >/dev/null

# $(1): Debian packages. Installs them where that is allowed, else says what
# to run and stops.
define apt_install
if ! command -v apt-get >/dev/null; then \
  echo "error: this system lacks $(1) and has no apt-get: install their" \
    "counterparts, then run make again" >&2; exit 1; fi; \
if [ "$$(id -u)" = 0 ]; then sudo=(); \
elif sudo -n true 2>/dev/null; then sudo=(sudo -n); \
else echo "error: this system lacks $(1) and make may not install them:" \
    "run 'sudo apt-get install -y $(1)', then make again" >&2; exit 1; fi; \
echo "installing the system packages $(1)"; \
"$${sudo[@]}" apt-get update -qq; \
DEBIAN_FRONTEND=noninteractive "$${sudo[@]}" apt-get install -y -qq \
  --no-install-recommends $(1) >/dev/null || { \
  echo "error: apt-get could not install $(1): see above" >&2; exit 1; }
endef

.PHONY: help setup setup-test setup-dev quickstart demo assets test check clean

help:  ## Shows this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	  | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.egl  ## Makes .venv with the package and the EGL libraries.

setup-test: setup $(VENV)/.test $(VENV)/.browser

setup-dev: setup $(VENV)/.dev  ## Adds the tools that .ci/run uses.

quickstart: setup  ## Builds worlds, trains, evaluates: the main job.
	@PATH="$(CURDIR)/$(BIN):$$PATH" launch/quickstart.sh $(RUN)

demo: setup  ## Answers one query with the router in the package.
	@$(BIN)/vhop worlds build --out=$(DEMO)/world --families=12 --seed=404
	@$(BIN)/vhop route $(DEMO)/world --out=$(DEMO)/route.png

assets: $(VENV)/.assets  ## Fetches models by artists (120 MB, no root).
	@$(BIN)/python -m vhop_jax.worlds.assets.fetch

test: setup-test  ## Runs the tests.
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check:  ## Runs all that .ci/run checks: format, lint, types, tests.
	@.ci/run

clean:  ## Removes .venv and caches; keeps runs/, worlds/, assets/.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache \
	  .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is missing or older than Python 3.11:" \
	    "run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  version=$$($(PYTHON) -c \
	    'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  $(call apt_install,python$$version-venv); }
	@echo 'making $(VENV)'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python $(DEPENDENCIES)
	@echo 'installing Python packages (about 1 GB, some minutes)'
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.egl: $(VENV)/.core
	@$(EGL_CHECK) 2>/dev/null || { $(call apt_install,$(EGL_PACKAGES)); }
	@$(EGL_CHECK) || { echo "error: EGL is installed but cannot draw:" \
	  "see above" >&2; exit 1; }
	@touch $@

$(VENV)/.assets: $(VENV)/.core
	@$(INSTALL) --editable '.[assets]'
	@touch $@

$(VENV)/.test: $(VENV)/.core
	@echo 'installing the test packages (with PyTorch, the test oracle)'
	@$(INSTALL) --editable '.[assets,test,parity]'
	@touch $@

$(VENV)/.browser: $(VENV)/.core
	@$(BROWSER_CHECK) || { $(call apt_install,chromium); }
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo 'installing the development tools'
	@$(INSTALL) --editable '.[dev]'
	@touch $@
