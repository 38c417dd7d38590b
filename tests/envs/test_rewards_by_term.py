"""Reward terms against values worked out by hand."""

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.wording import format_term
from rlinf_envs.rewards import RewardError, RewardSum
from rlinf_envs.tasks import Judgement, Task


def total(config: dict[str, Any] | None, response: str, score: float = 0.0) -> float:
    status = "correct" if score == 1.0 else "wrong"
    task = Task("q", "a", "d")
    judgement = Judgement(status, score, None)  # type: ignore[arg-type]
    return float(RewardSum(config).score(["q"], [response], [task], [judgement]).total[0])


def test_correctness_is_the_default() -> None:
    assert total(None, "", 1.0) == 1.0
    assert total({"correctness": 2.0}, "", 0.5) == 1.0


@pytest.mark.parametrize(
    ("pattern", "response", "found"),
    [
        ("boxed", r"so \boxed{3}", True),
        ("boxed", "so 3", False),
        ("boxed", r"so \boxed{3", False),
        ("boxed", r"so \boxed{}", False),
        ("boxed", r"so \boxed 3", True),
        ("tag", "thus <answer>3</answer>\n", True),
        ("tag", "<answer>3</answer> and more", False),
        ("tag", "<answer> </answer>", False),
        ("think", "<think>a\nb</think>\n<answer>3</answer>", True),
        ("think", "<answer>3</answer>", False),
        ("think", "<think>a</think><answer> </answer>", False),
        ("think", "<think>a<think>b</think><answer>3</answer>", False),
        ("####", "work\n#### 3", True),
        ("####", "work #### 3", False),
        ("plain", "3", True),
        ("plain", "<think>a\nb</think>\n3", True),
        ("plain", "3\n4", False),
        (r"^Answer: \d+$", "work\nAnswer: 12\n", True),
    ],
)
def test_format(pattern: str, response: str, found: bool) -> None:
    assert total({"format": {"weight": 1.0, "pattern": pattern}}, response) == float(found)


@pytest.mark.parametrize(
    ("pattern", "response", "worth"),
    [
        ("####", "so\n#### 1 2\n3 4", 1.0),
        ("####", "so\n1 2\n3 4", 0.0),
        ("plain", "1 2\n3 4", 1.0),
        ("plain", " \n", 0.0),
    ],
)
def test_a_grid_has_several_lines_in_any_format(pattern: str, response: str, worth: float) -> None:
    term = format_term(pattern=pattern)
    assert term(prompt="", response=response, answer="1 2\n3 4", row={}) == worth


def test_length_falls_on_a_line() -> None:
    config = {"length": {"weight": 2.0, "target": 10, "slack": 20}}
    assert [total(config, "x" * n) for n in (0, 10, 20, 30, 1000)] == [0.0, 0.0, -1.0, -2.0, -2.0]


@pytest.mark.parametrize(
    ("expected", "response", "share"),
    [
        ("en", "abc абв", 0.5),
        ("ru", "abc абв", 0.5),
        ("zh", "答案是 so", 0.6),
        ("zh", "设 $x$ 为苹果数，则 `len(s)` 是 x = 2，见 https://example.com/a", 1.0),
        ("zh", "```python\nprint('a')\n```\n这是代码 <answer>5 kg</answer>", 1.0),
        ("zh", r"\begin{align} a &= b \end{align} 所以 \(\text{cm}\)", 1.0),
        ("zh", "`everything in a fence`", 0.0),
        ("ja", "これは人々のﾃﾞｰﾀです", 1.0),
        ("en", "We see that α is Ａ plus 𝑥", 1.0),
        ("en", r"12 \frac{1}{2}", 1.0),
        ("zh", r"\sqrt{2} 二", 1.0),
    ],
)
def test_language_is_the_share_of_letters(expected: str, response: str, share: float) -> None:
    assert total({"language": {"weight": 1.0, "expected": expected}}, response) == pytest.approx(share)


def test_terms_add_up_and_keep_their_own_values() -> None:
    config = {"correctness": 1.0, "format": 0.5, "custom": {"envs_reward_examples:brevity": 4.0}}
    task, judgement = Task("q", "a", "d"), Judgement("correct", 1.0, None)
    rewards = RewardSum(config).score(["q"], [r"\boxed{1}"], [task], [judgement])
    assert rewards.total.tolist() == pytest.approx([1.0 + 0.5 + 0.4])
    assert {name: float(values[0]) for name, values in rewards.terms.items()} == pytest.approx(
        {"correctness": 1.0, "format": 1.0, "custom:envs_reward_examples:brevity": 0.1}
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"corectness": 1.0}, "did you mean 'correctness'"),
        ({"length": {"weight": 1, "targt": 3}}, "did you mean 'target'"),
        ({"length": {"target": 3}}, "needs a weight"),
        ({"length": {"weight": 1, "target": 3, "slack": 0}}, "slack > 0"),
        ({"correctness": "much"}, "finite number"),
        ({"correctness": float("inf")}, "finite number"),
        ({"format": {"weight": 1, "pattern": "("}}, "regular expression"),
        ({"language": {"weight": 1, "expected": "xx"}}, "unknown language"),
        ({"custom": {"no_colon": 1}}, "module:function"),
        ({"custom": {"no_such_module:f": 1}}, "cannot import"),
        ({"custom": {"envs_reward_examples:nope": 1}}, "has no function 'nope'"),
        ({"custom": 1.0}, "must be a mapping"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RewardSum(config)


@pytest.mark.parametrize(("name", "words"), [("broken", "raised KeyError: 'level'"), ("wordy", "must return a number")])
def test_a_failing_function_is_named(name: str, words: str) -> None:
    with pytest.raises(RewardError, match=rf"(?s)custom:envs_reward_examples:{name}.*{words}"):
        total({"custom": {f"envs_reward_examples:{name}": 1.0}}, "x")


@pytest.mark.parametrize(
    ("only_if", "paid"),
    [(None, [2.0, 2.0, 2.0, 2.0]), ("answered", [2.0, 2.0, 0.0, 0.0]), ("correct", [2.0, 0.0, 0.0, 0.0])],
)
def test_nothing_is_paid_without_an_answer_or_without_the_right_one(only_if: str | None, paid: list[float]) -> None:
    config: dict[str, Any] = {"correctness": 0.0, "format": {"weight": 2.0, "pattern": "regex:x"}}
    rewards = RewardSum(config if only_if is None else {**config, "only_if": only_if})
    statuses = ("correct", "wrong", "unparsable", "timeout")
    found = [Judgement(status, float(status == "correct"), None) for status in statuses]  # type: ignore[arg-type]
    task = Task("q", "a", "d")
    assert rewards.score(["q"] * 4, ["x"] * 4, [task] * 4, found).total.tolist() == paid


def test_a_penalty_stays_without_an_answer() -> None:
    rewards = RewardSum({"length": {"weight": 1.0, "target": 0, "slack": 10}, "only_if": "answered"})
    judgement = Judgement("unparsable", 0.0, None)
    assert rewards.score(["q"], ["x" * 5], [Task("q", "a", "d")], [judgement]).total.tolist() == [-0.5]


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(SettingError, match="only_if must be one of answered, correct, got 'right'"):
        RewardSum({"correctness": 1.0, "only_if": "right"})
