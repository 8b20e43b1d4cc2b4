# Everything runs in .venv, made by the first target that needs it. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: help demo test test-slow test-browser test-ray lint format sims clean

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Four stamps: the package; what the tests need; PyBullet; all simulators. Each is made again when its facts change.
$(VENV)/.package: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[fast]"
	touch $@

$(VENV)/.dev: $(VENV)/.package
	$(PIP) -e ".[dev]"
	touch $@

$(VENV)/.bullet: $(VENV)/.package tracrl/envs/simulators.py
	$(BIN)/tracrl sims install bullet
	touch $@

$(VENV)/.sims: $(VENV)/.package tracrl/envs/simulators.py
	$(BIN)/tracrl sims install all
	touch $(VENV)/.bullet $@

# One stack after another, each on all cores: TraC's is by far the longest.
demo: $(VENV)/.bullet  ## three methods on one data set at three cost limits, played in PyBullet: a table and a picture
	$(BIN)/tracrl study main --tasks CarRun --methods bc-all bc-safe trac --preset fast --seeds 0 \
		--set trac.updates=2500 --evaluations 1 --workers 1 --out demo
	$(BIN)/tracrl report demo --data CarRun --quiet

test: lint $(VENV)/.sims  ## run the tests (with ruff and mypy first)
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.dev $(VENV)/.sims  ## every task in every way; takes some minutes
	$(BIN)/python -m pytest -n 2 -m slow

test-browser: $(VENV)/.dev  ## the report page in a real Chromium (Debian: apt-get install chromium chromium-driver)
	$(BIN)/python -m pytest -m browser

test-ray: $(VENV)/.dev $(VENV)/.bullet  ## a study on a real Ray of two nodes, one of which is killed
	$(PIP) -e ".[ray]"
	$(BIN)/python -m pytest -m ray

lint: $(VENV)/.dev  ## ruff, mypy, and the contract between the rooms of the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > $(VENV)/imports.txt || { cat $(VENV)/imports.txt; exit 1; }
	$(BIN)/python tools/draw_rooms.py --check

format: $(VENV)/.dev  ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sims: $(VENV)/.sims  ## install the three simulators
	@$(BIN)/tracrl sims

clean:  ## remove the virtual environment and caches (runs/ stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
