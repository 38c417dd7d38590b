"""``${...}`` in values, resolved by OmegaConf, which is imported only when a value asks for it."""

from __future__ import annotations

import os
import re

from rlinf.config.dump import to_mapping
from rlinf.config.problems import ConfigProblem, problem
from rlinf.config.schema import Config
from rlinf.config.tree import Branch, Located, locate, merge

_VARIABLE = re.compile(r"oc\.env:\s*([A-Za-z_]\w*)")
_BARE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*\}")


def interpolate(tree: Branch, problems: list[ConfigProblem]) -> None:
    """Replace every ``${...}`` in place; what does not resolve becomes a problem at its line.

    An expression that reads an environment variable, itself or through another key, stays with its value: what is
    written to disk or sent away holds the expression, so that a secret stays where it is.
    """
    waiting = list(_waiting(tree, ()))
    if not waiting:
        return
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    # Defaults lie below, so that ${run.seed} means something also where the file does not set it.
    defaults = locate(to_mapping(Config()), next(iter(tree.values())).origin).branch or {}
    whole = OmegaConf.create({name: child.plain() for name, child in merge(defaults, tree).items()})
    read = {name for _, located in waiting for name in variables(str(located.value))}
    secrets = [os.environ[name] for name in read if os.environ.get(name)]
    for path, located in waiting:
        dotted = ".".join(str(step) for step in path)
        try:
            value: object = whole
            for step in path:
                value = value[step]  # type: ignore[index]
        except (OmegaConfBaseException, ValueError) as error:
            reason = str(error).splitlines()[0].partition("resolving interpolation: ")
            first = reason[2] or reason[0]
            fix = "Check the name inside ${...}; environment variables need ${oc.env:NAME} or ${oc.env:NAME,default}."
            problems.append(
                problem(located.origin, dotted, f"{dotted}: {located.value} does not resolve: {first}.", fix)
            )
            located.value = None
            continue
        plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        text = str(located.value)
        if variables(text) or "cluster.env" in text or any(secret in str(plain) for secret in secrets):
            located.expression = text
        # Environment variables are text; what they hold was meant as it would be in the file.
        if isinstance(plain, str) and "${oc.env:" in text:
            plain = _typed(plain)
        located.value = locate(plain, located.origin).value


def unset(text: str) -> bool:
    """Whether an expression names a variable that is not there, and no value in its place."""
    return any(name not in os.environ for name in _BARE.findall(text))


def variables(text: str) -> list[str]:
    """The environment variables that an expression names.

    >>> variables("${oc.env:HOME}/runs/${oc.env:TEAM,ours}")
    ['HOME', 'TEAM']
    """
    return _VARIABLE.findall(text)


def _waiting(value: object, path: tuple[str | int, ...]) -> list[tuple[tuple[str | int, ...], Located]]:
    found: list[tuple[tuple[str | int, ...], Located]] = []
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        if isinstance(child.value, str) and "${" in child.value:
            found.append(((*path, step), child))
        else:
            found.extend(_waiting(child.value, (*path, step)))
    return found


def _typed(text: str) -> object:
    from rlinf.config.reader import Reader

    parsed = Reader().read_value("", text)
    return text if parsed is None or parsed.value is None else parsed.plain()
