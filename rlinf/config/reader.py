"""YAML text to a tree with line numbers, with ``extends`` followed and overrides laid on top."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import yaml

from rlinf.base.hydra_words import replacement
from rlinf.base.yaml_text import compose
from rlinf.config.names import nearest, odd_letters
from rlinf.config.problems import COMMAND_LINE, ConfigProblem, Origin, problem
from rlinf.config.recipes import named, packaged, recipes, sweep_recipes
from rlinf.config.tree import Branch, Located, merge, put, read_mixture, shortened
from rlinf.config.yaml_nodes import INTEGERS, LARGEST_BITS, refused
from rlinf.schema import Sections

EXTENDS = "extends"
"""The key at the top of a file that names those it starts from."""
SECTIONS = (EXTENDS, *(section.name for section in fields(Sections)))
"""Keys at the top of a file."""
_TEXT = "Put it in quotes if it is text."
_PLAIN = "Take it out, or write it as an escape in double quotes."
_BRACKETS = {"[": "]", "{": "}"}
_TOO_DEEP = "the value is nested too deeply."
_LESS_DEEP = "A configuration is nested a dozen levels at most; data belongs in a file."
_UNQUOTED = re.compile(r"[{\[][^\"'#]*\$\{")
_ESCAPED = re.compile(r'"[^"]*\\[^"]*"')
_QUOTED = re.compile("[\u201c\u201d\u201e\u2018\u2019].*[\u201c\u201d\u2018\u2019]", re.DOTALL)
"""Text in typographic quotation marks, which belong to the text for YAML."""
# YAML 1.1 reads 1e-4 as text because it wants a dot; a number is always meant.
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+")
# YAML 1.1 reads 010 in base 8 and 1:30 in base 60; neither is ever meant.
_OTHER_BASE = re.compile(r"[-+]?(0[0-7_]*[0-7]|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


_SECTIONS = "Write sections with keys, such as `rollout:` and under it `batch_size: 32`."
_SCRIPT = "`rlinf import` reads scripts of TRL (.py, .sh), verl (.sh) and Stable-Baselines3 (.py)."
_OTHER_FILE = "Give the YAML file of a run; it names files of data and models (env.kwargs.path, sft.data, policy.path)."


class Reader:
    """Collects layers (bases first) and what was wrong on the way."""

    def __init__(self, known: Mapping[str, Path] | None = None) -> None:
        """``known``: the recipes that a name may mean; those of single runs if none are given."""
        self.known = recipes() if known is None else known
        self.layers: list[Branch] = []
        self.problems: list[ConfigProblem] = []
        self.notes: list[str] = []

    def read_file(self, path: Path, named_by: Origin | None = None, trail: tuple[Path, ...] = ()) -> None:
        """Append the layers of a file: what it extends, then itself."""
        origin = named_by or Origin(str(path))
        resolved = path.resolve()
        if resolved in trail:
            circle = " -> ".join(step.name for step in (*trail[trail.index(resolved) :], resolved))
            fix = "Take one of these `extends` out."
            self.problems.append(problem(origin, EXTENDS, f"extends goes round in a circle: {circle}.", fix))
            return
        if path.is_dir() or not path.exists():  # a pipe is read: `rlinf check <(...)`
            what = "is a folder, not a YAML file." if path.is_dir() else "does not exist."
            key = EXTENDS if named_by else ""
            self.problems.append(problem(origin, key, f"{path} {what}", _suggestion(path, self.known)))
            return
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            fix = "Save it as UTF-8, or give the path of a YAML file."
            self.problems.append(problem(Origin(str(path)), "", "this is not a text file.", fix))
            return
        tree = self.read_text(text, str(path))
        for base in self._bases(tree):
            relative = path.parent / Path(str(base.value)).expanduser()
            recipe = None if relative.is_file() else packaged(str(base.value), self.known)
            self.read_file(recipe or relative, base.origin, (*trail, resolved))
        self._append(tree)

    def read_text(self, text: str, file: str) -> Branch:
        """One document as a tree; syntax errors become problems."""
        try:
            loader, node = compose(text)
            if node is None:
                return {}
            bad = refused(node)
            if bad is not None:
                self.problems.append(ConfigProblem(file, bad.line, "", bad.message, bad.fix))
                return {}
            located = self._convert(node, loader, file, "")
        except yaml.reader.ReaderError as error:
            where = text.count("\n", 0, error.position) + 1
            self.problems.append(ConfigProblem(file, where, "", f"this is not valid YAML: {_control(error)}", _PLAIN))
            return {}
        except yaml.MarkedYAMLError as error:
            suffix = Path(file).suffix
            if suffix in (".py", ".sh", ".jsonl", ".csv", ".toml"):
                what, fix = ("a script", _SCRIPT) if suffix in (".py", ".sh") else (f"a {suffix} file", _OTHER_FILE)
                self.problems.append(ConfigProblem(file, None, "", f"this is {what}, not a YAML file.", fix))
                return {}
            # A key without its colon is noticed only on the next line; the context is where it stands.
            colon = error.context_mark is not None and "expected ':'" in str(error.problem)
            mark = error.context_mark if colon or error.problem_mark is None else error.problem_mark
            line = mark.line + 1 if mark else None
            message = f"this is not valid YAML: {error.problem or error.context}."
            self.problems.append(ConfigProblem(file, line, "", message, _yaml_fix(text, line)))
            return {}
        except _ValueRefused as bad_value:
            self.problems.append(ConfigProblem(file, bad_value.line, "", bad_value.message, bad_value.fix))
            return {}
        except RecursionError:
            self.problems.append(ConfigProblem(file, None, "", _TOO_DEEP, _LESS_DEEP))
            return {}
        if located.branch is None:
            fix = _SCRIPT if Path(file).suffix in (".py", ".sh") else _SECTIONS
            self.problems.append(problem(located.origin, "", "the file holds no keys.", fix))
            return {}
        read_mixture(located.branch)
        return located.branch

    def read_overrides(self, overrides: Sequence[str]) -> None:
        """``key=value`` pairs as one more layer."""
        tree: Branch = {}
        for override in overrides:
            # `+key=value`, as Hydra wants it for a key that the file has not: every key may be set here.
            key, equals, text = override.removeprefix("+").removeprefix("+").partition("=")
            origin = Origin(COMMAND_LINE)
            instead = replacement(override, SECTIONS)
            if instead is not None:
                self.problems.append(problem(origin, override, *instead))
                continue
            if not equals or not all(key.strip().split(".")):
                fix = _override_fix(override, overrides)
                self.problems.append(problem(origin, override, f"{override!r} is not an override.", fix))
                continue
            value = self.read_value(key.strip(), text)
            if value is not None:
                put(tree, key.strip(), value)
        self._append(tree)

    def read_value(self, key: str, text: str) -> Located | None:
        """Read the YAML value of an override; None, and a problem, if it is none."""
        try:
            loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            self.problems.append(problem(Origin(COMMAND_LINE), key, f"{key}: {_control(error)}", _PLAIN))
            return None
        try:
            node = loader.get_single_node()
            if "#" in text[node.end_mark.index if node else 0 :]:
                message = f"{key}={shortened(text)}: YAML takes what follows # for a comment."
                self.problems.append(problem(Origin(COMMAND_LINE), key, message, _quoting(key, text)))
                return None
            if node is None:
                return Located(None, Origin(COMMAND_LINE))
            if isinstance(node, yaml.ScalarNode) and text.lstrip().startswith("&"):
                message = f"{key}={shortened(text)}: YAML takes what begins with & for the name of a value."
                self.problems.append(problem(Origin(COMMAND_LINE), key, message, _quoting(key, text)))
                return None
            bad = refused(node)
            if bad is None:
                return self._convert(node, loader, COMMAND_LINE, key)
            self.problems.append(problem(Origin(COMMAND_LINE), key, f"{key}: {bad.message}", bad.fix))
        except _ValueRefused as bad_value:
            message = f"{key}: {bad_value.message}"
            self.problems.append(problem(Origin(COMMAND_LINE), key, message, bad_value.fix))
        except yaml.YAMLError:
            message = f"{key}={shortened(text)} has a value that is not valid YAML."
            self.problems.append(problem(Origin(COMMAND_LINE), key, message, _quoting(key, text)))
        except RecursionError:
            self.problems.append(problem(Origin(COMMAND_LINE), key, f"{key}: {_TOO_DEEP}", _LESS_DEEP))
        finally:
            loader.dispose()
        return None

    def _append(self, tree: Branch) -> None:
        layer = len(self.layers)
        _set_layer(tree, layer)
        self.layers.append(tree)

    def _bases(self, tree: Branch) -> list[Located]:
        given = tree.pop(EXTENDS, None)
        if given is None or given.value is None:
            return []
        bases = given.value if isinstance(given.value, list) else [given]
        right = [base for base in bases if isinstance(base.value, str)]
        if len(right) != len(bases):
            fix = "Write `extends: base.yaml` or `extends: [one.yaml, two.yaml]`."
            self.problems.append(problem(given.origin, EXTENDS, "extends must name YAML files.", fix))
        return right

    def _convert(self, node: yaml.Node, loader: yaml.SafeLoader, file: str, prefix: str) -> Located:
        line = None if file == COMMAND_LINE else node.start_mark.line + 1
        origin = Origin(file, line)
        if isinstance(node, yaml.MappingNode):
            return Located(self._mapping(node, loader, file, prefix), origin)
        if isinstance(node, yaml.SequenceNode):
            return Located([self._convert(child, loader, file, prefix) for child in node.value], origin)
        value = _constructed(node, loader)
        if isinstance(value, int) and value.bit_length() > LARGEST_BITS:
            raise _ValueRefused(node, f"the integer has {value.bit_length()} bits.", INTEGERS)
        if not isinstance(node, yaml.ScalarNode) or node.style:
            return Located(value, origin)
        if isinstance(value, str) and _EXPONENT.fullmatch(value):
            value = float(value)
        if isinstance(value, str) and _QUOTED.fullmatch(value):
            message = f"{prefix.rstrip('.')}: YAML takes the quotation marks of {shortened(value)} for letters."
            self.problems.append(problem(origin, prefix.rstrip("."), message, f'Write "{value[1:-1]}".'))
        if isinstance(value, int | float) and _OTHER_BASE.fullmatch(node.value):
            key = prefix.rstrip(".")
            message = f"{key}: {node.value} would be read as the number {value:g}, by YAML's rules for bases 8 and 60."
            # 010 meant 10; the meaning of 1:30 is unclear, so it stays what YAML reads.
            number = (
                f"{yaml.safe_load(node.value):g}"
                if ":" in node.value
                else node.value.replace("_", "").lstrip("+-0") or "0"
            )
            fix = f'Write {number} as a number, or "{node.value}" in quotes as text.'
            self.problems.append(problem(origin, key, message, fix))
        return Located(value, origin, written=node.value)

    def _mapping(self, node: yaml.MappingNode, loader: yaml.SafeLoader, file: str, prefix: str) -> Branch:
        _flatten(node, loader)
        branch: Branch = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _ValueRefused(key_node, "a list or a mapping cannot be a key.", "Write text before the colon.")
            name = str(key_node.value)  # as it was written: `yes`, `on` and 1e3 are names here
            dotted = prefix + name
            value = self._convert(value_node, loader, file, f"{dotted}.")
            if file != COMMAND_LINE:
                # The line of the key, also when the value is a block below it.
                value.origin = Origin(file, key_node.start_mark.line + 1)
            before = branch.get(name)
            branch[name] = self._twice(dotted, before, value) if before is not None else value
        return branch

    def _twice(self, dotted: str, before: Located, after: Located) -> Located:
        """Merge a section that was pasted in a second time; a value that is written twice is a mistake."""
        if before.branch is not None and after.branch is not None and "." not in dotted:
            lines = _lines(before.origin, after.origin)
            self.notes.append(f"{after.origin}: {dotted} is written twice ({lines}); the later lines win.")
            return Located(merge(before.branch, after.branch), after.origin)
        if before.plain() != after.plain():
            message = f"{dotted} is written twice, on {_lines(before.origin, after.origin)}."
            self.problems.append(problem(after.origin, dotted, message, "Take one of them out."))
        return after


def _lines(before: Origin, after: Origin) -> str:
    """
    >>> _lines(Origin("a.yaml", 2), Origin("a.yaml", 2)), _lines(Origin("a.yaml", 2), Origin("a.yaml", 5))
    ('line 2', 'lines 2 and 5')
    """
    same = before.line == after.line
    return f"line {after.line}" if same else f"lines {before.line} and {after.line}"


def _override_fix(override: str, overrides: Sequence[str]) -> str:
    """How to write an argument that is no ``key=value``."""
    if Path(override.removeprefix("@")).suffix in (".yaml", ".yml"):
        return f"A command takes one file: write `extends: [FILE, {override.removeprefix('@')}]` in a file of its own."
    joined = "".join(overrides)
    if "=" in overrides or (override and any(other.endswith("=") for other in overrides)):
        return f"Write it without blanks around the equals sign: {shortened(joined)}."
    key, colon, value = override.partition(":")
    if colon and "." in key:
        return f"Write {key}={value.strip()}."
    return "Write key=value, for example rollout.batch_size=64."


def _constructed(node: yaml.Node, loader: yaml.SafeLoader) -> object:
    """Build the value of a node. Raises _ValueRefused for one that seems to be a number or a date but is none."""
    try:
        return loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        raise _ValueRefused(node, f"{str(node.value)[:40]} cannot be read ({error}).", _TEXT) from error


class _ValueRefused(Exception):
    """A scalar that is not read: its line (from 1), why, and what to write instead."""

    def __init__(self, node: yaml.Node, message: str, fix: str) -> None:
        super().__init__(message)
        self.line, self.message, self.fix = node.start_mark.line + 1, message, fix


def _flatten(node: yaml.MappingNode, loader: yaml.SafeLoader) -> None:
    """Write the pairs of ``<<: *anchor`` into the mapping; the mapping's own values win."""
    own = [pair for pair in node.value if pair[0].tag != "tag:yaml.org,2002:merge"]
    if len(own) == len(node.value):
        return
    loader.flatten_mapping(node)
    written = {str(key.value) for key, _ in own}
    merged = {str(key.value): (key, value) for key, value in node.value if str(key.value) not in written}
    node.value = [*merged.values(), *own]


