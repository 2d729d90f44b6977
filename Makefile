# make demo: sets everything up, explains the shipped photos.  make test: sets everything up, runs the gate.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

.PHONY: demo test check chromium format clean

demo: $(INSTALLED)
	$(BIN)/patchlight demo

test: check chromium
	$(BIN)/pytest -n $(JOBS) --dist worksteal

# the tests of the viewer drive Debian's Chromium; without it they are skipped and say so
chromium:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v chromium >/dev/null; then \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null || true; fi

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --warnings

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# the package alone, for the first picture: the tools of the tests are as much again
$(INSTALLED): pyproject.toml
	@echo "setting up $(VENV): torch and its libraries take some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(READY): pyproject.toml
	@echo "setting up $(VENV) with everything that the tests need: some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $(INSTALLED) $@

clean:
	rm -rf $(VENV) demo build dist
