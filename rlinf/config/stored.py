"""Reads the copy of a configuration that a run keeps (:mod:`rlinf.config.record`).

Its expressions are resolved against the environment of now; masked variables, and those of `cluster.env` that are not
set any more, are left to the environment of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from rlinf.base.errors import UserError
from rlinf.base.yaml_text import read_yaml
from rlinf.config.experiment import Config
from rlinf.config.interpolate import unset
from rlinf.config.loading import resolve_reader, switch_off_again
from rlinf.config.problems import ConfigErrors, Origin
from rlinf.config.reader import Reader
from rlinf.config.record import MASK
from rlinf.config.tree import drop, get


class StoredConfigError(UserError):
    """A run's own copy of its configuration that cannot be read; the message names the file."""


def load_stored(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Load the configuration in a run's own copy, with overrides.

    Raises :class:`StoredConfigError`, or ConfigErrors for overrides that do not fit."""
    _require_whole(path)
    reader = Reader()
    reader.read_file(path)
    for layer in reader.layers:
        cluster = layer["cluster"].branch if "cluster" in layer else None
        env = cluster["env"].branch if cluster is not None and "env" in cluster else None
        for name, located in list((env or {}).items()):
            if env is not None and (located.value == MASK or unset(str(located.value))):
                del env[name]
        # Runs from before `rollout.ahead` was another name of `rollout.staleness` wrote both, and one of them was 0.
        ahead, staleness = get(layer, "rollout.ahead"), get(layer, "rollout.staleness")
        if ahead is not None and staleness is not None:
            drop(layer, "rollout.staleness" if ahead.value else "rollout.ahead")
    # A run on a pretrained model from before `data.instruction` keeps the prompts that it began with.
    paths = [get(layer, "policy.path") for layer in reader.layers]
    pretrained = any(path is not None and path.value is not None for path in paths)
    if pretrained and all(get(layer, "data.instruction") is None for layer in reader.layers):
        reader.read_overrides(["data.instruction=never"])
    _keep_earlier_towers(reader)
    switch_off_again(reader)
    try:
        reader.read_overrides(overrides)
        return resolve_reader(reader, Origin(str(path))).config
    except ConfigErrors as errors:
        own = [str(problem) for problem in errors.problems if problem.file == str(path)]
        if not own:
            raise
        raise StoredConfigError(f"{path}, the run's own copy of its configuration, does not hold: {own[0]}") from errors


def _require_whole(path: Path) -> None:
    """Raise :class:`StoredConfigError` if the file is not what a run wrote."""
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
        why = "it is empty" if content is None else "it holds no sections"
    except OSError as error:
        content, why = None, error.strerror or str(error)
    except (ValueError, yaml.YAMLError) as error:
        content, why = None, str(error).splitlines()[0]
    if not isinstance(content, dict) or not isinstance(content.get("run"), dict):
        raise StoredConfigError(
            f"{path}, the run's own copy of its configuration, is damaged ({why}): replace it by the file that the run "
            "was started with"
        )


def _keep_earlier_towers(reader: Reader) -> None:
    """Build a `vla` policy from before `policy.vla.vision.conditioning` as it was; a folder brings its own."""

    def written(key: str) -> object:
        results = [get(layer, key) for layer in reader.layers]
        return next((located.value for located in results if located is not None), None)

    if written("policy.name") != "vla" or written("policy.path") is not None:
        return
    for name, before in (("conditioning", "none"), ("patch_init", "random")):
        key = f"policy.vla.vision.{name}"
        if written(key) is None:
            reader.read_overrides([f"{key}={before}"])
