"""Run the fast tests with the oldest and the newest supported dependencies, on one or more versions of Python.

    python requirements/matrix.py                                     # both, on the Python that runs this
    python requirements/matrix.py oldest --python 3.11 -- tests/api   # one of them, and chosen tests

Needs uv. Each combination has an environment in build/matrix, which is kept: the first run installs some gigabytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# As given in pyproject.toml, and not what an older release of a dependency was content with.
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = "lora,data,verify,reasoning,tensorboard,sweep,completion,serve,dev"
FAST = "not slow and not browser and not faults and not gpu and not sim and not vllm and not megatron and not peers"


def main() -> int:
    """Return 0 if the tests pass in every combination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ends", nargs="*", metavar="oldest|newest", help="default: both")
    parser.add_argument("--python", action="append", metavar="VERSION", help="a version or a path, for uv; repeatable")
    words = sys.argv[1:]
    tests = words[words.index("--") + 1 :] if "--" in words else []
    options = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    ends = options.ends or list(RESOLUTIONS)
    if wrong := set(ends) - set(RESOLUTIONS):
        parser.error(f"there is no {wrong.pop()!r}; choose from {', '.join(RESOLUTIONS)}")
    if shutil.which("uv") is None:
        parser.error("uv is not installed: pip install uv")
    failed = [
        f"{end} on {python}"
        for python in options.python or [sys.executable]
        for end in ends
        if not passes(end, python, tests)
    ]
    print(f"failed: {', '.join(failed)}" if failed else "all combinations passed")
    return int(bool(failed))


def passes(end: str, python: str, tests: list[str]) -> bool:
    """Install one combination and run the tests in it."""
    folder = ROOT / "build" / "matrix" / f"{end}-{python.strip('/').replace('/', '_')}"
    if not folder.is_dir():
        subprocess.run(["uv", "venv", "-q", "--seed", "--python", python, folder], check=True)
    inside = folder / "bin" / "python"
    install = ["uv", "pip", "install", "-q", "--python", inside, "--resolution", RESOLUTIONS[end], "--upgrade"]
    subprocess.run([*install, "-e", f"{ROOT}[{EXTRAS}]"], check=True)
    subprocess.run(["uv", "pip", "list", "--python", inside], check=True)
    command = [inside, "-m", "pytest", "-q", "-n", "3", "--dist", "loadscope", "-m", FAST, *tests]
    # As in the Makefile: three processes with a thread for each core would wait for each other.
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
