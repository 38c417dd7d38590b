"""Wrong answers that families take."""

from typing import Any

import pytest
from rlinf_envs.reasoning_gym.refusals import refused


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
