"""Answers as policies write them: in every format, dressed, over several lines, and wrong ones that families take."""

from collections.abc import Sequence
from typing import Any

import pytest
from rlinf_envs.extraction import ANSWER_FORMATS, extract
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.reasoning_gym.families import generate, make_family
from rlinf_envs.reasoning_gym.readings import readings
from rlinf_envs.reasoning_gym.refusals import refused


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


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        ("12.", "12"),
        ("$12$", "12"),
        ("\\(12\\)", "12"),
        ("\\text{12}", "12"),
        ("**12**", "12"),
        ("x = 12", "12"),
        ("$x = 12$.", "12"),
        ("The answer is 12.", "12"),
        ("Answer: 12", "12"),
        ("12.0", "12"),
        ("1,234,567", "1234567"),
        ("1{,}234", "1234"),
        ("−12", "-12"),
        ("\\frac{3}{8}", "3/8"),
        ("$\\dfrac{3}{8}$", "3/8"),
        ("2 \\times 3 \\times 3", "2 × 3 × 3"),
        ("2*3*3", "2 × 3 × 3"),
        ("2x3x3", "2 × 3 × 3"),
        ("3 \\times 4 + 2", "3*4 + 2"),
        ("3x^2", "3x**2"),
        ("yes", "Yes"),
        ("YES.", "Yes"),
        ("false", "False"),
        ("On", "on"),
        ("[1,2,3]", "[1, 2, 3]"),
        ('["1.5", "2"]', "['1.5', '2']"),
        ("`hello`", "hello"),
        ('"hello"', "hello"),
        ("```\nhello\n```", "hello"),
        ("```text\n1 2\n3 4\n```", "1 2\n3 4"),
        ("1 2 \n3 4 ", "1 2\n3 4"),
        ("Answer:\n1 2\n3 4", "1 2\n3 4"),
        ("You have tried it.", "You have tried it."),
        ("**You have tried it.**", "You have tried it."),
        ("A=1,B=2.", "A=1,B=2"),
        ("#B A#.", "#B A#"),
    ],
)
def test_what_changes_only_the_appearance_is_left_out(written: str, reference: str) -> None:
    assert reference in readings(written, reference)


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        ("13", "12"),
        ("-12", "12"),
        ("12.5", "12"),
        ("1,23", "123"),
        ("not 12", "12"),
        ("12 or 13", "12"),
        ("abba", "ABBA"),
        ("No", "Yes"),
        ("[1, 2]", "[2, 1]"),
        ("1 2", "1 2\n3 4"),
        ("2 × 9", "2 × 3 × 3"),
        ("x = y = 12", "12"),
    ],
)
def test_what_changes_the_answer_is_kept(written: str, reference: str) -> None:
    assert reference not in readings(written, reference)


def test_the_first_reading_is_what_was_written_and_bare_answers_have_no_other() -> None:
    assert readings("12", "12") == ["12"]
    assert readings("banana", "12") == ["banana"]
    assert readings("x = 12", "7")[0] == "x = 12"


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


@pytest.mark.parametrize(
    ("task", "answer", "entry", "wrong"),
    [
        ("complex_arithmetic", "nan", {"answer": "8.0 + 3.0i"}, True),
        ("complex_arithmetic", "8 + 3i", {"answer": "8.0 + 3.0i"}, False),
        ("game_of_life_halting", "False", {"answer": "True"}, True),
        ("game_of_life_halting", "banana", {"answer": "True"}, True),
        ("game_of_life_halting", "true", {"answer": "True"}, False),
        ("game_of_life", "[[0,1,1],[1,0]]", {"answer": "[[0,1],[1,0]]"}, True),
        ("game_of_life", "[[0, 1], [1, 0]]", {"answer": "[[0,1],[1,0]]"}, False),
        ("puzzle24", "4*6*1*1", {"metadata": {"numbers": [1, 3, 5, 9]}}, True),
        ("puzzle24", "5*5 - 1/2", {"metadata": {"numbers": [1, 2, 5, 5]}}, True),
        ("puzzle24", "1*3*5 + 9", {"metadata": {"numbers": [1, 3, 5, 9]}}, False),
        ("number_sorting", "['1.9', '3']", {"metadata": {"sorted_numbers": ["1.0", "3.0"]}}, True),
        ("number_sorting", "['1', '3']", {"metadata": {"sorted_numbers": ["1.0", "3.0"]}}, False),
        ("simple_integration", "Integral(2*x, x)", {"answer": "x**2 + C"}, True),
        ("intermediate_integration", "integrate(2*x, x)", {"answer": "x**2 + C"}, True),
        ("simple_integration", "x**2", {"answer": "x**2 + C"}, False),
        ("coin_flip", "0", {"answer": "0.375"}, True),
        ("coin_flip", "0.3", {"answer": "0.375"}, True),
        ("coin_flip", "0", {"answer": "3.05e-05"}, True),
        ("coin_flip", "3/8", {"answer": "0.375"}, False),
        ("coin_flip", "0.1094", {"answer": "0.109375"}, False),
        ("letter_jumble", "and may not be or be", {"answer": "and may not be"}, True),
        ("letter_jumble", "And may not be", {"answer": "and may not be"}, False),
        ("spell_backward", "noremopyhx", {"answer": "noremopyh"}, True),
        ("figlet_font", "polydemonistx", {"answer": "POLYDEMONIST"}, True),
        ("figlet_font", "p o l y", {"answer": "POLY"}, False),
        ("word_sorting", "a, b, c", {"metadata": {"sorted_words": ["a", "b"]}}, True),
        ("word_sorting", "a,b", {"metadata": {"sorted_words": ["a", "b"]}}, False),
        ("chain_sum", "nan", {"answer": "3"}, False),
    ],
)
def test_wrong_answers_that_families_take_are_refused(
    task: str, answer: str, entry: dict[str, Any], wrong: bool
) -> None:
    assert refused(task, answer, entry) is wrong


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
