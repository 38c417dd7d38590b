"""Words of a shell script, as far as they can be known without running it.

Variables that the script sets are filled in, with their ``${NAME:-default}``; of a ``case`` the branch that
its word selects is read, the first one if the word is unknown; of an ``if`` that compares known words the
body that runs; of a ``for`` over words its first turn. Functions are read where they are called, with their arguments.
A here-document that ``read`` puts into a variable is its value. Bodies of other here-documents, of other ``if`` and of
``while`` are not read.
"""

from __future__ import annotations

import itertools
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from rlinf_import.expansion import ARITHMETIC, COMMAND, OTHER, UNKNOWN, VARIABLE, calculated, expanded, plain
from rlinf_import.shell_text import balanced, blanks, commands_in, is_open, outside, uncommented
from rlinf_import.written import read_text

SHELL = (".sh", ".bash", ".sbatch", ".slurm")
"""Endings of shell scripts, also of batch systems."""
_ASSIGNMENT = re.compile(r"(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
_ALL = re.compile(r"\$[@*]|\$\{[@*][^{}]*\}|\$\{\w+\[[@*]\]\}")
"""All words of the command line, or of an array, whose words are read where it is filled."""
_HERE = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_READ = re.compile(r"read\s+(?:-\w+\s+(?:''\s+)?)*([A-Za-z_]\w*)\s+<<")
"""``read -r -d '' NAME <<EOF``: the here-document becomes the variable."""
_FUNCTION = re.compile(r"(?:function\s+([\w-]+)\s*(?:\(\s*\))?|([\w-]+)\s*\(\s*\))\s*(\{.*)?", re.DOTALL)
_BEFORE_CALL = re.compile(r"[A-Za-z_]\w*=.*|time|nohup|exec|!", re.DOTALL)
_ARGUMENTS = re.compile(r"\$[@*]|\$\{[@*]")
_SHIFT = re.compile(r"shift(?:\s+(\d+))?")
_SOURCED = re.compile(r"(?:source|\.)\s+[\"']?([^\s\"']+\.(?:sh|env))[\"']?")
_TYPOGRAPHIC = str.maketrans(dict.fromkeys("\u201c\u201d\u201e", '"'))
_TYPOGRAPHIC_WORD = re.compile("\u2018([^\u2018\u2019\n]*)\u2019")
_DECLARED = re.compile(r"(?:export|local|readonly|declare)\s+(?!-)")
_LOOP = re.compile(r"for\s+([A-Za-z_]\w*)\s+in\s+(.+)")


_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}


@dataclass(frozen=True)
class Word:
    """One word of a command, with its line; ``known`` is false if it holds the output of another command."""

    text: str
    line: int
    known: bool = True
    array: bool = False
    """Whether it stands in an array, whose words a later command takes."""
    path: Path | None = None
    """The script that holds it."""


@dataclass
class _Case:
    subject: str
    matched: bool = False
    active: bool = False


@dataclass
class _If:
    """An ``if`` whose condition is known: ``active`` is the body that runs, ``matched`` that one was found."""

    active: bool
    matched: bool


@dataclass
class _Loop:
    """A ``for`` over words, of which the first turn is read."""

    active: bool = True


@dataclass
class _Script:
    path: Path
    variables: dict[str, str]
    remarks: list[str]
    blocks: list[_Case | _If | _Loop | None] = field(default_factory=list)
    """Open blocks, the innermost last; None is one whose body is not read."""
    functions: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """The commands of each function, with their lines."""
    called: set[str] = field(default_factory=set)
    arguments: list[str] = field(default_factory=list)
    """Of the function or script that is being read."""
    assumes: bool = False
    """Whether the first body of an ``if`` is read whose condition is not known."""
    array: bool = False
    """Whether an array is open."""

    @property
    def reads(self) -> bool:
        return all(block is not None and block.active for block in self.blocks)


def words_of(path: Path, variables: Mapping[str, str], remarks: list[str], assumes: bool = False) -> list[Word]:
    """Every word of the commands and arrays of the script, in order; ``variables`` win over those that it sets.

    ``assumes``: read the first body of an ``if`` whose condition is not known.
    """
    script = _Script(path, {"HOME": "~", **variables}, remarks, assumes=assumes)
    fixed = set(variables)
    written = read_text(path)
    text = _TYPOGRAPHIC_WORD.sub(r"'\1'", written.translate(_TYPOGRAPHIC))
    if text != written:
        remarks.append(f"{path}: typographic quotation marks are read as plain ones; a shell takes them for letters")
    words = list(_read(script, fixed, _main(script, text)))
    for name in [name for name in script.functions if name not in script.called]:
        words += _read(script, fixed, script.functions[name])
    return words


