"""From files, overrides or plain mappings to one checked, typed configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlinf.config.checks import run_checks
from rlinf.config.compat.aliases import rename, translate_values
from rlinf.config.compat.combined import combine
from rlinf.config.compat.semantics import adopt, roll_origin
from rlinf.config.context import Context
from rlinf.config.defaults import fill_in
from rlinf.config.dump import at, digest, to_mapping
from rlinf.config.experiment import Config
from rlinf.config.interpolate import interpolate, report_missing, report_unresolved
from rlinf.config.plugins import with_plugins
from rlinf.config.problems import ConfigErrors, ConfigProblem, Origin, problem
from rlinf.config.reader import EXTENDS, Reader
from rlinf.config.recipes import located
from rlinf.config.tree import Branch, Located, expressions, get, locate, merge, origins, read_mixture
from rlinf.config.values import Builder


@dataclass(frozen=True)
class Resolved:
    """A configuration with the notes and warnings about it."""

    config: Config
    notes: list[str] = field(default_factory=list)
    """What other names became, once each."""
    warnings: list[str] = field(default_factory=list)
    """What would be an error with ``strict: true``."""


def load(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Load the configuration in a YAML file, or of a packaged recipe by its name, with ``key=value`` overrides.

    Raises :class:`ConfigErrors`.
    """
    return resolve(path, overrides).config


def resolve(path: str | Path, overrides: Sequence[str] = ()) -> Resolved:
    """Load the same as :func:`load`, with notes on the names that were translated."""
    reader = Reader()
    file = located(path)
    reader.read_file(file)
    if _of_sweep(reader):
        fix = f"`rlinf sweep {path}` runs it."
        raise ConfigErrors([problem(Origin(str(file)), "space", f"{path} is a sweep file, not that of one run.", fix)])
    if file.name == "config.yaml" and all((file.parent / name).exists() for name in ("machine.json", "checkpoints")):
        # A run's own copy: the run in its folder is meant, wherever that folder has been moved.
        reader.layers.append(locate({"run": {"dir": str(file.parent)}}, Origin(str(file))).branch or {})
        reader.notes.append(f"{file}: the run in {file.parent} goes on; run.dir=DIR starts another one.")
    reader.read_overrides(overrides)
    return resolve_reader(reader, Origin(str(file)))


def is_sweep_file(path: Path) -> bool:
    """Return whether a file is one of a sweep; False if it cannot be read, which is for the caller to find."""
    reader = Reader()
    reader.read_file(path)
    return _of_sweep(reader)


def _of_sweep(reader: Reader) -> bool:
    return any({"base", "space"} <= layer.keys() for layer in reader.layers)


def load_mapping(mapping: Mapping[str, object], source: str = "mapping", overrides: Sequence[str] = ()) -> Config:
    """Load the configuration in plain nested data, with ``key=value`` overrides; problems are cited as ``source``."""
    reader = Reader()
    origin = Origin(source)
    reader.layers.append(locate(mapping, origin).branch or {})
    reader.read_overrides(overrides)
    return resolve_reader(reader, origin).config


def checked(config: Config, source: str) -> Config:
    """Return ``config`` if it is as it was loaded; else check its values as if a file had them.

    `dataclasses.replace`, an assignment and a change in a mapping inside it all pass by the checks of a file.
    Raises :class:`ConfigErrors` with all problems, cited as ``source``.
    """
    if config.checked == digest(config):
        return config
    reader, origin = Reader(), Origin(source)
    reader.layers.append(locate(to_mapping(config), origin).branch or {})
    switch_off_again(reader)
    result = resolve_reader(reader, origin).config
    return replace(result, origins=config.origins, expressions=config.expressions)


def switch_off_again(reader: Reader) -> None:
    """Switch off evaluations and warm start if the layers of a whole configuration do, as the command line would.

    The keys that go with them may stay then: a whole configuration does not show which layer wrote what.
    """
    for key in ("evaluation.size", "sft.steps"):
        written = [get(layer, key) for layer in reader.layers]
        if any(located is not None and located.value == 0 for located in written):
            reader.read_overrides([f"{key}=0"])


def resolve_reader(reader: Reader, source: Origin) -> Resolved:
    """Build the configuration from the layers of a reader; problems without a line are cited at ``source``."""
    problems: list[ConfigProblem] = list(reader.problems)
    notes = list(reader.notes)
    tree: Branch = {}
    roll = roll_origin(reader.layers)
    failures = interpolate(reader.layers)
    for layer in reader.layers:
        # Before merging, so that a name on the command line replaces another name for the same thing in the file.
        rename(layer, notes, problems)
        read_mixture(layer)
        tree = merge(tree, layer)
    report_unresolved(tree, failures, problems)
    report_missing(tree, problems)
    combine(tree, notes, problems)
    adopt(tree, roll, notes)
    translate_values(tree, notes)
    builder = Builder()
    written = dict(origins(tree))
    config = fill_in(with_plugins(builder.section(Config, Located(tree, source))), written)
    broken = builder.broken | {problem.key for problem in problems}
    context = Context(config, written, source, broken)
    # A file that could not be read at all, or whose base could not be, has no values worth judging.
    if not context.broken & {"", EXTENDS}:
        run_checks(context)
    problems += builder.problems + context.problems
    if problems:
        raise ConfigErrors(problems)
    config = replace(config, origins={key: str(origin) for key, origin in written.items()}, checked=digest(config))
    if texts := dict(expressions(tree)):
        plain = to_mapping(config)
        config = replace(config, expressions={path: (text, at(plain, path)) for path, text in texts.items()})
    return Resolved(config, notes, context.warnings)
