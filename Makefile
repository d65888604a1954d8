# make demo   set up, then fit the embedded example and draw its picture
# make test   set up, then run the tests
# make docs   build the documentation into build/site
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled programs are kept between runs of the tests (JAX's own cache).
TEST_ENV := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/jax-cache \
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.05 \
            MPLBACKEND=Agg

.PHONY: demo test test-slow bench peers lint types docs setup clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ncai needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	@touch $@

demo: setup
	$(BIN)/ncai demo --force

# A file of tests stays with one worker: what its tests share is then made once.
test: setup
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40

test-slow: setup
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 -rA -m slow

# Speed, beside peers where `make peers` has installed them.
bench: setup
	$(BIN)/ncai bench --full --force --out results/bench/speed.json

# Peers have an environment of their own: their pins need not agree with ours.
peers: $(VENV)-peers/.ready

$(VENV)-peers/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)-peers/bin/python -m pip install --quiet --group peers
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) demo
