"""Names that a script or notebook defines itself, and that workers cannot import."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rlinf.config.context import Context
from rlinf.config.dump import to_mapping

_MAIN = "__main__"


def check_notebook(context: Context) -> None:
    """Report names of ``__main__`` that worker processes would have to import."""
    config = context.config
    if config.cluster.backend == "local" and config.env.isolation == "none":
        return
    named = [pair for pair in _names(to_mapping(context.whole), "") if not pair[0].startswith("logging.")]
    if _registers(config.env.id):
        named.append(("env.id", f"{_MAIN}:{config.env.id}"))
    for key, name in named:
        own = name.partition(":")[2]
        message = f"{key}: {own} is defined by this script or notebook alone, and workers do not run it."
        fix = f"Put it into a module, mine.py, and write mine:{own}; or set cluster.backend: local."
        context.error(key, message, fix)


def _names(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, ``__main__:name``) of all names in plain data; names of a mapping count too."""
    if isinstance(value, dict):
        for name, child in value.items():
            if str(name).startswith(f"{_MAIN}:"):
                yield key, str(name)
            yield from _names(child, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for child in value:
            yield from _names(child, key)
    elif isinstance(value, str) and value.startswith(f"{_MAIN}:"):
        yield key, value


def _registers(env_id: str) -> bool:
    """Whether ``__main__`` has registered the id with gymnasium, which it then has imported."""
    gymnasium = sys.modules.get("gymnasium")
    made_by = None if gymnasium is None else getattr(gymnasium.registry.get(env_id), "entry_point", None)
    module = made_by.partition(":")[0] if isinstance(made_by, str) else getattr(made_by, "__module__", None)
    return module == _MAIN
