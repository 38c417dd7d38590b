"""YAML to a typed, checked configuration. Imports neither torch nor ray.

Names are imported when they are first used. The schema alone needs nothing but the standard library, so an
environment's own interpreter can read its section.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlinf.config.dump import diff, flat, to_mapping, to_yaml
    from rlinf.config.experiment import Config
    from rlinf.config.loading import Resolved, load, load_mapping, resolve
    from rlinf.config.problems import ConfigErrors, ConfigProblem
    from rlinf.config.record import stored_yaml
    from rlinf.config.stored import StoredConfigError, load_stored

__all__ = [
    "Config",
    "ConfigErrors",
    "ConfigProblem",
    "Resolved",
    "StoredConfigError",
    "diff",
    "flat",
    "load",
    "load_mapping",
    "load_stored",
    "resolve",
    "stored_yaml",
    "to_mapping",
    "to_yaml",
]

_MODULES = ("experiment", "loading", "dump", "problems", "record", "stored")


def __getattr__(name: str) -> object:
    """Import one of ``__all__`` from the module that defines it."""
    if name in __all__:
        for module in (importlib.import_module(f"{__name__}.{stem}") for stem in _MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
