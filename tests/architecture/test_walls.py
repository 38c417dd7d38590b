"""Who may import whom, and how large a file may grow: the walls of the architecture, read from the source."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from rlinf.data.batch import Batch
from rlinf.data.columns import groups_of
from rlinf.rollouts.text.conversation import Feedback
from rlinf.schema.derived import DerivedConfig

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("rlinf", "envs", "importers") for path in (ROOT / folder).rglob("*.py"))
MAX_LINES = 500

# The only files, or folders, that may import each library.
DOORS = {
    "ray": ("rlinf/cluster/",),
    "vllm": ("rlinf/samplers/vllm",),
    "megatron": ("rlinf/learners/megatron/",),
    "rlinf_envs": ("envs/rlinf_envs/",),
    "rlinf_import": ("importers/rlinf_import/",),
    "av": ("rlinf/datasets/video_encoder.py",),
    "PIL": (
        *("rlinf/rollouts/video/tiles.py", "rlinf/datasets/robot_data/pictures.py", "rlinf/data/pictures.py"),
        "envs/rlinf_envs/sim/libero_files.py",
    ),
    "websockets": ("rlinf/serve/server.py",),
    "msgpack": ("rlinf/serve/server.py",),
    "onnxruntime": ("rlinf/models/actor_critic/onnx_file.py",),
    "h5py": ("rlinf/datasets/robot_data/hdf5.py",),
}
# `ray.tune` has a door of its own.
TUNE_DOOR = "rlinf/sweep/"
# A package imports from its own layer only itself, and from the layers after it what it likes.
LAYERS = (
    {"cli", "api", "commands", "sweep", "report", "serve", "train"},
    {"config", "planning"},
    {"cluster"},
    {"rollouts", "learners", "samplers"},
    {"datasets"},
    {"models", "algorithms"},
    {"interfaces"},
    {"data"},
    {"metrics"},
    {"schema"},
    {"base"},
)
# Layers whose members are not a package each, but parts of one floor.
OPEN_LAYERS = {0, 1}
# Of an answer: whose it is, and why there is none.
CARRIED = {"row_index", "lost", "failure", "account", "seconds", "facts", "text"}
HEAVY = ("torch", "ray", "vllm", "megatron", "transformers", "gymnasium")


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("envs.").removeprefix("importers.")


@functools.cache
def _imports(path: Path) -> list[str]:
    """The modules that a file imports, wherever in it the import stands, type checking included."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.append(node.module)
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _layer(part: str) -> int | None:
    return next((index for index, parts in enumerate(LAYERS) if part in parts), None)


@pytest.mark.parametrize("library", sorted(DOORS))
def test_every_heavy_library_has_one_door(library: str) -> None:
    offenders = []
    for path in FILES:
        used = [module for module in _imports(path) if _within(module, library)]
        if library == "ray" and _relative(path).startswith(TUNE_DOOR):
            used = [module for module in used if module != "ray" and not _within(module, "ray.tune")]
        if used and not _relative(path).startswith(DOORS[library]):
            offenders.append(f"{_relative(path)} imports {used[0]}")
    assert offenders == []


