"""The tutorials' files are complete: their configurations load, their modules run, their examples hold."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from rlinf.config import load
from rlinf.sweep.cli import checked_sweep

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
_FILE = re.compile(r"^```(?:python|yaml)\n# ([a-z_]+\.(?:py|yaml))\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that a tutorial shows, and the data that they speak of."""
    folder = tmp_path_factory.mktemp("tutorials")
    for page in TUTORIALS.glob("*.md"):
        for name, text in _FILE.findall(page.read_text(encoding="utf-8")):
            assert not (folder / name).exists(), f"two tutorials write {name}"
            (folder / name).write_text(text, encoding="utf-8")
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(20)]
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "solutions.jsonl").write_text('{"prompt": "1 + 1?", "response": "2"}\n')
    return folder


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(files)
    return files


def test_every_configuration_loads(here: Path) -> None:
    names = [path.name for path in sorted(here.glob("*.yaml")) if "base" not in yaml.safe_load(path.read_text())]
    assert names == ["brevity.yaml", "line.yaml", "mine.yaml", "tasks.yaml", "tasks_sft.yaml"]
    for name in names:
        assert load(name).run.name == name.removesuffix(".yaml")
    assert load("mine.yaml").algorithm.adv_type == "mine:centred"


@pytest.mark.parametrize(
    ("name", "metric", "trials"), [("rates.yaml", "eval/return", 12), ("advantages.yaml", "eval/accuracy", 6)]
)
def test_a_sweep_loads(here: Path, name: str, metric: str, trials: int) -> None:
    sweep, plans = checked_sweep(here / name, [])
    assert (sweep.config.metric, len(plans)) == (metric, trials)


def test_the_modules_do_what_the_text_describes(here: Path) -> None:
    brevity, line = (importlib.import_module(name) for name in ("brevity", "line"))
    responses = ("#### 5".rjust(40), "#### 6", "")
    earned = [brevity.brevity(prompt="", response=text, answer="5", row={}) for text in responses]
    assert earned == [0.5, 0.0, 0.0]
    env = line.Line()
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert env.step(env.action_space.sample())[1] <= 0.0


def test_the_hand_worked_example_holds(here: Path) -> None:
    page = (TUTORIALS / "your_algorithm.md").read_text(encoding="utf-8")
    (example,) = [code for code in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "assert" in code]
    exec(compile(example, "your_algorithm.md", "exec"), {})


def test_skeletons_are_what_the_tutorials_show(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlinf.commands.new import write_skeleton

    # A name that Python finds already is refused.
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(here)])
    for kind, name in (("reward", "brevity"), ("env", "line"), ("algorithm", "mine")):
        written = {path.name for path in write_skeleton(kind, name, tmp_path)}
        shown = {path.name for path in here.glob(f"{name}.*")}
        assert shown <= written
    assert sys.modules["brevity"].brevity is not None
