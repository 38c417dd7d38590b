"""Files and folders that are named and are not there."""

from __future__ import annotations

import re
from pathlib import Path

from rlinf.base.hdf5_split import file_and_split
from rlinf.base.near_paths import near_path
from rlinf.base.row_files import SUFFIXES
from rlinf.config.context import Context
from rlinf.config.derived import is_text
from rlinf.config.problems import Origin
from rlinf.models.checkpoint_files import DOWNLOAD, without_weights

# The hub's names of repositories: one owner, one name. Whether it exists, the download shows.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FETCHED = {"models/smollm2": "SmolLM2-135M-Instruct, a download of 93 MB, from the root of the repository"}
"""Folders that `make` makes."""
_DATA_SUFFIXES = (".arrow", *SUFFIXES)


def check_files(context: Context) -> None:
    """Policies, tokenizers and data files must exist before anything starts, models with their weights."""
    config = context.config
    models = {
        "policy.path": config.policy.path,
        "reward_model.path": config.reward_model.path,
        "teacher.path": config.teacher.path,
        "policy.flow.pi0.path": config.policy.flow.pi0.path,
        "policy.flow.checkpoint.path": config.policy.flow.checkpoint.path,
        "policy.vla.checkpoint.path": config.policy.vla.checkpoint.path,
        "policy.vla.language.path": config.policy.vla.language.path,
        "policy.vla.vision.path": config.policy.vla.vision.path,
    }
    own_class = ":" in config.policy.name  # of the user's, which checks its files itself
    for key, path in models.items():
        context.run(_exists, key, path)
        if not (own_class and key == "policy.path"):
            context.run(_has_weights, key, path)
    context.run(_exists, "policy.flow.checkpoint.backbone", config.policy.flow.checkpoint.backbone)
    context.run(_exists, "policy.flow.checkpoint.statistics", config.policy.flow.checkpoint.statistics, False)
    context.run(_exists, "policy.tokenizer.path", config.policy.tokenizer.path)
    context.run(_exists, "sft.data", config.sft.data)
    context.run(_exists, "sft.eval_data", config.sft.eval_data)
    context.run(_exists, "sft.dataset", config.sft.dataset, False)
    context.run(_exists, "algorithm.prior_data", config.algorithm.prior_data, False)
    context.run(_exists, "env.normalize_from", config.env.normalize_from, False)
    context.run(_exists, "env.kwargs.path", config.env.kwargs.get("path"))
    if config.evaluation.env_kwargs is not None:
        context.run(_exists, "evaluation.env_kwargs.path", config.evaluation.env_kwargs.get("path"))


def _exists(context: Context, key: str, written: object, on_hub: bool = True) -> None:
    """Report paths that do not exist, unless they may be names on the hub and ``on_hub`` are read from there."""
    paths = written if isinstance(written, list) else [written]
    for path in paths:
        if path == "":
            context.error(key, f"{key} is empty.", "Name a file or a folder, or take the key out.")
            continue
        if not isinstance(path, str) or file_and_split(path)[0].expanduser().exists():
            continue
        hub_name = _HUB_NAME.fullmatch(path) and not path.endswith(_DATA_SUFFIXES) and path not in _FETCHED
        if on_hub and hub_name and not _is_local(path):
            continue
        location = file_and_split(path)[0]
        fix = _made_by(location, context.origin_of(key)) or near_path(location.expanduser())
        context.error(key, f"{key}: {path} does not exist.", fix)


def _has_weights(context: Context, key: str, path: str | None) -> None:
    if not path:
        return
    wrong = without_weights(path)
    if wrong is None:
        return
    exported = Path(path) / "policy"  # of a run
    fix = wrong.fix
    if fix == DOWNLOAD and key == "policy.path":
        own = "Name the folder that a run has exported: RUN/policy."
        random = f"{fix} Random weights of its shape are made by policy.architecture, instead of policy.path."
        fix = random if is_text(context.config) else own
    context.error(key, f"{key}: {wrong.what}.", f"Did you mean {exported}?" if exported.expanduser().is_dir() else fix)


def _is_local(path: str) -> bool:
    """Return whether a path is a folder, not a repository.

    ``models/tiny`` next to an existing folder ``models`` is a missing folder."""
    return "/" in path and Path(path).parent.is_dir()


def _made_by(path: Path, origin: Origin) -> str:
    """Name the command that makes ``path``, if it is one of ours or stands in a comment of the file that names it."""
    if str(path) in _FETCHED:
        return f"`make {path}` fetches it ({_FETCHED[str(path)]})."
    names = [str(one) for one in (path, *path.parents) if len(one.parts) > 1]
    file = Path(origin.file)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    for number, line in enumerate(lines, 1):
        if any(f"{word} {name}" in line.partition("#")[2] for word in ("make", "--out") for name in names):
            return f"{file}:{number} has the command that makes it."
    return ""
