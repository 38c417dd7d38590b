"""Imports by the module paths from before version 0.1.0, so that scripts written for them go on.

Each such import gives the module that has the code now, the same object, with a DeprecationWarning that names it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from rlinf.base.deprecation import deprecate

_REMOVED_IN = "0.3"
_PATHS = {
    "rlinf.columns": "rlinf.data.token_array",
    "rlinf.config.schema": "rlinf.schema",
    "rlinf.errors": "rlinf.base.errors",
    "rlinf.inputs": "rlinf.data.inputs",
    "rlinf.rollouts.envs": "rlinf.rollouts.vec_env",
    "rlinf.rollouts.robot_data": "rlinf.datasets.robot_data",
    "rlinf.rollouts.text.chat_template": "rlinf.rollouts.text.tokens.chat_template",
    "rlinf.rollouts.text.conversation_files": "rlinf.datasets.conversation_files",
    "rlinf.rollouts.text.conversation_messages": "rlinf.datasets.conversation_messages",
    "rlinf.rollouts.text.conversation_rows": "rlinf.datasets.conversation_rows",
    "rlinf.rollouts.text.prompts": "rlinf.rollouts.text.tokens.prompts",
    "rlinf.rollouts.text.response_text": "rlinf.rollouts.text.tokens.decoding",
    "rlinf.rollouts.text.thoughts": "rlinf.rollouts.text.tokens.thoughts",
    "rlinf.rollouts.text.tool_forms": "rlinf.rollouts.text.tokens.tool_forms",
    "rlinf.row_files": "rlinf.base.row_files",
    "rlinf.spaces": "rlinf.data.spaces",
    "rlinf.types": "rlinf.data.batch",
}


def present_path(name: str) -> str | None:
    """Give the path that has an earlier module's code now, or None for every other name."""
    if not name.startswith("rlinf."):  # most imports: every module of the process comes here
        return None
    for earlier, present in _PATHS.items():
        if name == earlier or name.startswith(f"{earlier}."):
            return present + name.removeprefix(earlier)
    return None


class _EarlierPaths(MetaPathFinder, Loader):
    """Find modules under their earlier paths (a meta path finder and loader)."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if present_path(name) is None else ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        present = str(present_path(spec.name))
        deprecate(spec.name, present, removed_in=_REMOVED_IN)
        module = importlib.import_module(present)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system wrote the spec of the earlier path over the module's own.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Put the finder before the others, which would load a second copy of a moved package's modules. Once."""
    if not any(isinstance(finder, _EarlierPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, _EarlierPaths())
