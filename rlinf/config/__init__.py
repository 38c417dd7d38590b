"""YAML to a typed, checked configuration. Imports neither torch nor ray."""

from __future__ import annotations

from rlinf.config.dump import diff, flat, to_mapping, to_yaml
from rlinf.config.loading import Resolved, load, load_mapping, resolve
from rlinf.config.problems import ConfigErrors, ConfigProblem
from rlinf.config.schema import Config

__all__ = [
    "Config",
    "ConfigErrors",
    "ConfigProblem",
    "Resolved",
    "diff",
    "flat",
    "load",
    "load_mapping",
    "resolve",
    "to_mapping",
    "to_yaml",
]
