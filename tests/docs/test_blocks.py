"""The blocks of README.md and docs/ work as they are written: Python runs, YAML loads, rows of data are read."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_cases import MINIMAL
from doc_blocks import DOCS, PAGES, ROOT, blocks, page_name

from rlinf.config import ConfigErrors, load
from rlinf.config.plugins import GROUPS
from rlinf.datasets.conversation_files import read_conversations, read_pairs
from rlinf.sweep.cli import checked_sweep

EVERY = [ROOT / "README.md", *PAGES]
FRAGMENT = "# Fragment: "
"""Begins a block that lacks something; the line names it."""
OTHERS = {"openai", "openpi_client"}
"""Packages of other projects, which need not be here."""
TRAINS = ("rlinf.fit(", '"runs/')
"""In a block that takes minutes, or speaks of a run that took them. tests/test_api.py has the functions."""
NOT_RUN = ("api.md", "from_trl.md", "from_stable_baselines3.md")
"""Pages whose Python is generated, or a program of another framework."""
ELSEWHERE = ("does not exist", "there is no module", "cannot be imported: ModuleNotFoundError", "is no program that")
"""Problems of files, modules and interpreters that a page speaks of, and that are not here."""
PRETRAINED = {"policy": {"path": "model"}}
SIMULATOR = {"env": {"id": "Pendulum-v1", "num_envs": 2}, "policy": {"name": "actor_critic"}}
PPO = {**SIMULATOR, "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"}}
TABLETOP = {
    "env": {"id": "rlinf_envs:rlinf/Tabletop-v0", "num_envs": 4},
    "policy": {"name": "vla"},
    "sft": {"steps": 2},
    "rollout": {"batch_size": 4},
    "algorithm": {"adv_type": "grpo", "group_size": 2},
}
BASES: tuple[Mapping[str, Any], ...] = (
    {},
    MINIMAL,
    PRETRAINED,
    {**PRETRAINED, "env": MINIMAL["env"]},
    SIMULATOR,
    PPO,
    TABLETOP,
)
"""The runs that a block of some sections may be a part of."""


def python_blocks() -> Iterator[Any]:
    for page in (page for page in EVERY if page.name not in NOT_RUN):
        for line, text in blocks(page, "python", "py"):
            if ">>>" not in text and not text.startswith(FRAGMENT) and not any(word in text for word in TRAINS):
                yield pytest.param(text, id=f"{page_name(page)}:{line}")


def yaml_blocks() -> Iterator[Any]:
    for page in (page for page in EVERY if "tutorials" not in page.parts):  # whose files extend each other
        for line, text in blocks(page, "yaml", "yml"):
            if not text.startswith("base:"):
                yield pytest.param(text, id=f"{page_name(page)}:{line}")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the modules that the pages show, each under the name in its first line."""
    for page in EVERY:
        for _, text in blocks(page, "python", "py"):
            first = text.partition("\n")[0]
            if first.startswith("# ") and first.endswith(".py"):
                (tmp_path / first[2:]).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("text", python_blocks())
def test_a_python_block_runs(text: str, here: Path) -> None:
    try:
        exec(compile(text, "block", "exec"), {"__name__": "block"})
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OTHERS:
            raise


@pytest.mark.parametrize("text", yaml_blocks())
def test_a_yaml_block_is_a_run_or_a_part_of_one(text: str, here: Path) -> None:
    """With every check of the configuration, alone or laid over one of :data:`BASES`."""
    found: list[list[str]] = []
    for base in BASES:
        found.append(problems_over(base, text, here))
        if not found[-1]:
            return
    pytest.fail("\n".join(min(found, key=len)))


def problems_over(base: Mapping[str, Any], text: str, folder: Path) -> list[str]:
    (folder / "base.yaml").write_text(yaml.safe_dump(dict(base)), encoding="utf-8")
    (folder / "block.yaml").write_text(f"extends: base.yaml\n{text}", encoding="utf-8")
    try:
        load(folder / "block.yaml")
    except ConfigErrors as errors:
        return [str(one) for one in errors.problems if not any(words in one.message for words in ELSEWHERE)]
    return []


@pytest.mark.parametrize(("number", "trials"), [(0, 60), (1, 6)])
def test_the_sweeps_of_the_page_are_valid(tmp_path: Path, number: int, trials: int) -> None:
    texts = [text for _, text in blocks(DOCS / "sweeps.md", "yaml") if text.startswith("base:")]
    assert len(texts) == 2
    folder = tmp_path / "sweeps"
    folder.mkdir()
    (folder / "mine.yaml").write_text(texts[number])
    (tmp_path / "math").mkdir()
    (tmp_path / "math" / "quickstart.yaml").write_text((ROOT / "config" / "math" / "quickstart.yaml").read_text())
    assert len(checked_sweep(folder / "mine.yaml", [])[1]) == trials


def test_rows_of_supervised_data_are_read(tmp_path: Path) -> None:
    (_, rows), (_, pairs) = blocks(DOCS / "sft.md", "json")
    for name, text in (("rows.jsonl", rows), ("pairs.jsonl", pairs)):
        (tmp_path / name).write_text(text)
    found = read_conversations(str(tmp_path / "rows.jsonl"))
    assert [one.messages[-1].content for one in found] == ["4"] * 7
    assert {one[0].messages[-1].content for one in read_pairs(str(tmp_path / "pairs.jsonl"))} == {"4"}


def test_the_entry_points_of_the_page_are_of_groups_that_are_read() -> None:
    (text,) = [text for _, text in blocks(DOCS / "plugins.md", "toml")]
    assert set(tomllib.loads(text)["project"]["entry-points"]) <= set(GROUPS)


def test_the_environment_of_riddles_grades(here: Path) -> None:
    import gymnasium

    row = {"riddle": "What has keys and opens no lock?", "answer": "a piano"}
    (here / "riddles.jsonl").write_text(json.dumps(row) + "\n")
    env = gymnasium.make_vec("riddle_env:my/Riddle-v0", num_envs=2, path="riddles.jsonl")
    prompts, _ = env.reset(options={"task_ids": [0, 0]})
    assert prompts[0] == row["riddle"]
    assert env.step(("a piano", "a map"))[1].tolist() == [1.0, 0.0]
