#!/bin/sh
# From the repository root, after `make quickstart` has made .venv.
PYTHONPATH=examples/own_reward exec .venv/bin/rlinf train examples/own_reward/brevity.yaml "$@"
