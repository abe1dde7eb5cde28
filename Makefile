# Two commands: `make demo` and `make test`. Each makes .venv and installs all it needs.
PYTHON ?= python3
PY := .venv/bin/python
TORCH_PY := .venv-torch/bin/python
DOCS_PY := .venv-docs/bin/python
DEMO_PY := .venv-demo/bin/python
RELEASE_PY := .venv-release/bin/python
# PyTorch's own index has wheels without CUDA, a tenth of the size; set TORCH_INDEX= to use pip's own.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
comma := ,
# Bytecode is made of what is imported, when it is; all of TensorFlow's and JAX's takes 25 s.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
# uv installs in a third of pip's time and does not read pip's settings: with UV=, or where these name an index or constraints, pip does.
UV ?= $(if $(shell $(PYTHON) -m pip config list | grep -E "\.(index-url|no-index|constraint)="),,uv)
with_uv = ($(1) -c "import uv" 2>/dev/null || $(1) $(PIP) --retries 0 "uv==0.*") && $(1) -m uv pip install --quiet --python $(1) $(2)
# Installs (2) for the Python (1).
install = $(if $(UV),$(with_uv) || )$(1) $(PIP) $(2)
GRADIO = $(shell grep ^gradio demo/requirements.txt)
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Without bytecode every process compiles TensorFlow anew: 10 s instead of 4.
unexport PYTHONDONTWRITEBYTECODE
# Tests that run on JAX and on PyTorch, too.
ON_JAX := gating layers convolve bias_gradients batch_norm blocks trace rewire optimizers device_images mixing training lstm_recurrence char_lm_oracle guided trainable \
	attacks weights fuzz images run_attacks keras_archives preprocessing gate_analysis lesions
# What `make test` runs of these on JAX; `make test-all` runs the list.
CORE_ON_JAX := gating blocks trace trainable
# And single ones: the carried state, the form that computes each word once, scores and text.
ON_JAX_TOO := char_lm.py::test_two_calls_of_35_steps_are_one_of_70 \
	char_lm.py::test_compiled_steps_carry_the_state \
	char_lm.py::test_each_word_once_has_the_same_loss_and_gradients \
	language.py::test_scores_are_the_networks_own language.py::test_generated_text_follows_the_network

# With the like cases that `make test` leaves out (tests/core_cases.py).
ALL_CASES := "not benchmark and not slow"
N ?= 2000
STEPS ?= 100000
# What a user's Keras must do, on the lowest release that pyproject.toml allows: `make test` has the highest.
LOWEST_KERAS := 3.14.1
ON_LOWEST := gating layers convolve batch_norm blocks trace rewire variants weights lstm_recurrence guided exporting

.PHONY: demo test test-all test-torch test-lowest fuzz endurance lint docs docs-browser demo-browser release benchmark tables clean

