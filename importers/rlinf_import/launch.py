"""Launch scripts: the overrides (verl) or the flags (TRL, OpenRLHF) of the command that trains."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, Located, drop, merge, put
from rlinf_import.hydra import with_defaults
from rlinf_import.refusal import NotTrainingError
from rlinf_import.shell import Word, words_of
from rlinf_import.written import Code, Source, document, leaves_below, scalar, upwards

_HYDRA = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_PROGRAM = re.compile(
    r"(?:[a-z_]\w*\.)*(?:main|\w*main_\w+|\w*_main|\w*main|\w*sft_trainer(?:_ray)?|model_merger|launch_server|\w*data_process|\w*proxy)"
)
"""Modules and programs that a script starts."""
_TRAINS = re.compile(r"(?:[a-z_]\w*\.)+(?:main_ppo\w*|main_\w*ppo|\w*sft_trainer(?:_ray)?)")
"""Modules of verl that train."""
_SHORT = re.compile(r"\+{0,2}([a-z_][a-z_\d]*(?:/\w+)*)=(.*)", re.DOTALL)
"""Overrides of keys without a section, and choices of a group of files."""
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*|torchrun")
_CHOICE = re.compile(r"(engine|optim|model_engine|ulysses_sequence_parallel_size|use_remove_padding)=([\w.-]+)")
"""Words of verl's commands without a section: groups of Hydra, and settings of its supervised training."""
_OF_VERL = ("ppo_trainer", "ppo_megatron_trainer")
"""Configurations of verl itself."""
_GROUPS = ("engine", "optim", "model_engine")
_LAUNCHED = re.compile(r"--(nnodes|nproc[_-]per[_-]node)=(\d+)")
_SCRIPTS = ("sft", "dpo", "grpo", "rloo")
"""Scripts of TRL that its commands start, by the names of their files."""
_FLAG = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)
_OPENRLHF = re.compile(r"openrlhf\.cli\.(\w+)|(?:\S*/)?(train_\w+)\.py")
_OPENRLHF_TRAINS = re.compile(r"openrlhf\.cli\.train_\w+|(?:\S*/)?train_\w+\.py")
_TRL = re.compile(r"trl|\S+\.py")
"""What starts TRL."""
_ENDS = re.compile(r"[|&;]+|\d?>.*")
"""What ends the words of a command."""


def overrides(path: Path, variables: Mapping[str, str], known: Container[str]) -> Source:
    """Read the overrides of a script that starts verl; ``known`` are verl's keys."""
    remarks: list[str] = []
    words = _words(path, variables, remarks, _HYDRA)
    tree: Branch = {}
    chosen = _first_command(words, path, remarks)
    commands = {_origin(word, path) for word in chosen if _HYDRA.fullmatch(word.text)}
    for word in chosen:
        origin = _origin(word, path)
        if hydra := _HYDRA.fullmatch(word.text):
            put(tree, hydra.group(1), _value(hydra.group(2), word.known, origin))
        elif choice := _CHOICE.fullmatch(word.text):
            name = f"hydra_choice.{choice.group(1)}" if choice.group(1) in _GROUPS else choice.group(1)
            put(tree, name, _value(choice.group(2), word.known, origin))
        elif (short := _SHORT.fullmatch(word.text)) and origin in commands:
            name = short.group(1)
            put(
                tree,
                f"hydra_choice.{name.replace('/', '_')}" if "/" in name else name,
                _value(short.group(2), word.known, origin),
            )
        elif launched := _LAUNCHED.fullmatch(word.text):
            put(tree, f"torchrun.{launched.group(1).replace('-', '_')}", scalar(launched.group(2), origin))
    programs = [word.text for word in words if _PROGRAM.fullmatch(word.text)]
    _require(path, tree, programs, "section.key=value", "verl")
    return Source(path, _over_configuration(tree, chosen, path, remarks, known), remarks, programs)


