"""The account of an error that a user's own code raised: only of theirs, only where it is called from here."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.base.own_errors import own_account
from rlinf.base.user_code import imported
from rlinf.cluster.failure import capture


def module(name: str, file: str, code: str, **names: Any) -> dict[str, Any]:
    """Run the code as that of a module in a file."""
    made = types.ModuleType(name)
    vars(made).update(names)
    exec(compile(code, file, "exec"), vars(made))
    return vars(made)


def error_of(function: Callable[..., Any], *given: Any) -> Exception:
    try:
        function(*given)
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


CALLER = "def call(function, *given):\n    return function(*given)\n"
OURS = module("rlinf.somewhere", "/site-packages/rlinf/somewhere.py", CALLER)["call"]
TORCH = module("torch.nn", "/site-packages/torch/nn.py", CALLER)["call"]
BROKEN = module("torch.ops", "/site-packages/torch/ops.py", "def add(*given):\n    raise ValueError('sizes 2 and 3')\n")
MINE = module("mine", "/home/ada/mine.py", "class Net:\n    def forward(self, f, *x):\n        return f(*x)\n")[
    "Net"
]().forward


def test_a_function_that_libraries_call_and_that_calls_libraries() -> None:
    account = own_account(error_of(OURS, TORCH, MINE, TORCH, BROKEN["add"]))
    assert account == (
        "Net.forward (/home/ada/mine.py, line 3) raised ValueError: sizes 2 and 3\n"
        '  File "/home/ada/mine.py", line 3, in forward'
    )


def test_what_the_function_gives_to_us_again_is_its_mistake_and_a_script_of_a_user_is_none() -> None:
    assert "Net.forward" in str(own_account(error_of(OURS, MINE, OURS, BROKEN["add"])))
    assert own_account(error_of(MINE, OURS, TORCH, BROKEN["add"])) is None
    assert own_account(error_of(OURS, TORCH, BROKEN["add"])) is None


def test_a_package_that_a_configuration_named_is_the_users_where_it_is_installed() -> None:
    installed = module("their_package.losses", "/site-packages/their_package/losses.py", CALLER)["call"]
    error = error_of(OURS, installed, BROKEN["add"])
    assert own_account(error) is None
    with pytest.raises(ValueError, match="No module named 'their_package'"):
        imported("their_package.losses:call")
    assert "call (/site-packages/their_package/losses.py, line 2)" in str(own_account(error))


def test_the_cause_is_named_where_we_raised_another_error() -> None:
    def wrapped() -> None:
        try:
            OURS(MINE, BROKEN["add"])
        except ValueError as error:
            raise RuntimeError("a batch failed") from error

    assert "Net.forward" in str(own_account(error_of(wrapped)))


def test_a_worker_hands_on_the_account_alone() -> None:
    failure = capture(error_of(OURS, MINE, BROKEN["add"]))
    assert failure.words is None
    assert failure.traceback == own_account(error_of(OURS, MINE, BROKEN["add"]))
    assert "Traceback" in capture(error_of(OURS, BROKEN["add"])).traceback


def test_files_are_those_of_the_frames(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    code = "def f():\n    raise KeyError('reward')\n"
    file.write_text(code)
    account = str(own_account(error_of(OURS, module("mine", str(file), code)["f"])))
    assert account.startswith(f"f ({file}, line 2) raised KeyError: 'reward'")
    assert account.endswith("raise KeyError('reward')")
