#!/bin/sh
# From the repository root, after `make quickstart` has made .venv.
PYTHONPATH=examples/own_policy exec .venv/bin/rlinf train examples/own_policy/pendulum.yaml "$@"
