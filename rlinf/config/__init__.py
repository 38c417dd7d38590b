"""YAML to a typed, checked configuration. Imports neither torch nor ray."""

from __future__ import annotations

from rlinf.config.dump import diff, flat, to_mapping, to_yaml
from rlinf.config.loading import Resolved, load, load_mapping, resolve
from rlinf.config.problems import ConfigErrors, ConfigProblem
from rlinf.config.schema import Config
from rlinf.config.stored import StoredConfigError, load_stored, stored, stored_yaml

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
    "stored",
    "stored_yaml",
    "to_mapping",
    "to_yaml",
]
