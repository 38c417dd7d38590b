"""Custom rewards that fail in every way, and settings without the effect of their names: one paragraph each."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from rlinf_envs.errors import RewardError, SettingError
from rlinf_envs.measured import resident_bytes
from rlinf_envs.rewards import RewardSum
from rlinf_envs.tasks import Judgement, Task

from rlinf.base.errors import is_user_error
from rlinf.cluster.failure import capture


def score(name: str, row: dict[str, Any] | None = None, timeout_s: float = 60.0, memory_mb: int = 4096) -> float:
    custom = {f"fault_rewards:{name}": 1.0}
    rewards = RewardSum({"custom": custom}, custom_timeout_s=timeout_s, custom_memory_mb=memory_mb)
    task = Task("What is 1 + 1?", "2", "sums", row=row if row is not None else {"zero": 0})
    scored = rewards.score(["p"], ["r"], [task], [Judgement("correct", 1.0, "2")])
    return float(scored.total[0]) if not scored.quarantined[0] else float("nan")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised ZeroDivisionError: float division by zero, at"),
        ("none", "must return a number, got None"),
        ("text", r"must return a number, got '0\.5' \(a str\)"),
        ("pair", r"must return a number, got \[1.0, 2.0\]"),
        ("imaginary", r"must return a number, got 1j \(a complex\)"),
        ("enormous", "must return a number, got 1000"),
        ("recursion", "raised RecursionError"),
        ("memory", "raised MemoryError"),
        ("leaves", "raised SystemExit: 3"),
        ("vanishes", "ended its process"),
    ],
)
def test_one_paragraph_names_the_term_the_question_and_the_line(name: str, words: str) -> None:
    with pytest.raises(RewardError, match=rf"reward term 'custom:fault_rewards:{name}' {words}") as caught:
        score(name)
    message = str(caught.value)
    assert "What is 1 + 1?" in message
    assert "\n" not in message
    assert len(message) < 600
    # What crosses to the driver is the message alone: the command line prints it, and no traceback.
    assert capture(caught.value).words == message
    if name == "raises":
        assert 'fault_rewards.py:15 in raises: return 1.0 / int(row["zero"])' in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hoards", r"raised MemoryError, at .*; it may take 128 MiB of memory \(env\.kwargs\.reward_memory_mb\)"),
        (
            "starts_hoarders",
            r"took more than 128 MiB of memory \(env\.kwargs\.reward_memory_mb\), with what it started",
        ),
        ("shares_blocks", r"took more than 128 MiB of memory"),
    ],
)
def test_a_reward_and_what_it_starts_have_a_limit_of_memory(name: str, words: str) -> None:
    with pytest.raises(RewardError, match=words):
        score(name, memory_mb=128)
    assert resident_bytes(os.getpid()) > 0


@pytest.mark.parametrize("limit", [-1, 0.5, True, "2GB"])
def test_a_limit_of_memory_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(SettingError, match="reward_memory_mb must be a whole number of MiB, or 0"):
        score("half", memory_mb=limit)


@pytest.mark.parametrize("name", ["sleeps", "spins"])
def test_a_reward_that_never_returns_has_a_deadline(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(RewardError, match=r"did not return within 0\.5 s \(env\.kwargs\.reward_timeout\)"):
        score(name, timeout_s=0.5)
    assert time.monotonic() - began < 60
    assert score("half", timeout_s=0.5) == 0.5


@pytest.mark.parametrize(
    ("name", "value"), [("half", 0.5), ("half_tensor", 0.5), ("prints", 1.0), ("moves", 1.0), ("closes_stdout", 1.0)]
)
def test_what_a_reward_may_do(name: str, value: float) -> None:
    here = Path.cwd()
    assert score(name) == value
    assert Path.cwd() == here
    os.fstat(1)


def test_an_infinite_reward_is_quarantined() -> None:
    assert score("infinite") != score("infinite")


def test_a_reward_gets_a_copy_of_the_row() -> None:
    row = {"nested": {"a": 1}}
    assert score("clears_row", row) == 1.0
    assert row == {"nested": {"a": 1}}


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ({"custom": {"fault_rewards:raisez": 1}}, "has no function 'raisez': .*did you mean 'raises'"),
        ({"custom": {"fault_rewards:not_callable": 1}}, "fault_rewards:not_callable is an int, and must be a function"),
        (
            {"custom": {"fault_rewards:wrong_signature": 1}},
            "has no parameter prompt, response, answer and row and requires text, and is called with prompt=",
        ),
        (
            {"custom": {"fault_rewards:Rewarder": 1}},
            "fault_rewards:Rewarder is a class, and what is called with prompt=",
        ),
        ({"custom": {"no_such_module_at_all:f": 1}}, "cannot import"),
        ({"custom": {"raises": 1}}, "module:function"),
        ({"corectness": 1}, "did you mean 'correctness'"),
        ({"format": {"weight": 1, "pattern": "boxxed"}}, "did you mean 'boxed'.*regex:boxxed"),
        ({"format": {"weight": 1, "pattern": "thnk"}}, "did you mean 'think'"),
        ({"format": {"weight": 1, "pattern": "###"}}, "did you mean '####'"),
        ({"format": {"weight": 1, "pattern": "regex:("}}, "nor a regular expression"),
    ],
)
def test_the_constructor_of_an_environment_finds_a_wrong_reward(reward: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        gymnasium.make_vec("rlinf_envs:rlinf/ReasoningGym-v0", task="chain_sum", size=5, reward=reward)
    assert is_user_error(caught.value)


@pytest.mark.parametrize("pattern", ["regex:boxxed", "Answer", r"^\d+$"])
def test_a_regular_expression_stays_one(pattern: str) -> None:
    rewards = RewardSum({"format": {"weight": 1.0, "pattern": pattern}})
    task, judgement = Task("q", "a", "d"), Judgement("wrong", 0.0, None)
    found = rewards.score(["p"] * 2, ["boxxed Answer\n12", "none"], [task] * 2, [judgement] * 2)
    assert found.total.tolist() == [1.0, 0.0]


def test_a_pattern_that_would_take_for_ever_is_given_up() -> None:
    rewards = RewardSum({"format": {"weight": 1.0, "pattern": r"^(?:a|b|ab)+c(a+)+(a+)+(a+)+\d$"}})
    task, judgement = Task("q", "a", "d"), Judgement("wrong", 0.0, None)
    began = time.process_time()
    with pytest.warns(RuntimeWarning, match="took over 1 s"):
        assert rewards.score(["p"], ["ac" + "a" * 50_000 + "!"], [task], [judgement]).total.tolist() == [0.0]
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        ("ReasoningGym", {"task": "chain_sumz"}, "did you mean 'chain_sum'"),
        (
            "Math",
            {"path": "x.jsonl", "extraction": "strikt"},
            "extraction must be lenient or strict, not 'strikt'; did you mean 'strict'",
        ),
        ("ReasoningGym", {"task": "chain_sum", "cut_responses": "grade"}, "cut_responses must be strict or lenient"),
    ],
)
def test_a_misspelt_setting_is_answered_by_the_one_that_was_meant(
    env: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        gymnasium.make_vec(f"rlinf_envs:rlinf/{env}-v0", **settings)