def _main(script: _Script, text: str) -> list[tuple[int, str]]:
    """Return the commands outside of functions, with their lines; those of functions are kept by name."""
    results: list[tuple[int, str]] = []
    pieces = ((number, piece) for number, line in _lines(text, script) for piece in commands_in(line))
    for number, piece in pieces:
        defined = _FUNCTION.fullmatch(piece)
        if defined is None:
            results.append((number, piece))
            continue
        begun = defined.group(3) or next(pieces, (0, "{"))[1]
        closed = [depth for _, _, depth in outside(begun)][-1:] == [0]
        inner = begun[1:].strip()
        body = [(number, part) for part in commands_in(inner.removesuffix("}") if closed else inner)]
        if not closed:
            body += itertools.takewhile(lambda later: not later[1].startswith("}"), pieces)
        script.functions[defined.group(1) or defined.group(2)] = body
    return results


def _read(script: _Script, fixed: set[str], pieces: Iterable[tuple[int, str]]) -> Iterator[Word]:
    """Read commands in their order; one that calls a function is read as that function's body."""
    for number, piece in pieces:
        name, *arguments = [word for word in _call(piece) if word] or [""]
        if script.reads and (name in ("bash", "sh") or Path(name).suffix in SHELL):
            yield from _started(script, fixed, number, piece)
            continue
        if name not in script.functions or not script.reads:
            yield from _line(script, fixed, number, piece)
            continue
        outer, script.arguments = script.arguments, [expanded(script.variables, word) for word in arguments]
        script.called.add(name)
        _number_arguments(script)
        body = script.functions.pop(name)  # one that calls itself is not read without an end
        yield from _read(script, fixed, body)
        script.functions[name], script.arguments = body, outer
        _number_arguments(script)


def _started(script: _Script, fixed: set[str], number: int, piece: str) -> Iterator[Word]:
    """Read a script that a command starts, with its arguments, if it lies here; else the command's own words."""
    words = itertools.dropwhile(lambda word: Path(word).suffix not in SHELL, _call(piece))
    name, *arguments = [*words] or [""]
    file = _near(script, expanded(script.variables, name)) if name else None
    if file is None:
        if name:
            script.remarks.append(f"{script.path}:{number}: {name} is not here: what it sets is not read")
        yield from _line(script, fixed, number, piece)
        return
    for word in itertools.takewhile(_ASSIGNMENT.fullmatch, shlex.split(piece, comments=True)):
        variable, _, value = word.partition("=")
        if variable not in fixed:
            script.variables[variable] = expanded(script.variables, value)
    filled_arguments = [
        filled
        for word in arguments
        for filled in ([*script.arguments] if _ALL.fullmatch(word) else _filled_words(script, piece, word))
    ]
    outer = script.path, script.arguments, script.blocks, script.functions
    script.path, script.arguments, script.blocks, script.functions = file, filled_arguments, [], {}
    _number_arguments(script)
    yield from _read(script, fixed, _main(script, read_text(file)))
    script.path, script.arguments, script.blocks, script.functions = outer
    _number_arguments(script)


def _filled_words(script: _Script, line: str, written: str) -> list[str]:
    return _words(line, written, expanded(script.variables, written))


def _near(script: _Script, text: str) -> Path | None:
    """Find a script in the folder of this one, or by its folder and name in the three above."""
    parts = [part for part in Path(text.replace(UNKNOWN, "")).parts if part not in ("/", ".", "..")]
    folders = list(script.path.resolve().parents)[:4]
    ends = [parts[start:] for start in range(len(parts))]
    files = (folder.joinpath(*end) for end in ends for folder in (folders if len(end) > 1 else folders[:1]))
    return next((file for file in files if file.is_file() and file != script.path.resolve()), None)


def _call(piece: str) -> list[str]:
    """Return the words of a command from its name on, up to what redirects its output."""
    try:
        words = shlex.split(piece, comments=True)
    except ValueError:
        return []
    words = list(itertools.dropwhile(_BEFORE_CALL.fullmatch, words))
    return list(itertools.takewhile(lambda word: not re.match(r"[|&;]|\d?>", word), words))


def _number_arguments(script: _Script) -> None:
    """Set ``$1``, ``$2``, ... to the arguments of the function."""
    for name in [name for name in script.variables if name.isdigit()]:
        del script.variables[name]
    script.variables.update({str(number): word for number, word in enumerate(script.arguments, 1)})


