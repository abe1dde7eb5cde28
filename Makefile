# Two commands: `make demo` and `make test`. Each makes .venv and installs all it needs.
PYTHON ?= python3
PY := .venv/bin/python
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Tests that run on JAX, too.
ON_JAX := gating layers biased blocks trace rewire optimizers device_images training lstm_recurrence char_lm_oracle guided

.PHONY: demo test test-jax lint benchmark tables clean

demo: .venv/.demo
	$(PY) -m keras_highway classify samples/*
	$(PY) -m keras_highway gates samples/digit_7.png --out demo_gates.png

test: .venv/.test
	KERAS_BACKEND=tensorflow $(PY) -m pytest -n 2 --dist loadfile
	KERAS_BACKEND=jax $(PY) -m pytest -n 2 --dist loadfile $(ON_JAX:%=tests/test_%.py)

lint: .venv/.lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --warnings

benchmark: .venv/.test
	$(PY) -m pytest -m benchmark tests/benchmarks

tables: .venv/.demo
	$(PY) -m zoo.tables

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'keras_highway needs Python 3.11 or newer')"
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	$(INSTALL) -e .
	touch $@

.venv/.test: pyproject.toml | .venv/bin/python
	$(INSTALL) -e ".[test]"
	touch $@

.venv/.lint: pyproject.toml | .venv/bin/python
	$(INSTALL) -e ".[test,lint]"
	touch $@

clean:
	rm -rf .venv demo_gates.png .pytest_cache .ruff_cache
