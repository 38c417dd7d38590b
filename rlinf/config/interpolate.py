"""``${...}`` in values, resolved by OmegaConf, which is imported only when a value needs it."""

from __future__ import annotations

import copy
import operator
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from rlinf.base.redaction import hide
from rlinf.config.compat.aliases import synonyms, translate_values
from rlinf.config.defaults import fill_in
from rlinf.config.dump import to_mapping
from rlinf.config.names import hints
from rlinf.config.problems import ConfigProblem, problem
from rlinf.config.tree import Branch, Located, locate, merge, origins, put, shortened
from rlinf.config.yaml_nodes import LARGEST_BITS
from rlinf.schema import Sections

# How much ``${...}`` may become, and in which order it is resolved so that no value is expanded twice.
MAX_CHARACTERS, MAX_VALUES = 1_000_000, 3_000
"""Of one resolved value. A line of a few bytes can stand for more than memory holds, by naming the one before twice."""
_MAX_EXPRESSION, _MAX_NAMES = 10_000, 100
"""Characters of one expression, and ${ in it: reading it takes time that grows faster than its length."""
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")

Path = tuple[str | int, ...]


def too_large(value: object) -> str:
    """Why a resolved value is not taken; empty for one that is."""
    characters = values = 0
    stack = [value]
    while stack:
        each = stack.pop()
        values += 1
        if isinstance(each, Mapping):
            stack += each.values()
        elif isinstance(each, list | tuple):
            stack += each
        elif isinstance(each, str):
            characters += len(each)
        if characters > MAX_CHARACTERS:
            return f"it expands to more than {MAX_CHARACTERS:,} characters"
        if values > MAX_VALUES:
            return f"it expands to more than {MAX_VALUES:,} values"
    return ""


def too_long(expression: str) -> str:
    """Why an expression is not read; empty for one that is."""
    if len(expression) > _MAX_EXPRESSION:
        return f"it has more than {_MAX_EXPRESSION:,} characters"
    return f"it has more than {_MAX_NAMES} ${{...}}" if expression.count("${") > _MAX_NAMES else ""


def dependencies(expressions: Mapping[Path, str]) -> dict[Path, list[Path]]:
    """For each expression, those that it may name: by a whole path, or by one that begins at a section around it."""
    by_prefix: dict[Path, list[Path]] = {}
    for path in expressions:
        for length in range(1, len(path) + 1):
            by_prefix.setdefault(path[:length], []).append(path)
    return {path: list(dict.fromkeys(_named(path, text, by_prefix))) for path, text in expressions.items()}


def _named(path: Path, text: str, by_prefix: Mapping[Path, Sequence[Path]]) -> Iterator[Path]:
    for result in _NAME.findall(text):
        steps: Path = tuple(int(step) if step.isdecimal() else step for step in result.split("."))
        for around in range(len(path)):
            for length in range(1, len(steps) + 1):  # a section that holds expressions, or a value in one of them
                yield from by_prefix.get((*path[:around], *steps[:length]), ())


def in_order(named: Mapping[Path, Sequence[Path]]) -> list[Path]:
    """Every path after those that it names, as far as they do not go round in a circle."""
    done: dict[Path, None] = {}
    entered: set[Path] = set()
    for start in named:
        stack = [(start, iter(named[start]))]
        while stack:
            path, rest = stack[-1]
            entered.add(path)
            following = next((each for each in rest if each not in entered), None)
            if following is not None:
                stack.append((following, iter(named[following])))
                continue
            stack.pop()
            done[path] = None
    return list(done)


def _product(first: object, second: object) -> object:
    """Multiply two numbers; no chain of expressions makes the product longer than a machine's own numbers."""
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        raise ValueError("multiply takes two numbers")
    made = first * second
    if isinstance(made, int) and made.bit_length() > LARGEST_BITS:
        raise ValueError(f"the product has more than {LARGEST_BITS} bits")
    return made


_RESOLVERS: Mapping[str, Callable[..., object]] = {
    "int_div": operator.floordiv,
    "multiply": _product,
    "not": operator.not_,
    "subtract": operator.sub,
}

_KINDS = f"There are oc.env, oc.select, {', '.join(_RESOLVERS)}."
_FIX = "Check the name inside ${...}; environment variables need ${oc.env:NAME} or ${oc.env:NAME,default}."

_MISSING = "???"
_VARIABLE = re.compile(r"oc\.env:\s*([A-Za-z_]\w*)")
_BARE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*\}")