def _lines(text: str, script: _Script) -> Iterator[tuple[int, str]]:
    """Logical lines without comments: a backslash, or an open quotation mark, goes on in the next line.

    A comment between the lines of a command ends it in a shell, which is hardly meant: it goes on here, with a remark.
    """
    waiting, start, here = "", 0, ""
    name, body = "", list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if here:
            here = "" if line.strip() == here else here
            if name and not here:
                yield number - len(body), f"{name}={shlex.quote(chr(10).join(body))}"
            body.append(line)
            continue
        if not is_open(waiting):
            kept = uncommented(line)
            within = bool(waiting) and not kept.strip()
            if kept != line and (within or (line.endswith("\\") and kept.strip())):
                script.remarks.append(
                    f"{script.path}:{number}: in a shell this comment ends the command, and the lines after it do not "
                    "belong to it: they are read as if they did"
                )
                kept = f"{kept} \\"
            line = kept
        document = _HERE.search(line) if "<<<" not in line else None
        here = document.group(2) if document else ""
        held = _READ.match(line.strip()) if document else None
        name, body = held.group(1) if held else "", []
        if held:
            continue
        start = start or number
        waiting += line
        if waiting.endswith("\\"):
            waiting = waiting[:-1] + " "
            continue
        if is_open(waiting):
            waiting += "\n"
            continue
        yield start, waiting
        waiting, start = "", 0
    if waiting and is_open(waiting):
        script.remarks.append(f"{script.path}:{start}: a quotation mark is not closed: it is left out")
        waiting = balanced(waiting)
    if waiting:
        yield start, waiting


def _line(script: _Script, fixed: set[str], number: int, line: str) -> Iterator[Word]:
    stripped = line.strip()
    if not stripped or stripped.startswith("#") or _block(script, number, stripped) or not script.reads:
        return
    if shifted := _SHIFT.fullmatch(stripped):
        script.arguments = script.arguments[int(shifted.group(1) or 1) :]
        _number_arguments(script)
        return
    if sourced := _SOURCED.fullmatch(stripped):
        named = Path(expanded(script.variables, sourced.group(1)))
        file = next((file for file in (script.path.parent / named, named) if file.is_file()), None)
        if file is None:
            script.remarks.append(f"{script.path}:{number}: {named} is not here: what it sets is not read")
        else:
            yield from _read(script, fixed, _main(script, read_text(file)))
        return
    declared = _DECLARED.match(stripped)
    several = blanks(stripped[declared.end() :]) if declared else []
    if len(several) > 1 and all(_ASSIGNMENT.fullmatch(one) for one in several):
        for one in several:
            yield from _line(script, fixed, number, one)
        return
    assigned = _ASSIGNMENT.fullmatch(stripped)
    if assigned and not _ARRAY.match(stripped) and _single(assigned.group(3)):
        name, more, value = assigned.groups()
        if name not in fixed:
            text = expanded(script.variables, plain(value))
            script.variables[name] = script.variables.get(name, "") + text if more else text
        return
    script.array = script.array or _ARRAY.match(stripped) is not None
    # Arithmetic and commands hold blanks of their own: they become words before the line is split into some.
    body = OTHER.sub(
        UNKNOWN, COMMAND.sub(UNKNOWN, calculated(script.variables, _ARRAY.sub("", _ALL.sub("", stripped), 1)))
    )
    texts = shlex.split(body.removesuffix(")") if body != stripped else body, comments=True)
    for index, text in enumerate(texts):
        if index > 1 and re.fullmatch(r"-\w*c", texts[index - 1]) and Path(texts[index - 2]).name in ("bash", "sh"):
            yield from _read(script, fixed, ((number, piece) for _, piece in _main(script, text)))
            continue
        for filled in _words(body, text, expanded(script.variables, text)):
            if filled not in ("", ")", "(", "\\"):
                yield _word(script, filled, number)
    script.array = script.array and not stripped.endswith(")")
    if _ARGUMENTS.search(stripped):
        yield from (_word(script, word, number) for word in script.arguments)


def _word(script: _Script, text: str, number: int) -> Word:
    shown = text.replace(f"{UNKNOWN}$", "$").replace(UNKNOWN, "...")
    return Word(shown, number, UNKNOWN not in text, script.array, script.path)