demo: .venv/.demo
	$(PY) -m keras_highway classify samples/*
	$(PY) -m keras_highway gates samples/digit_7.png --out demo_gates.png

test: .venv/.test
	KERAS_BACKEND=tensorflow $(PY) -m pytest -n 2 --dist loadfile
	KERAS_BACKEND=jax $(PY) -m pytest -n 2 --dist worksteal $(CORE_ON_JAX:%=tests/test_%.py)

# What `make test` leaves out: runs of several devices, processes or jobs, every recipe, notebooks, rare paths.
test-all: .venv/.test
	KERAS_BACKEND=jax $(PY) -m pytest -m $(ALL_CASES) -n 2 --dist loadfile \
		$(ON_JAX:%=tests/test_%.py) $(ON_JAX_TOO:%=tests/test_%)
	KERAS_BACKEND=tensorflow $(PY) -m pytest -m "slow or more" -n 2 --dist loadfile

# An environment of its own, without TensorFlow: with both, each would find the other's libraries.
test-torch: .venv-torch/.test
	KERAS_BACKEND=torch $(TORCH_PY) -m pytest -m $(ALL_CASES) -p no:cacheprovider -n 2 --dist loadfile \
		$(ON_JAX:%=tests/test_%.py) $(ON_JAX_TOO:%=tests/test_%) tests/test_exporting.py tests/test_without_tensorflow.py

test-lowest: .venv-torch/.keras-$(LOWEST_KERAS)/keras
	PYTHONPATH=.venv-torch/.keras-$(LOWEST_KERAS) KERAS_BACKEND=torch $(TORCH_PY) -m pytest -m $(ALL_CASES) -p no:cacheprovider -n 2 \
		--dist loadfile $(ON_LOWEST:%=tests/test_%.py) -k "not both_backends"

# Seeded attacks on what comes from outside, N of each kind; `make test` has the first few.
fuzz: .venv/.test
	KERAS_BACKEND=numpy $(PY) -W ignore -m tests.fuzz.weight_files $(N)
	KERAS_BACKEND=numpy $(PY) -W ignore -m tests.fuzz.outside_files $(N)

# A run of STEPS under SIGKILL, full disks and clocks that jump, beside one left alone; 100,000 took 45 minutes.
endurance: .venv/.test
	$(PY) -W ignore -m tests.endurance --steps $(STEPS)

# pyright again, strict, of the modules of the public names. Off there are the rules about unknown types of what Keras returns, whose
# own annotations are incomplete, and those about needless checks: callers without a type checker pass anything.
lint: .venv/.lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --warnings
	$(PY) -m pyright -p pyright.door.json --warnings

# The site, strictly, into site/: a warning of mkdocs or a link that leads nowhere is an error.
docs: .venv-docs/.docs
	NO_MKDOCS_2_WARNING=1 KERAS_BACKEND=jax $(DOCS_PY) -m mkdocs build --quiet
	$(DOCS_PY) tests/site/links.py site

# Its pages in a headless browser, wide and as on a phone; CHROMIUM=FILE where playwright has not installed one.
docs-browser: docs
	$(DOCS_PY) $(PIP) "playwright==1.*"
	$(if $(CHROMIUM),,$(DOCS_PY) -m playwright install --with-deps chromium)
	$(DOCS_PY) tests/site/browser.py site $(CHROMIUM)

# The page of demo/ in a headless browser, with the gradio that its requirements.txt names; CHROMIUM=FILE as above.
demo-browser: .venv-demo/.demo
	$(if $(CHROMIUM),,$(DEMO_PY) -m playwright install --with-deps chromium)
	KERAS_BACKEND=tensorflow KERAS_HIGHWAY_BROWSER=$(or $(CHROMIUM),playwright) $(DEMO_PY) -m pytest -m "not benchmark" \
		-p no:cacheprovider tests/test_demo.py

# Wheel and sdist into dist/, checked in environments that have nothing else: the base, TensorFlow, JAX, PyTorch.
release: .venv-release/.release
	TORCH_INDEX=$(TORCH_INDEX) $(RELEASE_PY) -m zoo.release.distributions --log tests/logs/release.txt

benchmark: .venv/.test
	$(PY) -m pytest -m benchmark tests/benchmarks

tables: .venv/.demo
	$(PY) -m zoo.release.tables

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'keras_highway needs Python 3.11 or newer')"
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	$(call install,$(PY),-e ".[tensorflow$(comma)plots]")
	touch $@

.venv/.test: pyproject.toml | .venv/bin/python
	$(call install,$(PY),-e ".[test]")
	touch $@

.venv/.lint: pyproject.toml | .venv/bin/python
	$(call install,$(PY),-e ".[test$(comma)lint]")
	touch $@

.venv-torch/bin/python:
	$(PYTHON) -m venv .venv-torch

.venv-torch/.test: pyproject.toml | .venv-torch/bin/python
	$(TORCH_PY) $(PIP) torch $(TORCH_INDEX:%=--index-url %)
	$(call install,$(TORCH_PY),-e ".[torch$(comma)onnx$(comma)plots$(comma)test-tools]")
	touch $@

.venv-docs/.docs: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	$(call install,$(DOCS_PY),-e ".[docs]")
	touch $@

.venv-demo/.demo: pyproject.toml demo/requirements.txt
	$(PYTHON) -m venv .venv-demo
	$(call install,$(DEMO_PY),-e ".[tensorflow$(comma)plots$(comma)test-tools]" "$(GRADIO)" "playwright==1.*")
	touch $@

.venv-release/.release: pyproject.toml
	$(PYTHON) -m venv .venv-release
	$(RELEASE_PY) $(PIP) "build==1.*" "hatchling==1.27.*"
	touch $@

.venv-torch/.keras-$(LOWEST_KERAS)/keras: .venv-torch/.test
	$(TORCH_PY) $(PIP) --no-deps --target $(@D) keras==$(LOWEST_KERAS)

clean:
	rm -rf .venv .venv-demo .venv-docs .venv-release .venv-torch demo_gates.png dist site .pytest_cache .ruff_cache
