"""Launch scripts: the overrides (verl) or the flags (TRL, OpenRLHF) of the command that trains."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, Located, merge, put
from rlinf_import.hydra import with_defaults
from rlinf_import.refusal import NotTrainingError
from rlinf_import.shell import Word, words_of
from rlinf_import.written import Code, Source, document, scalar

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
_GROUPS = ("engine", "optim", "model_engine")
_LAUNCHED = re.compile(r"--(nnodes|nproc[_-]per[_-]node)=(\d+)")
_SCRIPTS = ("sft", "dpo", "grpo", "rloo")
"""Scripts of TRL that its commands start, by the names of their files."""
_FLAG = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)
_OPENRLHF = re.compile(r"openrlhf\.cli\.(\w+)|(?:\S*/)?(train_\w+)\.py")
_SERVES = ("serve_rm", "batch_inference", "interactive_chat", "lora_combiner")
"""Programs of OpenRLHF that do not train."""
_TRL = re.compile(r"trl|\S+\.py")
"""What starts TRL."""
_ENDS = re.compile(r"[|&;]+|\d?>.*")
"""What ends the words of a command."""


def overrides(path: Path, variables: Mapping[str, str]) -> Source:
    """Read the overrides of a script that starts verl."""
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
    return Source(path, _over_configuration(tree, chosen, path, remarks), remarks, programs)


def _over_configuration(tree: Branch, words: Sequence[Word], path: Path, remarks: list[str]) -> Branch:
    """Lay the overrides over the file of ``--config-name``, if it is a project's own and lies here."""
    given: dict[str, str] = {}
    origin = Origin(str(path))
    for word, after in itertools.pairwise([*words, Word("", 0)]):
        option, equals, value = word.text.partition("=")
        if option in ("--config-name", "--config-path", "--config-dir"):
            given[option] = value if equals else after.text
            origin = _origin(word, path)
    name = given.get("--config-name")
    if name is None:
        return tree
    folders = [given[option] for option in ("--config-path", "--config-dir") if option in given]
    files = [path.parent / folder / f"{name.removesuffix('.yaml')}.yaml" for folder in (*folders, "config")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        remarks.append(f"{origin}: --config-name: what that file sets is not read: verl's defaults stand")
        return tree
    return merge(with_defaults(document(file), file, remarks), tree)


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
    words = _words(path, variables, remarks, _OPENRLHF)
    found = [(index, match) for index, word in enumerate(words) if (match := _OPENRLHF.fullmatch(word.text))]
    programs = [match.group(1) or match.group(2) for _, match in found]
    start = next((number for number, name in enumerate(programs) if name not in _SERVES), 0)
    if not found:
        _require(path, {}, [], "openrlhf.cli.PROGRAM", "OpenRLHF")
    first = found[start][0]
    command = _origin(words[first], path)
    launched = [word for word in words[:first] if _origin(word, path) == command]
    own = itertools.takewhile(
        lambda word: _origin(word, path) == command and not _ENDS.fullmatch(word.text), words[first + 1 :]
    )
    arrays = [word for word in words if word.array]
    for index, match in found[start + 1 :]:
        name, other = match.group(1) or match.group(2), _origin(words[index], path)
        if other != command and name not in _SERVES:
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