def _over_configuration(
    tree: Branch, words: Sequence[Word], path: Path, remarks: list[str], known: Container[str]
) -> Branch:
    """Lay the overrides over the file of ``--config-name`` that lies here: a project's own, or a copy of verl's.

    Of a copy of verl's own configuration the form of 2025 is read, which is one file with all defaults, as far as its
    keys are verl's.
    """
    options: dict[str, str] = {}
    origin = Origin(str(path))
    for word, after in itertools.pairwise([*words, Word("", 0)]):
        option, equals, value = word.text.partition("=")
        if option in ("--config-name", "--config-path", "--config-dir"):
            options[option] = value if equals else after.text
            origin = _origin(word, path)
    name = options.get("--config-name", "ppo_trainer").removesuffix(".yaml")
    folders = [path.parent / options[option] for option in ("--config-path", "--config-dir") if option in options]
    own = next(
        (file for folder in (*folders, path.parent / "config") if (file := folder / f"{name}.yaml").is_file()), None
    )
    if own is not None and "--config-name" in options:
        return merge(with_defaults(document(own), own, remarks), tree)
    copies = (folder / "verl" / "trainer" / "config" / f"{name}.yaml" for folder in list(path.resolve().parents)[:4])
    copy = next((file for file in copies if file.is_file()), None)
    if copy is not None and any("main_ppo" in word.text for word in words):
        below = document(copy)
        if "defaults" not in below:
            for column in ("image_key", "video_key"):  # named there for every model
                drop(below, f"data.{column}")
            added = [key for key, _ in leaves_below(below) if not any(name in known for name in upwards(key))]
            for key in added:
                drop(below, key)
            others = f"; its keys {', '.join(added[:12])} are none of verl's, and were not read" if added else ""
            remarks.append(f"{copy}: what the script leaves out is read from this file{others}")
            return merge(below, tree)
        below.pop("defaults")
        if name not in _OF_VERL:
            remarks.append(f"{copy}: its own keys are read, for the others verl's defaults stand")
            return merge(below, tree)
    if "--config-name" in options:
        remarks.append(f"{origin}: --config-name: what that file sets is not read: verl's defaults stand")
    return tree


def trl_flags(path: Path, variables: Mapping[str, str], known: Container[str]) -> Source:
    """Read the flags of a script that starts TRL; ``known`` are names of flags that may begin with ``no_``."""
    remarks: list[str] = []
    words = _words(path, variables, remarks, _TRL)
    # The launcher's own arguments end with the script.
    tree = _flags([replace(word, text=";") if word.text.endswith(".py") else word for word in words], path, known)
    each, nodes = (tree.get(name) for name in ("nproc_per_node", "nnodes"))
    if each is not None and isinstance(each.value, int) and "num_processes" not in tree:
        machines = nodes.value if nodes is not None and isinstance(nodes.value, int) else 1
        tree["num_processes"] = Located(each.value * machines, each.origin)
    programs = [after.text for word, after in itertools.pairwise(words) if word.text == "trl"]
    stems = [Path(word.text).stem for word in words if word.text.endswith(".py")]
    programs += [stem for stem in stems if stem in _SCRIPTS]
    _require(path, tree, programs, "--flag value", "TRL")
    return Source(path, _with_files(tree, path, remarks), remarks, programs)


def openrlhf_flags(path: Path, variables: Mapping[str, str]) -> Source:
    """Read the flags of OpenRLHF's first program that trains, and of arrays that its command takes."""
    remarks: list[str] = []
    words = _words(path, variables, remarks, _OPENRLHF_TRAINS)
    matches = [(index, match) for index, word in enumerate(words) if (match := _OPENRLHF.fullmatch(word.text))]
    programs = [match.group(1) or match.group(2) for _, match in matches]
    start = next((number for number, name in enumerate(programs) if name.startswith("train_")), 0)
    if not matches:
        _require(path, {}, [], "openrlhf.cli.PROGRAM", "OpenRLHF")
    first = matches[start][0]
    command = _origin(words[first], path)
    launched = [word for word in words[:first] if _origin(word, path) == command]
    own = itertools.takewhile(
        lambda word: _origin(word, path) == command and not _ENDS.fullmatch(word.text), words[first + 1 :]
    )
    arrays = [word for word in words if word.array]
    for index, match in matches[start + 1 :]:
        name, other = match.group(1) or match.group(2), _origin(words[index], path)
        if other != command and name.startswith("train_"):
            remarks.append(f"{other}: {name}: the first command that trains is read, and this one is not")
    tree = _flags([*arrays, *own], path, None)
    for word, after in itertools.pairwise(launched):
        if word.text == "--num_gpus":
            put(tree, "num_gpus", scalar(after.text, command))
    return Source(path, tree, remarks, programs[start:])


