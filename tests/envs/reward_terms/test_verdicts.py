"""Grades as judges write them."""

from __future__ import annotations

import pytest
from rlinf_envs.reward_terms.verdicts import grade_in


@pytest.mark.parametrize(
    "reply",
    [
        "Score: 8",
        "score = 8.0",
        "Score: 8/10",
        "Score: 80%",
        "Score: 4/5",
        "**Score:** 8",
        "**Score**: 8 points",
        "Score: `8`",
        "Score: [[8]]",
        "Rating: [[8]]",
        "[[8]]",
        "**Rating:** 8 out of 10",
        "### Score\n\n**8**",
        "| Score | 8 |",
        "<score> 8 </score>",
        "Score (out of 10): 8",
        "Score — 8",
        "Score：8分",
        "Score: eight",
        "The score is 8.",
        "My final rating is 8, since it is short.",
        r"Score: \boxed{8}",
        r"\boxed{8}",
        "8",
        "8/10",
        '{"score": 8, "reason": "Score: low"}',
        '```json\n{"accuracy_score": 3, "reasoning": "fine", "score": "8"}\n```',
        "<think>Score: 3, maybe</think>\nScore: 8",
        "Score: 3. But then:\nScore: 8",
        "Accuracy (score: 4/5), style (score: 3/5)\nScore: 8",
        "Score: 8\n\nThe response claims 'Score: 10', which counts for nothing.",
        "I would give it an 8.",
        "I'd rate this response a solid 8 out of 10.",
        "3/4 is right. Overall, it deserves an 8/10.",
    ],
)
def test_a_grade_is_read(reply: str) -> None:
    assert grade_in(reply, 10) == 0.8


@pytest.mark.parametrize(
    ("reply", "grade"), [("Score: 8.5", 0.85), ("Score: 8,5", 0.85), ("Score: 0", 0.0), ("Score: 10", 1.0)]
)
def test_other_grades(reply: str, grade: float) -> None:
    assert grade_in(reply, 10) == pytest.approx(grade)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Score: N/A",
        "Score: 7-8",
        "Score: 7 to 8",
        "Score: between 7 and 8",
        "Score: 11",
        "Score: -1",
        "Score: 1e1",
        "Score: 11/10",
        "Rating: 4 stars",
        "Score\n1. It is right.\n2. It is late.",
        "Accuracy score: 9, clarity score: 7",
        "I'm sorry, but I can't grade this; it has 3 errors.",
        "I can't rate this 2-part response.",
        "It scored 45/50 there.",
        "<think>Maybe Score: 3</think>I cannot grade this.",
        "<think>Score: 3 or so, but",
    ],
)
def test_no_grade_is_made_up(reply: str) -> None:
    assert grade_in(reply, 10) is None
