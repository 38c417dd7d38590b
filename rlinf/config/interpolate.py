"""``${...}`` in values, resolved by OmegaConf, which is imported only when a value asks for it."""

from __future__ import annotations

from rlinf.config.dump import to_mapping
from rlinf.config.problems import ConfigProblem, problem
from rlinf.config.schema import Config
from rlinf.config.tree import Branch, Located, locate, merge


def interpolate(tree: Branch, problems: list[ConfigProblem]) -> None:
    """Replace every ``${...}`` in place; what does not resolve becomes a problem at its line."""
    waiting = list(_waiting(tree, ()))
    if not waiting:
        return
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    # Defaults lie below, so that ${run.seed} means something also where the file does not set it.
    defaults = locate(to_mapping(Config()), next(iter(tree.values())).origin).branch or {}
    whole = OmegaConf.create({name: child.plain() for name, child in merge(defaults, tree).items()})
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
        # Environment variables are text; what they hold was meant as it would be in the file.
        if isinstance(plain, str) and "${oc.env:" in str(located.value):
            plain = _typed(plain)
        located.value = locate(plain, located.origin).value


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
