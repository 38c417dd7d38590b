"""Conversations with the calculator."""

import json
from pathlib import Path

import gymnasium as gym
import pytest
from rlinf_envs.math.calculator import Calculator, result_of
from rlinf_envs.tasks import Task


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("<calc>12 * 7</calc>", "<result>84</result>"),
        ("<calc>1</calc> and <calc>7 / 2</calc>", "<result>3.5</result>"),
        ("<calc>1 / 3</calc>", "<result>1/3</result>"),
        ("<calc>1 / 0</calc>", "<result>error: division by zero</result>"),
        ("<calc>9^9^9^9</calc>", None),
        ("<calc>1 + 1</calc> so \\boxed{2}", None),
        ("I cannot tell", None),
    ],
)
def test_replies(response: str, message: str | None) -> None:
    reply = Calculator().reply(Task("q", "a", "d"), response)
    if "9^9" in response:
        assert reply is not None
        assert reply.startswith("<result>error: cannot raise")
    else:
        assert reply == message


def test_an_episode(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps({"question": "12 * 7 + 1?", "answer": "85"}))
    env = gym.make_vec("rlinf_envs:rlinf/MathToolLoop-v0", num_envs=2, path=str(path), max_turns=2)
    env.reset(options={"task_ids": [0, 0]})
    observations, _, terminated, truncated, _ = env.step(["<calc>12 * 7</calc>", "<calc>12 * 7</calc>"])
    assert observations == ("<result>84</result>", "<result>84</result>")
    assert not (terminated | truncated).any()
    _, rewards, terminated, truncated, infos = env.step([r"\boxed{85}", "<calc>84 + 1</calc>"])
    assert rewards.tolist() == [1.0, 0.0]
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    assert infos["turn"].tolist() == [2, 2]
    env.close()


@pytest.mark.parametrize(
    ("expression", "result"),
    [("12 * 7 =", "84"), ("12 * 7 = ?", "84"), ("$12 × 7", "84"), ("£5 + £6", "11"), ("50% of 80", "40"),
     ("80 * 50%", "40"), ("3 x 4", "12"), ("2(3 + 4)", "14"), (r"\frac{1}{2} * 8", "4"), (r"3 \times 4", "12"),
     ("5 – 3", "2"), ("3²", "9"), ("`12*7`", "84"), ("1,200 + 300", "1500")],
)  # fmt: skip
def test_expressions_as_models_write_them(expression: str, result: str) -> None:
    assert result_of(expression) == f"<result>{result}</result>"


@pytest.mark.parametrize(
    ("expression", "sign"), [("12,5 * 2", ","), ("1,20 + 1", ","), ("7 % 2", "%"), ("3 + 4 apples", "a"), ("5!", "!")]
)
def test_what_has_several_readings_is_an_error(expression: str, sign: str) -> None:
    assert result_of(expression) == f"<result>error: cannot read {sign!r} in {expression!r}</result>"
