"""Answers to closed questions as policies write them, and the environments that grade by them."""

import pytest
from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.games.code_book import CodeBook
from rlinf_envs.games.guess_number import GuessNumber, guess_in
from rlinf_envs.games.price_list import PriceList
from rlinf_envs.short_answers import is_number, number_in, option_in
from rlinf_envs.vision.details import Details
from rlinf_envs.vision.figures import Figures


@pytest.mark.parametrize(
    "response",
    [
        "42",
        "42.",
        "$42",
        "$42$",
        "42.0",
        "**42**",
        "\\boxed{42}",
        "<answer>42</answer>",
        "forty-two",
        "It costs 42.",
        "The tea costs 42 today.",
        "The answer is: **42**",
        "It costs 42 cents.",
        "42 square units",
        "The perimeter is 2 * (3 + 18) = 42.",
        "<think>The tool gave 40, or 41.</think>42",
        "<think>41</think>\nThe price is 42.",
        "It costs 41, no, 42.",
    ],
)
def test_a_number_is_read_as_it_is_naturally_written(response: str) -> None:
    assert is_number(number_in(response), 42)


@pytest.mark.parametrize(
    "response", ["", "41", "420", "4 2", "41 or 42", "not 42", "<think>42</think>", "<think>42", "unknown", "42 of 43?"]
)
def test_other_numbers_and_doubts_are_wrong(response: str) -> None:
    assert not is_number(number_in(response), 42)


@pytest.mark.parametrize(
    ("response", "option"),
    [
        ("rows", "rows"),
        ("Rows.", "rows"),
        ("**rows**", "rows"),
        ('"rows"', "rows"),
        ("The box has rows.", "rows"),
        ("The answer is rows.", "rows"),
        ("It shows columns and not rows.\nThe answer: columns", "columns"),
        ("<think>rows or columns</think>rows", "rows"),
        ("The box shows rows, not columns.", "rows"),
        ("<answer>columns</answer>", "columns"),
        ("rows or columns", ""),
        ("not rows", ""),
        ("arrows", ""),
        ("I cannot see it.", ""),
        ("", ""),
        ("<think>rows</think>", ""),
    ],
)
def test_an_option_is_read_in_the_conclusion(response: str, option: str) -> None:
    assert option_in(response, ("rows", "columns")) == option


@pytest.mark.parametrize(
    ("response", "guess"),
    [
        ("42", 42),
        ("42.", 42),
        ("I guess 42", 42),
        ("[guess] 42", 42),
        ("Is it 42?", 42),
        ("My guess is **42**.", 42),
        ("forty-two", 42),
        ("<think>Half of 1 to 100 is 50.</think>42", 42),
        ("The number is between 1 and 100. I guess 42.", 42),
        ("It is between 1 and 100, so 42.", 42),
        ("It is higher than 30, so I guess 42.", 42),
        ("Guess 3: 42", 42),
        ("42 (midpoint of 34 and 50)", 42),
        ("Let me try 42, since it's lower than 50.", 42),
        ("1,042", 1042),
        ("-3", -3),
        ("41 42", 41),
        ("It is higher than 30.", None),
        ("no idea", None),
        ("1234567890", None),
        ("", None),
    ],
)
def test_a_guess_is_no_bound_and_no_thought(response: str, guess: int | None) -> None:
    assert guess_in(response) == guess


def reward(env: Dialogue, response: str) -> float:
    env.reset(seed=0)
    reply = env.step(response.format(getattr(env, "_answer", "")))
    return reply[1]


@pytest.mark.parametrize("form", ["{}", "{}.", "The answer is {}.", "<think>1, 2, rows</think>**{}**"])
def test_environments_with_one_answer_read_it(form: str) -> None:
    assert reward(Figures(), form) == reward(Details(), form) == 1.0
    prices = PriceList()
    prices.reset(seed=0)
    assert prices.price(f" {prices._thing.title()}") == prices.price(prices._thing)
    answered = prices.reply(form.format(prices.price(prices._thing)))
    assert isinstance(answered, End)
    assert answered.reward == 1.0
    book = CodeBook(turns=1)
    book.reset(seed=0)
    ended = book.reply(form.format(book._number(book._questions[0])))
    assert isinstance(ended, End)
    assert ended.reward == 1.0
    game = GuessNumber()
    game.reset(seed=0)
    right = game.reply(form.format(game._number))
    assert isinstance(right, End)
