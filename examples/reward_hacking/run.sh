#!/bin/sh
# From the repository root, after `make quickstart` has made .venv: examples/reward_hacking/run.sh hole, or closed
recipe=$1
shift
PYTHONPATH=examples/reward_hacking exec .venv/bin/rlinf train "examples/reward_hacking/$recipe.yaml" "$@"