def interpolate(layers: Sequence[Branch]) -> dict[int, str]:
    """Replace every ``${...}`` of the layers before names of other frameworks become ours.

    A name inside of ``${...}`` means the effective value, under whichever name the highest layer wrote it.
    Returns why a value could not be resolved, by the identity of its Located: only what is not overridden is a
    problem.

    An expression that reads an environment variable, itself or through another key, stays with its value. What is
    written to disk or sent away holds the expression, so that a secret stays where it is.
    """
    waiting = [(path, located) for layer in layers for path, located in _waiting(layer, ())]
    if not waiting:
        return {}
    from omegaconf import OmegaConf
    from omegaconf.errors import GrammarParseError, OmegaConfBaseException

    with warnings.catch_warnings():
        # Version 2.4 renames this function, and the new name means something else in 2.3.
        warnings.simplefilter("ignore")
        for name, function in _RESOLVERS.items():
            OmegaConf.register_new_resolver(name, function, replace=True)
    failures: dict[int, str] = {}
    for _, located in waiting:
        if reason := too_long(str(located.value)):
            failures[id(located)] = reason
            continue
        try:
            OmegaConf.create({"value": located.value})
        except (GrammarParseError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else _reason(error)
            failures[id(located)] = f"no valid expression ({reason})"
    if failures:  # OmegaConf refuses a whole tree for one of them
        return failures
    written = _effective(layers)
    whole = OmegaConf.create({name: child.plain() for name, child in written.items()})
    read = {name for _, located in waiting for name in variables(str(located.value))}
    secrets = [os.environ[name] for name in read if os.environ.get(name)]
    for name in read:
        hide(name)
    effective = {path: located for path, located in waiting if _at(written, path) == located.value}  # not overridden
    named = dependencies({path: str(located.value) for path, located in effective.items()})
    grown: dict[Path, str] = {}
    for path in in_order(named):
        located = effective[path]
        if reason := next((grown[each] for each in named[path] if each in grown), ""):
            grown[path] = failures[id(located)] = reason
            continue
        try:
            value: object = whole
            for step in path:
                value = value[step]  # type: ignore[index]
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            if reason := too_large(plain):
                grown[path] = failures[id(located)] = reason
                continue
            if not (isinstance(plain, str) and "${" in plain):
                # What names it finds the value and does not resolve it again.
                OmegaConf.update(whole, _dotted(path), plain, merge=False)
        except (OmegaConfBaseException, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            failures[id(located)] = _reason(error)
            continue
        text = str(located.value)
        if variables(text) or "cluster.env" in text or any(secret in str(plain) for secret in secrets):
            located.expression = text
        # Environment variables are text; what they hold was meant as it would be in the file.
        if isinstance(plain, str) and "${oc.env:" in text:
            plain = _typed(plain)
        located.value = locate(plain, located.origin).value
    return failures


def report_unresolved(tree: Branch, failures: dict[int, str], problems: list[ConfigProblem]) -> None:
    """Report every unresolved interpolation in effect and treat its key as unset."""
    for path, located in list(_waiting(tree, ())):
        if id(located) not in failures:
            continue
        dotted = ".".join(str(step) for step in path)
        message = f"{dotted}: {shortened(str(located.value))} does not resolve: {failures[id(located)]}."
        unknown = "Unsupported interpolation type" in failures[id(located)]
        problems.append(problem(located.origin, dotted, message, _KINDS if unknown else _FIX))
        located.value = None
        section = _at(tree, path[:-1])
        if isinstance(section, dict):  # null where a number belongs would be a second problem
            del section[path[-1]]


def report_missing(tree: Branch, problems: list[ConfigProblem], prefix: str = "") -> None:
    """Report every value that is ``???``, with which OmegaConf marks one that is still to be given, as unset."""
    for name, located in list(tree.items()):
        key = f"{prefix}{name}"
        if located.branch is not None:
            report_missing(located.branch, problems, f"{key}.")
        elif located.value == _MISSING:
            message = f"{key} is {_MISSING}, which stands for a value that is still to be given."
            problems.append(problem(located.origin, key, message, f"Write one here, or {key}=... on the command line."))
            del tree[name]


def _effective(layers: Sequence[Branch]) -> Branch:
    """Everything that a name inside of ``${...}`` can mean: what was written, synonyms and defaults included."""
    written: Branch = {}
    for layer in layers:
        written = merge(written, copy.deepcopy(layer))
    for key, located in synonyms(layers):
        put(written, key, copy.deepcopy(located))
    ours = copy.deepcopy(written)
    translate_values(ours, [])
    # Defaults lie below, so that ${run.seed} means something also where the file does not set it.
    defaults = fill_in(_typed_as_far_as_possible(ours), {key for key, _ in origins(written)})
    return merge(locate(to_mapping(defaults), next(iter(written.values())).origin).branch or {}, written)


def _typed_as_far_as_possible(tree: Branch) -> Sections:
    """Build the configuration that decides on defaults; values that are not known yet keep their defaults."""
    from rlinf.config.values import Builder

    known = {name: child for name, child in tree.items() if name in hints(Sections)}
    return Builder().section(Sections, Located(known, next(iter(tree.values())).origin))


def _dotted(path: Path) -> str:
    """
    >>> _dotted(("env", "kwargs", 0, "a.b"))
    '[env][kwargs][0][a.b]'
    """
    return "".join(f"[{step}]" for step in path)


def _at(tree: object, path: Path) -> object:
    """Return the plain value at a path of keys and positions in lists; None if there is none."""
    for step in path:
        if isinstance(tree, dict):
            tree = tree[step].value if step in tree else None
        elif isinstance(tree, list):
            tree = tree[step].value if isinstance(step, int) and step < len(tree) else None
        else:
            return None
    return tree


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it goes round in a circle"
    first = str(error).splitlines()[0].partition("resolving interpolation: ")
    return (first[2] or first[0]).rstrip(".")


def unset(text: str) -> bool:
    """Return whether an expression names a variable that is not there, and no value instead of it."""
    return any(name not in os.environ for name in _BARE.findall(text))


def variables(text: str) -> list[str]:
    """List the environment variables that an expression names.

    >>> variables("${oc.env:HOME}/runs/${oc.env:TEAM,ours}")
    ['HOME', 'TEAM']
    """
    return _VARIABLE.findall(text)


def _waiting(value: object, path: Path) -> Iterator[tuple[Path, Located]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        if isinstance(child.value, str) and "${" in child.value:
            yield (*path, step), child
        else:
            yield from _waiting(child.value, (*path, step))


def _typed(text: str) -> object:
    from rlinf.config.reader import Reader

    parsed = Reader().read_value("", text)
    if parsed is None or (parsed.value is None and parsed.written is None):  # an empty one is text without letters
        return text
    return parsed.plain()