def _control(error: yaml.reader.ReaderError) -> str:
    return f"it holds the control character U+{int(error.character):04X}."


def _yaml_fix(text: str, line: int | None) -> str:
    """How to correct the line that is no YAML; some are noticed on the next one."""
    lines = ["", *text.splitlines(), ""]
    before, written = lines[max((line or 0) - 1, 0)], lines[min(line or 0, len(lines) - 1)]
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "Indent with spaces: YAML allows no tabs there."
    if "\t" in written:
        return "Write spaces instead of tabs."
    if "\n---" in text:
        return "A file holds one document: take the line --- out."
    if odd := odd_letters(written) or odd_letters(before[: len(before) - len(before.lstrip())]):
        return f"Type it again: the line holds {odd}."
    if _UNQUOTED.search(written):
        return "Put the ${...} in double quotes: inside of braces YAML reads its { as a mapping."
    if _ESCAPED.search(written):
        return "Put it in single quotes: in double quotes a backslash begins an escape."
    shown = (part.partition(" #")[0] for part in (before, written) if " #" in part)
    if any(part.count("{") > part.count("}") for part in shown):
        return "The comment hides the closing } of its line: close the brace before it."
    return "Check the indentation, the colons and the quotes here and on the line above."


def _quoting(key: str, text: str) -> str:
    """How to write an override whose value YAML does not read."""
    opened = text.lstrip()[:1]
    if opened in _BRACKETS and _BRACKETS[opened] not in text:
        # The shell cut the list at its first space.
        return f"Quote the whole of it for the shell: '{key}=[1, 2]'."
    if len(text) > 200:
        return "Put the value in double quotes, and the whole override in single quotes."
    return f"If it is meant as text, put it in quotes: {shlex.quote(f'{key}={json.dumps(text, ensure_ascii=False)}')}"


