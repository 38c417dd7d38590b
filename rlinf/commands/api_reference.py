"""docs/api.md: the public names of the Python API with signatures and docstrings, read from the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

_HEAD = """# API reference

Generated from the docstrings by `make docs`. [Python API](python_api.md) shows how the parts work together.
"""
GROUPS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("Running", "rlinf", ("load", "check", "fit", "evaluate", "Policy", "RunResult")),
    ("Callbacks", "rlinf", ("Callback", "RunStart", "Step", "EarlyStopping", "LearningRateSchedule")),
    (
        "Algorithms",
        "rlinf.algorithms",
        ("compute_advantages", "process_rewards", "policy_loss", "aggregate", "kl_divergence"),
    ),
    ("Grading mathematics", "rlinf_envs.math", ("verify", "Verdict")),
    ("Interfaces for plugins", "rlinf.interfaces", ("Sampler", "RewardTerm")),
    (
        "What estimators and losses get",
        "rlinf.algorithms",
        ("AdvantageInputs", "Advantages", "LossInputs", "TokenLoss"),
    ),
)
"""(title, module, names)."""
_LINE = 90
_ROLE = re.compile(r":\w+:`~?([^`]*)`")
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):\s*$")


def api_page() -> str:
    """Build the page."""
    parts = [_HEAD]
    for title, module, names in GROUPS:
        parts.append(f"## {title}\n")
        for name in names:
            result = getattr(importlib.import_module(module), name)
            parts += _entry(f"{module}.{name}", result)
    return "\n".join(parts)


def _entry(name: str, result: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not inspect.isclass(result):
        yield _signature(name.rpartition(".")[2], result)
        yield _prose(result)
        return
    yield _prose(result)
    if is_dataclass(result):
        meanings = _field_docstrings(result)
        rows = [
            f"| `{item.name}` | `{_cell(str(item.type))}` | {_cell(meanings.get(item.name, ''))} |"
            for item in fields(result)
            if item.name[0] != "_"
        ]
        yield "| field | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    for method, value in vars(result).items():
        function = getattr(result, method)
        if method.startswith("_") or not (callable(function) or isinstance(value, property)):
            continue
        described = value.fget if isinstance(value, property) else function
        if not inspect.getdoc(described):
            continue
        yield f"#### {name.rpartition('.')[2]}.{method}\n"
        if not isinstance(value, property):
            yield _signature(method, function)
        yield _prose(described)


def _field_docstrings(result: type) -> dict[str, str]:
    """Field -> the docstring below it in the source, on one line; inherited fields included."""
    meanings: dict[str, str] = {}
    for base in reversed([one for one in result.__mro__ if is_dataclass(one)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for item, below in itertools.pairwise(tree.body):
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(str(below.value.value).split())
                meanings[item.target.id] = _ROLE.sub(r"`\1`", text).replace("``", "`")
    return meanings


def _signature(name: str, function: Any) -> str:
    """Format a signature as a code block, on one line if that is short."""
    signature = inspect.signature(function)
    pieces: list[str] = []
    starred = False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            pieces.append("*")
        starred = starred or one.kind in (one.VAR_POSITIONAL, one.KEYWORD_ONLY)
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        kind = "" if one.annotation is one.empty else f": {one.annotation}"
        shown = json.dumps(one.default) if isinstance(one.default, str) else repr(one.default)
        default = "" if one.default is one.empty else f" = {shown}" if kind else f"={shown}"
        pieces.append(f"{stars}{one.name}{kind}{default}")
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {returned}"
    line = f"def {name}({', '.join(pieces)}){arrow}: ..."
    if len(line) > _LINE:
        line = f"def {name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){arrow}: ..."
    return f"```python\n{line}\n```\n"


def _prose(result: Any) -> str:
    """Write a docstring as Markdown: roles become code, examples code blocks, sections lists."""
    text = _ROLE.sub(r"`\1`", inspect.getdoc(result) or "").replace("``", "`")
    lines: list[str] = []
    inside = ""
    for line in text.splitlines():
        example = line.startswith((">>>", "...")) or (inside == "example" and line.strip() != "")
        section = _SECTION.match(line)
        if example and inside != "example":
            lines.append("```python")
            inside = "example"
        elif not example and inside == "example":
            lines.append("```")
            inside = ""
        if section:
            lines += ["", f"**{section[1]}**", ""]
            inside = "section"
        elif inside == "section" and re.match(r" {4}\S", line):
            lines.append(f"- {line.strip()}")
        else:
            lines.append(line.strip() if inside == "section" else line)
    if inside == "example":
        lines.append("```")
    return "\n".join(lines).strip() + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
