"""Settings of another type than the parameter's are refused with what they may be, in every environment of ours."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
import rlinf_envs  # noqa: F401 (registers them)
from gymnasium.envs.registration import load_env_creator
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.table import BUILDERS
from rlinf_envs.rewards import RewardSum
from rlinf_envs.tools.toolbox import BUILT_IN
from rlinf_envs.typed import _hints, misfits, typed

OURS = sorted(name for name in gymnasium.registry if name.startswith("rlinf/"))


def _constructor(env_id: str) -> Callable[..., Any]:
    spec = gymnasium.registry[env_id]
    entry = spec.vector_entry_point or spec.entry_point
    assert isinstance(entry, str)
    return load_env_creator(entry)


@pytest.mark.parametrize("env_id", OURS)
def test_no_setting_takes_an_object_of_no_yaml_type(env_id: str) -> None:
    make = _constructor(env_id)
    known = {name for name in inspect.signature(make).parameters if name not in ("num_envs", "render_mode")}
    assert known
    for name in known:
        with pytest.raises(SettingError, match=rf"\b{name} must be "):
            make(**{name: object()})


@pytest.mark.parametrize("make", [*BUILDERS.values(), *BUILT_IN.values()], ids=lambda make: make.__name__)
def test_terms_of_a_reward_and_tools_have_types(make: Callable[..., Any]) -> None:
    named = set(inspect.signature(make).parameters)
    assert named <= set(_hints(make))


@typed
def _made(
    *,
    text: str = "a",
    maybe: str | None = None,
    count: int = 1,
    share: float = 0.5,
    switch: bool = False,
    words: tuple[str, ...] = (),
    weights: dict[str, float] | None = None,
    loose: int = None,  # type: ignore[assignment]  # noqa: RUF013 (a hint that its default does not fit)
) -> None:
    """Parameters of every kind."""


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("text", None, r"text must be text, not null \(# begins a comment in YAML: a value with # needs quotes\)"),
        ("text", False, r"text must be text, not the switch false \(yes, no, on and off are switches"),
        ("maybe", {"Be": True}, r"maybe must be text or null, not the mapping {'Be': True} \(a colon and a space"),
        (
            "text",
            ["a", "b"],
            r"text must be text, not \['a', 'b'\] \(one is read: several files of data go into a folder",
        ),
        ("text", 12, r"text must be text, not 12 \(put it in quotes\)"),
        ("count", 2.5, r"count must be a whole number, not 2.5$"),
        ("count", True, r"count must be a whole number, not the switch true$"),
        ("share", "0.5", r"share must be a number, not '0.5'$"),
        ("share", float("nan"), r"share must be a number, not nan$"),
        ("switch", 1, r"switch must be true or false, not 1$"),
        ("words", "abc", r"words must be a list whose entries are each text, not 'abc'"),
        ("words", ["a", 1], r"words must be a list whose entries are each text, not \['a', 1\]"),
        ("weights", {"a": "b"}, r"weights must be a mapping whose values are each a number or null, not the mapping"),
    ],
)
def test_what_it_may_be_and_what_it_got(name: str, value: object, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        _made(**{name: value})


def test_what_fits_passes() -> None:
    _made(text="", maybe=None, count=0, share=1, switch=True, words=["a"], weights={"a": 1}, loose="anything")  # type: ignore[arg-type]


def test_all_of_them_at_once() -> None:
    with pytest.raises(SettingError, match=r"text must be .*; count must be "):
        _made(text=1, count="x")  # type: ignore[arg-type]


def test_fields_of_a_dataclass() -> None:
    @dataclasses.dataclass
    class Options:
        low: int = 0

    assert misfits(Options, {"low": "a"}, "params.") == ["params.low must be a whole number, not 'a'"]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ({"length": {"weight": 1.0, "target": "long"}}, r"reward\.length\.target must be a whole number"),
        ({"format": {"weight": 1.0, "pattern": None}}, r"reward\.format\.pattern must be text, not null"),
        ({"judge": {"weight": 1.0, "base_url": False, "model": "m", "rubric": "r"}}, r"reward\.judge\.base_url must"),
    ],
)
def test_options_of_a_reward_term(reward: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        RewardSum(reward)
