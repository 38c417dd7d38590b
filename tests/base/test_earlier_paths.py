"""Scripts that import modules by their earlier paths get the same modules, and a warning."""

from __future__ import annotations

import importlib
import sys

import pytest

from rlinf.base.earlier_paths import _PATHS, present_path


@pytest.mark.parametrize("earlier", [*_PATHS, "rlinf.rollouts.robot_data.leaves", "rlinf.rollouts.envs.make_env"])
def test_an_earlier_path_is_the_module_of_now(earlier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    present = present_path(earlier)
    assert present is not None
    now = importlib.import_module(present)
    spec = now.__spec__
    monkeypatch.delitem(sys.modules, earlier, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{earlier} is deprecated and goes in version 0.3: use {present}"):
        assert importlib.import_module(earlier) is now
    assert now.__name__ == present
    assert now.__spec__ is spec


def test_other_names_are_left_to_the_import_system() -> None:
    assert present_path("rlinf.spaces_of_mine") is None
    with pytest.raises(ModuleNotFoundError, match=r"rlinf\.nothing"):
        importlib.import_module("rlinf.nothing")
