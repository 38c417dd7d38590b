"""An entry of RL Zoo's hyper-parameter files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from rlinf.base.errors import UserError
from rlinf.config.names import nearest
from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, locate
from rlinf_import.python_calls import Script
from rlinf_import.refusal import Missing, NotOfferedError, NotTrainingError
from rlinf_import.sb3_tables import DEFAULTS, MISSING, is_atari
from rlinf_import.written import Source, document

_SHARED = ("atari", "default")
"""Entries that stand for environments without one of their own."""
_ORDERED = "!!python/object/apply:collections.OrderedDict"
_ID = re.compile(r".+-v\d+")


def entries(path: Path) -> list[str]:
    """List the environments that a Zoo file has an entry of, defaults that entries share included."""
    return [entry for entry, located in _tree(path).items() if located.branch is not None]


def read(path: Path, environment: str | None, algorithm: str | None) -> tuple[Source, str, str]:
    """One entry of a Zoo file, with its algorithm and its environment.

    Raises NotOfferedError for an algorithm that does not exist here, and NotTrainingError for shared defaults.
    """
    if path.name == "args.yml" and _saved(path):
        path = path.with_name("config.yml")
    saved = _saved(path)
    arguments = (_saved(path.with_name("args.yml")) if saved else None) or {}
    name = algorithm or str(arguments.get("algo") or _algorithm(path))
    if name in MISSING:
        feature, near = MISSING[name]
        raise NotOfferedError(path, [Missing(feature, path.name, near)])
    if name not in DEFAULTS:
        offered = ", ".join(DEFAULTS)
        named = f"--algorithm {name}" if algorithm else "the name of the file"
        raise UserError(f"{path}: {named} is no algorithm: --algorithm names it ({offered})")
    if saved:
        environment = environment or str(arguments.get("env") or path.parent.name)
        located = locate(saved, Origin(str(path))).branch
        assert located is not None
        return Source(path, dict(located), []), name, environment
    tree = _tree(path)
    held = [entry for entry, located in tree.items() if located.branch is not None]
    if not held:
        raise UserError(f"{path} holds no environment: an entry of the Zoo is a section with the id of one")
    if environment is None and len(held) == 1:
        environment = held[0]
    if environment is None:
        raise UserError(f"{path} holds {len(held)} environments: choose one with --env, for example --env {held[0]}")
    chosen = tree.get(environment)
    if chosen is None or chosen.branch is None:
        shared = next((entry for entry in _SHARED if entry in held and _stands_for(entry, environment)), None)
        if shared is None:
            close = nearest(environment, held)
            raise UserError(f"{path} holds no {environment}.{f' Did you mean {close[0]}?' if close else ''}")
        chosen = tree[shared]
    elif not _ID.fullmatch(environment) and environment != "atari":
        raise NotTrainingError(path, f"shared defaults ({environment})", "Name an environment with --env.")
    assert chosen.branch is not None
    return Source(path, dict(chosen.branch), []), name, environment


def _saved(path: Path) -> dict[str, object]:
    """Read what the Zoo writes into a run's folder: an OrderedDict in Python's tags; empty for any other file."""
    try:
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        pairs = yaml.safe_load(rest) if first.strip() == _ORDERED else None
        return dict(pairs[0]) if pairs else {}
    except (OSError, ValueError, TypeError, LookupError):
        return {}
    except yaml.YAMLError as error:
        raise UserError(
            f"{path}: a value is no plain YAML: {str(error).splitlines()[0]}. Write the entry yourself"
        ) from error


def _stands_for(entry: str, environment: str) -> bool:
    return is_atari(environment) if entry == "atari" else _ID.fullmatch(environment) is not None


def _algorithm(path: Path) -> str:
    """Read the algorithm from the name of a file."""
    known = sorted({*DEFAULTS, *MISSING}, key=len, reverse=True)
    stem = path.stem.lower()
    return next((name for name in known if re.search(rf"(^|_){name}(_|$)", stem)), path.stem)


def _tree(path: Path) -> Branch:
    """Read the entries of a YAML file, or of a Python file that assigns them to ``hyperparams``."""
    if path.suffix != ".py":
        return document(path)
    assigned = Script.read(path).assigned("hyperparams")
    given: Mapping[str, object] = assigned if isinstance(assigned, dict) else {}
    return {name: locate(value, Origin(str(path))) for name, value in given.items()}