def _words(path: Path, variables: Mapping[str, str], remarks: list[str], kind: re.Pattern[str]) -> list[Word]:
    """Return the words of a script; without one of a kind, those within an ``if`` of an unknown condition too."""
    words = words_of(path, variables, remarks)
    if any(kind.fullmatch(word.text) for word in words):
        return words
    others: list[str] = []
    assumed = words_of(path, variables, others, assumes=True)
    if not any(kind.fullmatch(word.text) for word in assumed):
        return words
    remarks[:] = others
    return assumed


def _origin(word: Word, path: Path) -> Origin:
    return Origin(str(word.path or path), word.line)


def _flags(words: Sequence[Word], path: Path, known: Container[str] | None) -> Branch:
    """Read ``--flag``, ``--flag value`` and ``--flag=value``; several words make a list.

    ``known``: flags that may begin with ``no_``, which turns off others; None turns off none.
    """
    tree: Branch = {}
    waiting: Located | None = None
    for word in words:
        origin = _origin(word, path)
        if waiting is not None and waiting.origin != origin:
            waiting = None
        if flag := _FLAG.fullmatch(word.text):
            name, given = flag.group(1).replace("-", "_"), flag.group(2)
            positive = name.removeprefix("no_")
            off = known is not None and given is None and positive != name and name not in known
            located = Located(not off, origin) if given is None else _value(given, word.known, origin)
            put(tree, positive if off else name, located)
            waiting = None if off or given is not None else located
        elif _ENDS.fullmatch(word.text):
            waiting = None
        elif waiting is not None and (word.known or waiting.value is True):
            _append(waiting, _value(word.text.rstrip(","), word.known, origin))
    return tree


def _require(path: Path, tree: Branch, programs: Sequence[str], form: str, title: str) -> None:
    """Raise NotTrainingError for a script without a setting and without a program."""
    if not tree and not programs:
        kind = f"a script that trains nothing and holds no word of the form {form}"
        raise NotTrainingError(path, kind, f"Import a script that starts {title}.")


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
    """Return the words of the first command that trains, with those of arrays; later ones are remarked on.

    Without a module of verl it is the first command with overrides that python starts.
    """
    commands = {_origin(word, path): word for word in words if _TRAINS.fullmatch(word.text)}
    if not commands:
        started = {_origin(word, path) for word in words if _PYTHON.fullmatch(word.text)}
        settings = [word for word in words if _HYDRA.fullmatch(word.text) and not word.array]
        commands = {where: word for word in settings if (where := _origin(word, path)) in started}
    if len(commands) < 2:
        return words
    _, *later = commands
    for where in later:
        name = commands[where].text.partition("=")[0]
        remarks.append(f"{where}: {name}: the first command that trains is read, and this one is not")
    return [word for word in words if _origin(word, path) not in later]


def _value(text: str, known: bool, origin: Origin) -> Located:
    """Return the value of a word; code if it holds what another command prints."""
    return scalar(text, origin) if known else Located(Code(text), origin)


def _append(before: Located, value: Located) -> None:
    """Extend a flag by a further word: the first one is its value, more of them make a list."""
    if before.value is True:
        before.value = value.value
    elif isinstance(before.value, list):
        before.value.append(value)
    else:
        before.value = [Located(before.value, before.origin), value]
