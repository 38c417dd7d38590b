#!/bin/sh
# From the repository root, after `make quickstart` has made .venv.
PYTHONPATH=examples/own_environment exec .venv/bin/rlinf train examples/own_environment/capitals.yaml "$@"
