"""Answers as policies write them: in every format, dressed, over several lines, and cut."""

from collections.abc import Sequence
from typing import Any

import pytest
from rlinf_envs.extraction import ANSWER_FORMATS, extract
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.reasoning_gym.families import generate, make_family


def verdicts(env: ReasoningGymEnv, responses: Sequence[str], *, cut: bool = False) -> list[str]:
    """Grade responses to the env's first task."""
    env.resize(len(responses))
    env.reset(options={"task_ids": [0] * len(responses)})
    if cut:
        env.mark_cut(range(len(responses)))
    infos = env.step(responses)[-1]
    env.close()
    return list(infos["verdict"])


def make(task: str, **settings: Any) -> ReasoningGymEnv:
    return ReasoningGymEnv(task=task, **{"size": 4, "seed": 5, "split": "all", **settings})


@pytest.mark.parametrize("answer_format", ANSWER_FORMATS)
@pytest.mark.parametrize("task", ["mini_sudoku", "rotate_matrix", "futoshiki", "modulo_grid"])
def test_grids_are_read_in_every_format(task: str, answer_format: str) -> None:
    env = make(task, answer_format=answer_format)
    ((_, response),) = env.demonstrations([0])
    assert "\n" in env.answer(0)
    assert verdicts(env, [response, f"<think>rows</think>{response}", response.rpartition("\n")[0]]) == [
        "correct",
        "correct",
        "unparsable" if answer_format in ("tag", "boxed") else "wrong",
    ]


def test_a_grid_behind_hashes_that_was_cut_counts_up_to_its_last_whole_line() -> None:
    env = make("mini_sudoku", answer_format="####")
    ((_, response),) = env.demonstrations([0])
    assert verdicts(env, [response, f"{response}\n", f"{response}\nDone"], cut=True) == ["wrong", "correct", "correct"]


def test_moves_behind_hashes_are_no_heading() -> None:
    moves = "Move disk 1 from Peg 1 to Peg 3\nMove disk 2 from Peg 1 to Peg 2"
    assert extract(f"Solution:\n#### {moves}", "####", several_lines=True) == moves
    assert extract(moves, "####", several_lines=True) is None


def test_dressed_answers_are_correct_and_wrong_ones_stay_wrong() -> None:
    env = make("chain_sum")
    answer = int(env.answer(0))
    natural = [f"{answer}.", f"x = {answer}", f"${answer}$", f"{answer:,}", f"**{answer + 1}**", "", "banana"]
    assert verdicts(env, [f"<answer>{text}</answer>" for text in natural]) == [
        *["correct"] * 4,
        "wrong",
        "unparsable",
        "wrong",
    ]


def test_partial_credit_is_off_unless_it_is_requested() -> None:
    for partial, score in ((False, 0.0), (True, 0.2)):
        env = make("chain_sum", partial_credit=partial)
        env.reset(options={"task_ids": [0]})
        answer = env.answer(0)
        assert env.step([f"<answer>{answer} or {'9' * (4 * len(answer) - 4)}</answer>"])[1][0] == pytest.approx(score)
        env.close()


def test_refused_answers_are_wrong_without_their_family() -> None:
    env = make("game_of_life_halting")
    other = {"True": "False", "False": "True"}[env.answer(0)]
    assert verdicts(env, [f"<answer>{text}</answer>" for text in (other, "banana")]) == ["wrong", "wrong"]


@pytest.mark.parametrize("task", ["graph_color", "propositional_logic", "rubiks_cube"])
def test_families_with_many_answers_demonstrate_their_example(task: str) -> None:
    env = make(task)
    ((_, response),) = env.demonstrations([0])
    assert response == f"<answer>{env.answer(0)}</answer>"
    family = make_family(task, seed=5, size=4, params=None, curriculum=None)
    assert family.score_answer(env.answer(0), generate(family, "5 0", 0)) == 1.0


def test_a_family_that_names_no_answer_has_no_demonstrations() -> None:
    with pytest.raises(ValueError, match="no reference answer to demonstrate"):
        make("rush_hour").demonstrations([0])
