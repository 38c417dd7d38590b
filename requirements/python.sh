#!/bin/sh
# Prints the interpreter for .venv: python3.12, or the next of these that runs here (a pyenv shim may not) and is supported.
for python in python3.12 python3.11 python3.13 python3; do
    if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        command -v "$python"
        exit
    fi
done
echo "no Python 3.11, 3.12 or 3.13 runs here: install one, or give its path: make PYTHON=/path/to/python3.12 ..." >&2
exit 1
