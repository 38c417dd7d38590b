"""From a file of another framework to a finished sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf_import import (
    launch,
    openrlhf,
    rlinf,
    roll,
    sb3_script,
    sb3_zoo,
    stable_baselines3,
    trl,
    trl_script,
    verl,
    verl_names,
)
from rlinf_import.account import close
from rlinf_import.fitting import fit
from rlinf_import.hydra import read_yaml
from rlinf_import.names.meaning import Meaning
from rlinf_import.names.rlinf import RLINF
from rlinf_import.names.roll import ROLL
from rlinf_import.names.stable_baselines3 import STABLE_BASELINES3
from rlinf_import.names.trl import TRL
from rlinf_import.names.verl import VERL
from rlinf_import.python_calls import SCRIPTS
from rlinf_import.refusal import NotOfferedError
from rlinf_import.sb3_tables import DEFAULTS as SB3_DEFAULTS
from rlinf_import.settle import settle
from rlinf_import.sheet import Options, Sheet
from rlinf_import.shell import SHELL
from rlinf_import.written import Source, override, resolve


def _any(source: Source) -> None:
    """Every file of a peer that has no others."""


@dataclass(frozen=True)
class Peer:
    """A framework whose files are read."""

    title: str
    names: Mapping[str, Meaning]
    translate: Callable[[Sheet], None]
    defaults: Mapping[str, object]
    recognise: Callable[[Source], None] = _any
    """Raises NotTrainingError for a file that trains nothing."""


PEERS: Mapping[str, Peer] = {
    "trl": Peer("TRL", {**TRL, **trl.NAMES}, trl.translate, trl.DEFAULTS, trl.recognise),
    "verl": Peer("verl", {**VERL, **verl.NAMES}, verl.translate, verl.DEFAULTS, verl.recognise),
    "roll": Peer("ROLL", {**ROLL, **roll.NAMES}, roll.translate, roll.DEFAULTS, roll.recognise),
    "openrlhf": Peer("OpenRLHF", openrlhf.NAMES, openrlhf.translate, openrlhf.DEFAULTS, openrlhf.recognise),
    "rlinf": Peer("RLinf", {**RLINF, **rlinf.NAMES}, rlinf.translate, rlinf.DEFAULTS, rlinf.recognise),
    "sb3": Peer(
        "Stable-Baselines3",
        {**STABLE_BASELINES3, **stable_baselines3.NAMES},
        stable_baselines3.translate,
        {},
    ),
}


def imported(peer: str, path: Path, words: Sequence[str] = (), options: Options | None = None) -> Sheet:
    """Import the sheet of a file; ``words`` are the rest of the peer's command line, as ``key=value``.

    Raises UserError for a file that cannot be read, and for a kind of file that the peer does not have.
    """
    framework = PEERS[peer]
    options = options or Options()
    given = dict(_pair(word) for word in words)
    variables = {name: value for name, value in given.items() if path.suffix in SHELL and "." not in name}
    defaults = framework.defaults
    if peer == "sb3":
        source, algorithm, environment = _baselines(path, options)
        defaults = SB3_DEFAULTS[algorithm]
        options = replace(options, algorithm=algorithm, environment=environment)
    else:
        source = _source(peer, path, variables)
    override(source, {name: value for name, value in given.items() if name not in variables})
    framework.recognise(source)
    resolve(source)
    sheet = translated(framework, source, options, defaults)
    fit(sheet)
    settle(sheet)
    return sheet


def translated(peer: Peer, source: Source, options: Options, defaults: Mapping[str, object]) -> Sheet:
    """Translate what was read into a sheet, with every key accounted for and nothing checked yet.

    Raises NotOfferedError for features that do not exist here.
    """
    sheet = Sheet(peer.title, source, options, peer.names, defaults)
    peer.translate(sheet)
    if sheet.missing:
        raise NotOfferedError(source.path, sheet.missing)
    close(sheet)
    return sheet


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.lstrip("+-").partition("=")
    if not equals or not name:
        raise UserError(f"{word} is not of the form key=value")
    return name, value


def _source(peer: str, path: Path, variables: Mapping[str, str]) -> Source:
    if path.suffix in (".yaml", ".yml", ".json") and peer != "openrlhf":
        return read_yaml(path)
    if path.suffix in SHELL and peer == "verl":
        return launch.overrides(path, variables, {**PEERS[peer].names, **verl.DEFAULTS, **verl_names.MOVED})
    if path.suffix in SHELL and peer == "trl":
        return launch.trl_flags(path, variables, PEERS[peer].names)
    if path.suffix in SHELL and peer == "openrlhf":
        return launch.openrlhf_flags(path, variables)
    if path.suffix in SCRIPTS and peer == "trl":
        return trl_script.read(path)
    kinds = {
        "trl": ".yaml, .json, .sh, .py or .ipynb",
        "verl": ".sh, .slurm or .yaml",
        "openrlhf": ".sh or .slurm",
    }.get(peer, ".yaml")
    raise UserError(f"{path}: {PEERS[peer].title}'s settings are read from a {kinds} file")


def _baselines(path: Path, options: Options) -> tuple[Source, str, str | None]:
    entry = path.suffix == ".py" and options.environment is not None and sb3_zoo.entries(path)
    if path.suffix in (".yaml", ".yml") or entry:
        return sb3_zoo.read(path, options.environment, options.algorithm)
    if path.suffix in SCRIPTS:
        source, algorithm, environment = sb3_script.read(path, options.algorithm)
        return source, algorithm, options.environment or environment
    raise UserError(
        f"{path}: Stable-Baselines3's settings are read from a .yml file of RL Zoo, or a .py or .ipynb script"
    )