def _set_layer(tree: Branch, layer: int) -> None:
    for child in tree.values():
        child.origin = Origin(child.origin.file, child.origin.line, layer)
        if child.branch is not None:
            _set_layer(child.branch, layer)


def _suggestion(path: Path, known: Mapping[str, Path]) -> str:
    """Which file of the same folder, or which of the ``known`` recipes, may have been meant."""
    if (path / "config.yaml").is_file():
        return f"{path / 'config.yaml'} is the file of the run in it."
    if "=" in path.name:
        return "The file comes first, and key=value after it."
    if not path.name:
        return f"Name a file: {_files_of(path)}"
    for file in (path.with_name(f"{path.name}.yaml"), Path(str(path).replace("\\", "/"))):
        if file != path and file.is_file():
            return f"Did you mean {file}?"
    if all((path.parent / name.strip()).is_file() for name in path.name.split(",")):
        return f"Write a list: {EXTENDS}: [{path.name}]."
    if not path.suffix:
        if same := named(str(path), known):
            return f"There is more than one recipe of that name: {', '.join(same)}."
        if other := named(str(path), {**recipes(), **sweep_recipes()}):
            return f"{other[0]} is a recipe of another kind. There is {', '.join(known)}."
        short = {name.rpartition("/")[2]: name for name in known}
        close = nearest(path.name, [*short, *known])
        if close:
            return f"Did you mean the recipe {short.get(close[0], close[0])}?"
        return f"It is no recipe either: there is {', '.join(known)}."
    same = [name for name in known if name == path.stem or name.endswith(f"/{path.stem}")]
    if same and path.suffix in (".yaml", ".yml"):
        return f"Did you mean the recipe {same[0]}? Recipes need no folder and no suffix."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent} either."
    close = nearest(path.name, [other.name for other in path.parent.glob("*.yaml")])
    return f"Did you mean {path.parent / close[0]}?" if close else _files_of(path.parent)


def _files_of(folder: Path) -> str:
    """Which YAML files a folder holds."""
    names = sorted(file.name for file in folder.glob("*.yaml"))
    shown = "the current folder" if folder == Path() else str(folder)
    return f"YAML files in {shown}: {', '.join(names)}." if names else f"There are no YAML files in {shown}."
