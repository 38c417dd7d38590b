"""A built wheel works outside of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_runs_a_recipe_in_an_empty_folder(tmp_path: Path) -> None:
    """Unpacked instead of installed: what pip adds to it are a script and a list of files."""
    sources, wheels, site, empty = (tmp_path / name for name in ("sources", "wheels", "site", "empty"))
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_symlink():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).symlink_to(os.readlink(ROOT / name))
        elif (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((ROOT / name).read_bytes())
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    wheels.mkdir()
    built = subprocess.run(
        [sys.executable, "-c", build, str(wheels)], cwd=sources, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr[-2000:]
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    assert (site / "rlinf" / "recipes" / "math" / "quickstart.yaml").is_file()
    assert (site / "rlinf" / "py.typed").is_file()
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    small = ["sft.steps=2", "run.max_steps=1", "evaluation.size=4", "cluster.backend=local", "logging.progress=none"]
    ran = subprocess.run(
        [sys.executable, "-m", "rlinf.cli", "train", "quickstart", *small],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (empty / "runs" / "quickstart" / "summary.json").is_file()
