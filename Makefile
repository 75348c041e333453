# `make demo` and `make test` each set up their own .venv and install what they need.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/demo
	$(BIN)/tapr demo

test: .venv/dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/python -m pytest

# the markers are made only when the installation has succeeded
.venv/demo: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

# the CPU build of torch first: plain `torch` can pull several GB of CUDA packages
.venv/dev: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build src/*.egg-info
