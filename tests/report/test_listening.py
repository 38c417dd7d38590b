"""The table of what a policy listens to, on runs where the answer is known."""

from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import healthy, write_run

from rlinf.report.listening import listening
from rlinf.report.runs import read_run


def rows(folder: Path, **last: float) -> dict[str, dict]:
    """The table of a run whose accuracy went from 0.2 to 0.8 on 100 tasks, with further figures of its last step."""
    lines = [healthy(step) for step in range(1, 6)]
    for line, accuracy in ((lines[0], 0.2), (lines[-1], 0.8)):
        line |= {"eval/accuracy": accuracy, "eval/accuracy/n": 100.0}
    lines[-1] |= {name.replace("__", "/"): value for name, value in last.items()}
    return {row["changed"]: row for row in listening(read_run(write_run(folder / "run", lines)))}


@pytest.mark.parametrize(("blank", "verdict"), [(0.1, "it decides"), (0.75, "it hardly matters")])
def test_a_question_that_is_left_out_decides_or_not(tmp_path: Path, blank: float, verdict: str) -> None:
    row = rows(tmp_path, eval__blank_questions=blank)["the question is left out"]
    assert (row["usual"], row["value"], row["verdict"]) == (0.8, blank, verdict)
    assert row["low"] < blank < row["high"]


def test_a_policy_that_is_always_wrong_shows_nothing(tmp_path: Path) -> None:
    row = rows(tmp_path, eval__blank_questions=0.0, eval__accuracy=0.01)["the question is left out"]
    assert row["verdict"] == "too few are right to tell"


def test_what_was_not_measured_names_its_key(tmp_path: Path) -> None:
    found = rows(tmp_path)
    assert found["the question of another task"]["verdict"] == "not measured (evaluation.questions: [swapped])"
    # The run has neither pictures nor tools.
    assert not {"pictures of one colour", "every digit in tool answers is one higher"} & found.keys()


def test_the_reward_has_a_row(tmp_path: Path) -> None:
    row = rows(tmp_path)["rewards exchanged between responses"]
    assert (row["usual"], row["value"]) == (0.8, None)
    assert row["verdict"] == "not measured (a run with algorithm.reward_noise: 1)"


def test_a_run_with_exchanged_rewards_is_compared_with_its_start(tmp_path: Path) -> None:
    lines = [{"step": step, "eval/accuracy": value, "eval/accuracy/n": 100.0} for step, value in ((0, 0.2), (5, 0.8))]
    run = replace(read_run(write_run(tmp_path / "run", lines)), config={"algorithm": {"reward_noise": 1.0}})
    row = listening(run)[-1]
    assert (row["changed"], row["usual"], row["value"]) == ("rewards of 100% of the responses exchanged", None, 0.8)
    assert row["verdict"] == "from 0.2 before training it gained"


def test_a_run_without_evaluations_has_no_table(tmp_path: Path) -> None:
    assert listening(read_run(write_run(tmp_path / "run", [{"step": 1, "reward/mean": 0.5}]))) == []


def robot_rows(folder: Path, policy: str, **last: float) -> dict[str, str]:
    """The verdicts on a simulator policy that succeeds in 80 of 100 episodes."""
    line = {"step": 1, "eval/success_once": 0.8, "eval/success_once/n": 100.0, **last}
    run = replace(read_run(write_run(folder / "run", [line])), config={"policy": {"name": policy}})
    return {row["changed"]: row["verdict"] for row in listening(run)}


@pytest.mark.parametrize(("follows", "verdict"), [(0.1, "it does not follow them"), (0.75, "it follows them")])
def test_another_goal_is_followed_or_not(tmp_path: Path, follows: float, verdict: str) -> None:
    found = robot_rows(tmp_path, "vla", **{"eval/follows": follows, "eval/blank_words": 0.1})
    assert found == {"the words are left out": "it decides", "the words name another goal": verdict}


def test_a_policy_without_words_has_none_left_out(tmp_path: Path) -> None:
    assert robot_rows(tmp_path, "actor_critic") == {}