def _words(line: str, written: str, filled: str) -> list[str]:
    """Split a written word into its words: a variable by itself and without quotation marks holds several."""
    if VARIABLE.fullmatch(written) and f'"{written}"' not in line:
        return [word.replace("'", "").replace('"', "") for word in filled.split()]
    return [filled]


def _block(script: _Script, number: int, line: str) -> bool:
    """Whether the line opens, closes or divides a block, which it then does."""
    case = re.fullmatch(r"case\s+(.+?)\s+in", line)
    if case:
        subject = expanded(script.variables, plain(case.group(1)), unset="")
        if UNKNOWN in subject:
            script.remarks.append(f"{script.path}:{number}: the first branch of `{line}` is read")
        script.blocks.append(_Case(subject))
        return True
    if _conditional(script, line):
        return True
    loop = _LOOP.fullmatch(line)
    if loop:
        turns = shlex.split(expanded(script.variables, loop.group(2)), comments=True)
        if script.reads:
            script.variables[loop.group(1)] = turns[0] if turns else UNKNOWN
            script.remarks.append(f"{script.path}:{number}: of `{line[:60]}` the first turn is read")
        script.blocks.append(_Loop())
        return True
    if script.assumes and re.match(r"if\b", line):
        script.blocks.append(_If(script.reads, True))
        script.remarks.append(f"{script.path}:{number}: the body of `{line[:60]}` is read")
        return True
    if re.match(r"(if|for|while|until)\b", line):
        script.blocks.append(None)
        if script.reads or len(script.blocks) == 1:
            script.remarks.append(f"{script.path}:{number}: what `{line[:60]}` decides is not read")
        return True
    if re.match(r"(esac|fi|done)\b", line):
        if script.blocks:
            script.blocks.pop()
        return True
    if re.match(r"(else|elif|then|do)\b", line):
        return True
    return bool(script.blocks) and _branch(script, line)


def _conditional(script: _Script, line: str) -> bool:
    """Open an ``if`` of known words, or go on to another body of it; whether the line did so."""
    opened = re.fullmatch(r"(if|elif)\s+\[\[?\s+(.+?)\s+\]\]?\s*;?\s*(then)?", line)
    block = script.blocks[-1] if script.blocks else None
    if opened and opened.group(1) == "if":
        truth = _condition(script, opened.group(2))
        if truth is None:
            return False
        script.blocks.append(_If(truth, truth))
        return True
    if not isinstance(block, _If) or not re.match(r"(elif|else)\b", line):
        return False
    truth = True if opened is None else bool(_condition(script, opened.group(2)))
    block.active = truth and not block.matched
    block.matched = block.matched or truth
    return True


def _condition(script: _Script, text: str) -> bool | None:
    """Evaluate a comparison of words, or the test whether one is empty; None if a word is not known."""
    try:
        parts = shlex.split(text)
        if script.arguments:
            parts = [str(len(script.arguments)) if part == "$#" else part for part in parts]
        empty = None if script.assumes and parts[:1] not in (["-z"], ["-n"]) else ""
        words = [expanded(script.variables, word, unset=empty) for word in parts]
    except ValueError:
        return None
    if any(UNKNOWN in word or re.search(r"\$[@#*?\d]", word) for word in words):
        return None
    if len(words) == 3 and words[1] in _NUMBERS and all(word.isdecimal() for word in words[::2]):
        return _NUMBERS[words[1]](int(words[0]), int(words[2]))
    match words:
        case [left, "=" | "==" | "-eq", right]:
            return left == right
        case [left, "!=" | "-ne", right]:
            return left != right
        case ["-z", word]:
            return not word
        case ["-n", word]:
            return bool(word)
    return None


def _branch(script: _Script, line: str) -> bool:
    block = script.blocks[-1]
    if block is None:
        return True
    if not isinstance(block, _Case):
        return False
    if line == ";;":
        block.active = False
        return True
    pattern = re.fullmatch(r"\(?([^()\s][^()]*?)\)\s*(;;)?", line)
    if pattern is None or "=" in line or block.active:
        return False
    choices = [choice.strip().strip("\"'") for choice in pattern.group(1).split("|")]
    fits = UNKNOWN in block.subject or any(fnmatchcase(block.subject, choice) for choice in choices)
    block.active = fits and not block.matched and pattern.group(2) is None
    block.matched = block.matched or fits
    return True


def _single(value: str) -> bool:
    """Whether nothing follows the assignment: ``A=1 command`` sets the variable for that command alone."""
    return len(shlex.split(COMMAND.sub("x", ARITHMETIC.sub("1", value)), comments=True)) <= 1
