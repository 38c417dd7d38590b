"""The quickstart on two machines, each a Ray node process of its own with room for half of the workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import subprocess
import sys

from ray.cluster_utils import Cluster as Machines

if __name__ == "__main__":
    # Learner, sampler and two env workers take half a CPU each: no machine has room for more than two of them.
    machines = Machines(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    machines.add_node(num_cpus=1)
    command = [sys.executable, "-m", "rlinf.cli", *sys.argv[1:], f"cluster.address={machines.address}"]
    ended = subprocess.run(command, timeout=900)
    machines.shutdown()
    sys.exit(ended.returncode)
"""


@pytest.mark.slow
def test_the_quickstart(tmp_path: Path) -> None:
    script, run = tmp_path / "driver.py", tmp_path / "run"
    script.write_text(DRIVER)
    settings = {
        "run.dir": run,
        "run.max_steps": 3,
        "sft.steps": 20,
        "evaluation.size": 16,
        "env.num_workers": 2,
        "cluster.start_timeout_s": 600,
        "logging.progress": "plain",
    }
    arguments = ["train", str(ROOT / "config/math/quickstart.yaml"), *(f"{k}={v}" for k, v in settings.items())]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, timeout=1000
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert json.loads((run / "summary.json").read_text())["steps"] == 3
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum("train/loss" in line for line in lines) == 3
    assert not any(number for line in lines for name, number in line.items() if name.startswith("failures/"))
