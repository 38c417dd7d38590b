"""From a file of another framework to a finished sheet."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, Located, merge, put
from rlinf_import import rlinf, roll, sb3_script, sb3_zoo, stable_baselines3, trl, trl_script, verl
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
from rlinf_import.refusal import NotOfferedError, NotTrainingError
from rlinf_import.sb3_tables import DEFAULTS as SB3_DEFAULTS
from rlinf_import.settle import settle
from rlinf_import.sheet import Options, Sheet
from rlinf_import.shell import SHELL, Word, words_of
from rlinf_import.written import Code, Source, document, override, resolve, scalar

_HYDRA = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_PROGRAM = re.compile(
    r"(?:[a-z_]\w*\.)*(?:main|\w*main_\w+|\w*_main|\w*main|\w*sft_trainer(?:_ray)?|model_merger|launch_server|\w*data_process|\w*proxy)"
)
"""Modules and programs that a script starts."""
_TRAINS = re.compile(r"(?:[a-z_]\w*\.)+(?:main_ppo\w*|main_\w*ppo|\w*sft_trainer(?:_ray)?)")
"""Modules of verl that train."""
_CHOICE = re.compile(r"(engine|optim|model_engine|ulysses_sequence_parallel_size|use_remove_padding)=([\w.-]+)")
"""Words of verl's commands without a section: groups of Hydra, and settings of its supervised training."""
_GROUPS = ("engine", "optim", "model_engine")
_LAUNCHED = re.compile(r"--(nnodes|nproc[_-]per[_-]node)=(\d+)")
_SCRIPTS = ("sft", "dpo", "grpo", "rloo")
"""Scripts of TRL that its commands start, by the names of their files."""
_FLAG = re.compile(r"--([A-Za-z_][\w-]*)(?:=(.*))?", re.DOTALL)


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
    if path.suffix in (".yaml", ".yml", ".json"):
        return read_yaml(path)
    if path.suffix in SHELL and peer in ("verl", "trl"):
        return _command(peer, path, variables)
    if path.suffix in SCRIPTS and peer == "trl":
        return trl_script.read(path)
    kinds = {"trl": ".yaml, .json, .sh, .py or .ipynb", "verl": ".sh, .slurm or .yaml"}.get(peer, ".yaml")
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


def _command(peer: str, path: Path, variables: Mapping[str, str]) -> Source:
    """Read the overrides (verl) or the flags (TRL) of a shell script."""
    remarks: list[str] = []
    words = words_of(path, variables, remarks)
    tree: Branch = {}
    waiting: tuple[str, Origin] | None = None
    for word in _first_command(words, path, remarks):
        origin = Origin(str(path), word.line)
        hydra = _HYDRA.fullmatch(word.text) if peer == "verl" else None
        flag = _FLAG.fullmatch(word.text) if peer == "trl" else None
        choice = _CHOICE.fullmatch(word.text) if peer == "verl" else None
        launched = _LAUNCHED.fullmatch(word.text) if peer == "verl" else None
        if hydra:
            put(tree, hydra.group(1), _value(hydra.group(2), word.known, origin))
        elif choice:
            name = f"hydra_choice.{choice.group(1)}" if choice.group(1) in _GROUPS else choice.group(1)
            put(tree, name, _value(choice.group(2), word.known, origin))
        elif launched:
            put(tree, f"torchrun.{launched.group(1).replace('-', '_')}", scalar(launched.group(2), origin))
        elif flag:
            name, given = flag.group(1).replace("-", "_"), flag.group(2)
            positive = name.removeprefix("no_")
            if given is None and positive != name and name not in PEERS[peer].names:
                tree[positive], waiting = Located(False, origin), None
                continue
            waiting = None if given is not None else (name, origin)
            tree[name] = Located(True, origin) if given is None else _value(given, word.known, origin)
        elif peer == "trl" and word.text.endswith(".py"):
            waiting = None  # the launcher's own arguments end with the script
        elif waiting is not None and (word.known or tree[waiting[0]].value is True):
            _append(tree, waiting[0], _value(word.text.rstrip(","), word.known, waiting[1]))
    programs = [word.text for word in words if peer == "verl" and _PROGRAM.fullmatch(word.text)]
    if peer == "trl":
        programs += [after.text for word, after in itertools.pairwise(words) if word.text == "trl"]
        stems = [Path(word.text).stem for word in words if word.text.endswith(".py")]
        programs += [stem for stem in stems if stem in _SCRIPTS]
    if not tree and not programs:
        form = "section.key=value" if peer == "verl" else "--flag value"
        kind = f"a script that trains nothing and holds no word of the form {form}"
        raise NotTrainingError(path, kind, f"Import a script that starts {PEERS[peer].title}.")
    if peer == "trl":
        tree = _with_files(tree, path, remarks)
    elif own := [word for word in words if word.text.startswith("--config-name")]:
        remarks.append(f"{path}:{own[0].line}: --config-name: what that file sets is not read: verl's defaults stand")
    return Source(path, tree, remarks, programs)


def _with_files(tree: Branch, path: Path, remarks: list[str]) -> Branch:
    """Lay the flags of a command over the YAML file of its ``--config``; read the launcher's processes from its own."""
    settings, launcher = (_file_of(tree, name, path, remarks) for name in ("config", "config_file"))
    if launcher is not None and "num_processes" in launcher:
        tree.setdefault("num_processes", launcher["num_processes"])
    return tree if settings is None else merge(settings, {**tree, "config": Located(None, tree["config"].origin)})


def _file_of(tree: Branch, name: str, path: Path, remarks: list[str]) -> Branch | None:
    """Return what the YAML file that a flag names holds; None, with a remark, if it is not here."""
    given = tree.get(name)
    if given is None or not isinstance(given.value, str):
        return None
    file = next((file for file in (Path(given.value), path.parent / given.value) if file.is_file()), None)
    if file is None:
        remarks.append(f"{given.origin}: {name}: {given.value} is not here: what it sets is not read")
        return None
    return document(file)


def _first_command(words: Sequence[Word], path: Path, remarks: list[str]) -> Sequence[Word]:
    """Return the words up to the second program that trains, which is remarked on."""
    starts = [index for index, word in enumerate(words) if _TRAINS.fullmatch(word.text)]
    if len(starts) < 2:
        return words
    second = words[starts[1]]
    remarks.append(f"{path}:{second.line}: {second.text}: the first command that trains is read, and this one is not")
    return words[: starts[1]]


def _value(text: str, known: bool, origin: Origin) -> Located:
    """Return the value of a word; code if it holds what another command prints."""
    return scalar(text, origin) if known else Located(Code(text), origin)


def _append(tree: Branch, name: str, value: Located) -> None:
    """Extend a flag by a further word: the first one is its value, more of them make a list."""
    before = tree[name]
    if before.value is True:
        tree[name] = value
    elif isinstance(before.value, list):
        before.value.append(value)
    else:
        tree[name] = Located([before, value], value.origin)