def test_imports_go_downwards() -> None:
    offenders = []
    for path in FILES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != "rlinf" or len(parts) < 2:
            continue
        here = _layer(parts[1])
        for module in _imports(path):
            names = module.split(".")
            if names[0] != "rlinf" or len(names) < 2 or names[1] == parts[1]:
                continue
            there = _layer(names[1])
            if here is None or there is None:
                continue
            if there < here or (there == here and here not in OPEN_LAYERS):
                offenders.append(f"{_relative(path)} imports {module}")
    assert offenders == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Wherever an import stands, for type checkers too. The faces of packages, which hand names on, are left out."""
    modules = {_module(path): path for path in FILES if path.name != "__init__.py"}
    left = {module: modules.keys() & set(_imports(path)) for module, path in modules.items()}
    found = len(left) + 1
    while len(left) < found:
        found = len(left)
        imported = set().union(*left.values())
        left = {
            module: uses & left.keys() for module, uses in left.items() if uses & left.keys() and module in imported
        }
    assert sorted(left) == []


def test_a_run_derives_its_facts_once() -> None:
    """What builds a run, and what it is built of, reads ``config.facts``."""
    names = {field.name for field in fields(DerivedConfig)}
    derived = {f"rlinf.config.derived.{prefix}{name}" for name in names for prefix in ("", "is_")}
    parts = ("rlinf/rollouts/", "rlinf/samplers/", "rlinf/learners/", "rlinf/cluster/", "rlinf/train/assemble/")
    built = [path for path in FILES if _relative(path).startswith(parts)]
    assert [f"{_relative(path)}: {name}" for path in built for name in _imports(path) if name in derived] == []


def test_no_component_takes_the_whole_configuration() -> None:
    """Below `train` and `config` there are sections, facts and plain values: what is not handed over cannot be read."""
    parts = ("rollouts", "samplers", "learners", "models", "algorithms", "cluster")
    files = [path for path in FILES if path.relative_to(ROOT).parts[:1] == ("rlinf",)]
    below = [path for path in files if path.relative_to(ROOT).parts[1] in parts]
    whole = {"rlinf.config.Config", "rlinf.config.experiment.Config"}
    assert [f"{_relative(path)}: {name}" for path in below for name in _imports(path) if name in whole] == []


def test_what_carries_rewards_does_not_open_them() -> None:
    """Pools of environments and learners hand on answers and batches: no reward, no column is read on the way."""
    groups = (Batch, *groups_of(Batch).values(), Feedback)
    columns = {field.name for group in groups for field in fields(group)} - CARRIED
    opened = []
    for name in ("text_env_pool", "learner_pool", "learner_worker"):
        path = ROOT / "rlinf" / "train" / "workers" / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in columns:
                opened.append(f"{name} reads {node.attr}")
    assert opened == []


def test_every_package_has_a_layer() -> None:
    parts = {path.relative_to(ROOT / "rlinf").parts[0].removesuffix(".py") for path in (ROOT / "rlinf").rglob("*.py")}
    assert {part for part in parts if _layer(part) is None} <= {"__init__", "__main__"}


def test_environments_use_only_data_protocols_and_base() -> None:
    offenders = []
    for path in sorted((ROOT / "envs").rglob("*.py")):
        for module in _imports(path):
            if _within(module, "rlinf") and module.split(".")[1:2] not in ([], ["data"], ["interfaces"], ["base"]):
                offenders.append(f"{_relative(path)} imports {module}")
    assert offenders == []


def test_no_module_is_called_utils() -> None:
    names = {"utils", "util", "helpers", "common", "misc"}
    assert [_relative(path) for path in FILES if names & set(path.with_suffix("").parts[len(ROOT.parts) :])] == []


def test_no_file_is_too_long() -> None:
    lengths = {_relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_envs_is_a_folder_not_a_package() -> None:
    assert not (ROOT / "envs" / "__init__.py").exists()


@pytest.mark.parametrize(
    ("modules", "allowed"),
    [
        (
            "rlinf, rlinf.config, rlinf.cli, rlinf.planning.describe, rlinf.commands.listing, rlinf.commands.doctor",
            (),
        ),
        ("rlinf.algorithms", ("torch",)),
        # What the process of an isolated environment borrows.
        ("rlinf.rollouts.vec_env.vec_env, rlinf.rollouts.vec_env.env_checker", ("gymnasium",)),
    ],
)
def test_light_modules_stay_light(modules: str, allowed: tuple[str, ...]) -> None:
    """In a fresh process, so that other tests cannot have imported anything before."""
    probe = f"import sys, {modules}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(found.stdout.split()) <= set(allowed)
