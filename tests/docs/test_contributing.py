"""An estimator is added as CONTRIBUTING.md describes: in a copy of the sources, with the three files that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION = '''"""The reward relative to the median of the group."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import SingletonGroup


def median(x: AdvantageInputs, *, singleton_group: SingletonGroup = "error") -> Advantages:
    """``R`` minus the lower median of the group.

    R = [1, 0, 3] has the median 1:

    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("median", rewards=torch.tensor([1., 0., 3.]), mask=torch.ones(3, 1).bool(),
    ...                    group_ids=torch.zeros(3).long()).advantages.flatten()
    tensor([ 0., -1.,  2.])
    """
    same = x.group_ids[:, None] == x.group_ids[None, :]
    rewards = torch.where(same, x.outcomes[None, :], torch.nan)
    rows = x.outcomes - rewards.nanmedian(dim=1).values
    advantages = x.per_row(x.settle_singletons(rows, x.outcomes, singleton_group))
    return Advantages(advantages, advantages)
'''
ENTRY = """    "median": Estimator(
        "rlinf.algorithms.advantages.median:median",
        "the reward minus the median of the group",
        "A = R - median_g",
        "made up",
        ("singleton_group",),
        of_outcomes=True,
    ),
"""
TEST = '''"""The median of a group, worked out by hand."""

import torch

from rlinf.algorithms import compute_advantages


def test_the_median_of_each_group() -> None:
    rewards = torch.tensor([1.0, 0.0, 3.0, 5.0, 5.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    found = compute_advantages("median", rewards=rewards, mask=torch.ones(5, 2).bool(), group_ids=groups)
    assert found.advantages[:, 0].tolist() == [0.0, -1.0, 2.0, 0.0, 0.0]
'''


def numbered_files() -> list[str]:
    """The files of the numbered list about estimators, NAME replaced."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## A new advantage estimator")[1]
    return [name.replace("NAME", "median") for name in re.findall(r"^\d\. `([^`]+)`", section.split("\n## ")[0], re.M)]


def environment(folder: Path) -> dict[str, str]:
    """The copied sources instead of the installed ones."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / name) for name in (".", "envs", "importers"))}


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
def test_three_files_add_an_estimator(tmp_path: Path) -> None:
    for name in ("rlinf", "envs", "importers", "tests/algorithms", "tests/properties", "tests/support", "tests/docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    for name in ("docs/algorithms", "config", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("docs/algorithms.md", "docs/assets/algorithm_pages.py", "tests/conftest.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    function, catalog, test = numbered_files()
    (tmp_path / function).write_text(FUNCTION)
    entries = (tmp_path / catalog).read_text()
    (tmp_path / catalog).write_text(entries.replace('    "rloo": Estimator(', f'{ENTRY}    "rloo": Estimator(', 1))
    (tmp_path / test).write_text(TEST)
    assert "median" in run(tmp_path, "rlinf.cli", "list", "advantages")
    # The script that the section names writes the estimator's page and its row.
    script = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("`python ", 1)[1].split("`")[0]
    assert script == "docs/assets/algorithm_pages.py"
    subprocess.run([sys.executable, script], cwd=tmp_path, env=environment(tmp_path), check=True)
    assert "# median: " in (tmp_path / "docs/algorithms/advantage_median.md").read_text(encoding="utf-8")
    chosen = "median or name_everything or every_option or filled or committed"
    tests = (test, "tests/properties/test_invariance.py", "tests/algorithms/test_catalog.py")
    words = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen)
    run(tmp_path, *words, *tests, "tests/docs/test_algorithm_examples.py")
