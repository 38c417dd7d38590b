"""The pages for users of other frameworks: both sides of an example are one run, and the commands import."""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml
from rlinf_import.page import mapping
from rlinf_import.reading import imported
from rlinf_import.sheet import Options

from rlinf.cli import main

DOCS = Path(__file__).parents[2] / "docs"
PEERS = Path(__file__).parents[1] / "importers" / "peers"
SIDES = {
    "from_trl.md": ("trl", "train_grpo.py", Options(rows=103_000, processes=1)),
    "from_verl.md": ("verl", "run_qwen3_8b_fsdp.sh", Options(rows=7473)),
    "from_stable_baselines3.md": ("sb3", "train.py", Options()),
}
OTHERS = {
    "example_grpo.yaml": "roll_grpo.yaml",
    "qwen2.5-1.5b-grpo-fsdp.yaml": "rlinf_math.yaml",
    "ppo.yml": "zoo_ppo.yml",
    "train_grpo.sh": "openrlhf_grpo.sh",
}
"""Files of the peers' repositories that a page names -> those of ours in the same form."""
OWN_NAMES = ("run.name", "env.kwargs.path", "evaluation.env_kwargs.path")
"""Keys that the pages name after the run and its converted data."""


def blocks(page: str, language: str, indent: str = "    ") -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(rf"^{indent}```{language}\n(.*?)^{indent}```", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]


def theirs(page: str, folder: Path) -> Path:
    """The left side of a page as a file."""
    _, name, _ = SIDES[page]
    (block,) = blocks(page, "bash" if name.endswith(".sh") else "python")
    (folder / name).write_text(block)
    return folder / name


def flat(tree: dict[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in tree.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


@pytest.mark.parametrize("page", SIDES)
def test_both_sides_are_one_run(page: str, tmp_path: Path) -> None:
    peer, _, options = SIDES[page]
    ours = flat(yaml.safe_load(blocks(page, "yaml")[0]))
    carried = flat(mapping(imported(peer, theirs(page, tmp_path), (), options)))
    for key in OWN_NAMES:
        ours.pop(key, None)
    assert {key: carried.get(key) for key in ours} == ours


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("from_*.md")))
def test_every_import_of_a_page_works(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for block in blocks(page, "bash", "") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("rlinf import")]
    assert commands
    monkeypatch.chdir(tmp_path)
    for command in commands:
        file = Path(command[2])
        if file.name in OTHERS:
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PEERS / OTHERS[file.name], file)
        else:
            theirs(page, tmp_path)
        assert main(command) == 0
    assert capsys.readouterr().out
