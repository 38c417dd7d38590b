"""Recipes are part of the package: any folder, any installed copy, by name."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import ConfigErrors, load
from rlinf.config.reader import Reader
from rlinf.config.recipes import FOLDER, located, packaged, recipes, sweep_recipes

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_file_of_config_is_a_recipe() -> None:
    files = {path.relative_to(ROOT / "config").with_suffix("").as_posix() for path in (ROOT / "config").rglob("*.yaml")}
    assert files == {*recipes(), *sweep_recipes()}
    assert PROJECT["tool"]["setuptools"]["package-data"]["rlinf"][0] == f"{FOLDER.name}/**/*.yaml"


def test_a_name_of_several_recipes_is_answered_with_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counted = Counter(name.rpartition("/")[2] for name in recipes())
    assert counted["quickstart"] == counted["cartpole_ppo"] == 1
    for short in [name for name, count in counted.items() if count > 1]:
        with pytest.raises(ConfigErrors, match=rf"more than one recipe of that name: .*/{short}, "):
            load(short)


def test_a_recipe_loads_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("quickstart").run.name == load("math/quickstart").run.name == "quickstart"
    assert load("cartpole_ppo", ["run.seed=3"]).run.seed == 3


def test_a_file_of_that_name_is_meant_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text("run: {name: mine}\nenv: {id: CartPole-v1}\n")
    assert packaged("quickstart") is None
    assert located("quickstart") == Path("quickstart")


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigErrors, match=r"Did you mean the recipe math/quickstart\?"):
        load("quickstrat")
    with pytest.raises(ConfigErrors, match=r"It is no recipe either: there is .*sim/cartpole_ppo"):
        load("zzzzzzzz")
    with pytest.raises(ConfigErrors, match=r"missing\.yaml does not exist"):
        load("missing.yaml")


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "recipes"]) == 0
    assert "sim/cartpole_ppo" in capsys.readouterr().out


_SHORT = sorted({name.rpartition("/")[2] for name in (*recipes(), *sweep_recipes())})
_OF_RUNS = (["train"], ["sft"], ["train", "--multirun"], ["try"], ["record", "--out", "new"])


@pytest.mark.parametrize("name", [*_SHORT, *recipes(), *sweep_recipes()])
def test_all_commands_mean_the_same_file_by_a_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def only_named(_self: Reader, path: Path, *_rest: object) -> None:
        raise UserError(f"read {path}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Reader, "read_file", only_named)

    def file_of(words: Sequence[str]) -> str:
        assert main([words[0], name, *words[1:]]) == 2
        return capsys.readouterr().err

    of_a_run = [recipe for recipe in recipes() if name in (recipe, recipe.rpartition("/")[2])]
    if not of_a_run:
        sweep = sweep_recipes()[f"sweeps/{name.rpartition('/')[2]}"]
        assert file_of(["check"]) == file_of(["sweep"]) == f"read {sweep}\n"
        return
    expected = recipes()[of_a_run[0]] if len(of_a_run) == 1 else name  # of several: the reader lists them
    assert {file_of(words) for words in (["check"], *_OF_RUNS)} == {f"read {expected}\n"}


def test_a_packaged_sweep_is_checked_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "cartpole", "--check"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12


def test_extras_by_purpose_name_extras_that_exist() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"math", "sim", "vllm", "megatron", "agents", "robots", "docs", "all-cpu"} <= set(extras)
    for name, needed in extras.items():
        for requirement in needed:
            if requirement.startswith("oneloop-rl["):
                inner = requirement.removeprefix("oneloop-rl[").rstrip("]").split(",")
                assert set(inner) <= set(extras), name
                assert "vllm" not in inner


def test_every_extra_is_described() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    extras = set(PROJECT["project"]["optional-dependencies"]) - {"dev", "peers"}
    assert [name for name in sorted(extras) if f"`{name}`" not in page] == []
