"""Optional packages: every import is declared, and a missing one is answered with its extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from rlinf.base.packages import (
    DISTRIBUTION,
    EXTRA_OF,
    install_command,
    missing_package,
    warn_of_other_distribution,
)
from rlinf.cli import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS = {"rlinf", "rlinf_envs"}
# Packages of interpreters of their own (`make venvs/...`): no extra of ours installs them.
ELSEWHERE = {"libero", "robosuite", "panda_gym", "verifiers"}
MODULES = {"pyyaml": "yaml", "huggingface-hub": "huggingface_hub", "math-verify": "math_verify"}
"""Base requirements whose module has another name (all others: `-` is `_`)."""


def requirement(line: str) -> str:
    return re.split(r"[<>=!;\[ ]", line)[0].lower()


def base_modules() -> set[str]:
    return {MODULES.get(name, name.replace("-", "_")) for name in map(requirement, PROJECT["dependencies"])}


def imported_modules() -> dict[str, Path]:
    """Third-party top-level module -> a file that imports it, anywhere in it."""
    found: dict[str, Path] = {}
    for path in [*(ROOT / "rlinf").rglob("*.py"), *(ROOT / "envs").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        own = {other.stem for other in path.parent.glob("*.py")}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for top in (name.partition(".")[0] for name in names):
                if top not in sys.stdlib_module_names and top not in own:
                    found.setdefault(top, path)
    return found


def test_every_import_is_a_dependency_or_has_an_extra() -> None:
    known = OURS | ELSEWHERE | base_modules() | set(EXTRA_OF)
    assert {name: path for name, path in imported_modules().items() if name not in known} == {}


def test_every_extra_is_one_of_the_project_and_the_name_is_that_of_the_project() -> None:
    assert set(EXTRA_OF.values()) <= set(EXTRAS)
    assert PROJECT["name"] == DISTRIBUTION


def test_the_extra_of_an_installed_package_requires_it() -> None:
    by_module = metadata.packages_distributions()
    for module, extra in EXTRA_OF.items():
        wanted = {requirement(line) for line in EXTRAS[extra]}
        names = {name.lower().replace("_", "-") for name in by_module.get(module, ())}
        # `PIL`, `jax` and the like come with a requirement of the extra.
        if names and module not in (
            "PIL",
            "megatron",
            "cv2",
            "jax",
            "pygame",
            "vllm",
            "sympy",
            "latex2sympy2_extended",
        ):
            assert names & wanted, (module, extra, names)


def test_both_import_packages_are_typed() -> None:
    for package in ("rlinf", "envs/rlinf_envs"):
        assert (ROOT / package / "py.typed").is_file()
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert all("py.typed" in shipped[name] for name in OURS)


def test_a_cause_is_found_and_other_errors_have_none() -> None:
    error = ValueError("no")
    assert missing_package(error) == ""
    error.__cause__ = ModuleNotFoundError("No module named 'h5py'", name="h5py")
    assert missing_package(error) == f"h5py is not installed: {install_command('hdf5')}"
    assert missing_package(ModuleNotFoundError("No module named 'mine'", name="mine")) == ""


def test_an_example_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT / "examples" / "agent")
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "agent"))
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "speller", raising=False)
    assert main(["check", "speller.yaml", "cluster.backend=local"]) == 2
    assert install_command("agents") in capsys.readouterr().out


def test_a_module_of_a_reward_without_its_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlinf_envs.custom_rewards import find_function
    from rlinf_envs.errors import SettingError

    (tmp_path / "with_openai.py").write_text("import openai\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(SettingError, match=re.escape(install_command("agents"))):
        find_function("with_openai:reward")


def test_a_command_that_meets_a_missing_package_prints_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(_arguments: object) -> int:
        raise ModuleNotFoundError("No module named 'optuna'", name="optuna")

    monkeypatch.setattr("rlinf.sweep.cli.main", absent)
    assert main(["sweep", "a.yaml"]) == 2
    assert capsys.readouterr().err == f"optuna is not installed: {install_command('sweep')}\n"


def installed_next_to(folder: Path, name: str, version: str, entry: str) -> None:
    """Make the metadata of a distribution, as pip leaves it, in ``folder``."""
    made = folder / f"{name}-{version}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (made / "entry_points.txt").write_text(entry)


@pytest.mark.parametrize("own", [False, True])
def test_another_distribution_with_the_same_package_is_named(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    installed_next_to(tmp_path, "rlinf", "0.3.0", "[console_scripts]\nrlinf = rlinf.cli:main\n" if own else "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    warn_of_other_distribution.__wrapped__()
    if own:
        assert not recwarn.list
        return
    (found,) = recwarn.list
    words = str(found.message)
    assert words.startswith(f"{DISTRIBUTION} and rlinf 0.3.0 (another project) both install the package `rlinf`")
    assert "pip uninstall rlinf, then pip install --force-reinstall" in words
    assert "\n" not in words


def test_the_base_has_nothing_that_an_extra_has_alone() -> None:
    base = base_modules()
    assert not base & {"reasoning_gym", "math_verify", "datasets", "pyarrow", "tensorboard", "aiohttp"}
    assert "ray[default]" not in " ".join(PROJECT["dependencies"])
