"""Finding answers by format, and writing them so that they are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlinf_envs.extraction import ANSWER_FORMATS, AnswerFormat, extract, last_boxed, render


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{1} \boxed{2", "1"),
        (r"\boxed{1} \boxed{2 {3}", "1"),
        (r"\boxed{\boxed{1}}", r"\boxed{1}"),
        (r"\boxed{\boxed{1}", "1"),
        (r"} \fbox {x}", "x"),
        (r"\boxed 7", "7"),
        (r"\boxed{}", ""),
        ("nothing", None),
    ],
)
def test_the_last_complete_box(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize("answer_format", ANSWER_FORMATS)
@given(answer=st.text(alphabet="0123456789abc+-,. ()", min_size=1).filter(lambda text: text.strip() == text))
def test_what_is_rendered_is_read_back(answer_format: AnswerFormat, answer: str) -> None:
    assert (
        extract("Let me see.\n" * (answer_format != "plain") + render(answer, answer_format), answer_format) == answer
    )


@pytest.mark.parametrize(
    ("answer_format", "response"),
    [("tag", "<answer>1"), ("boxed", "1"), ("####", "#### "), ("plain", " \n"), ("tag", "")],
)
def test_no_answer(answer_format: AnswerFormat, response: str) -> None:
    assert extract(response, answer_format) is None
