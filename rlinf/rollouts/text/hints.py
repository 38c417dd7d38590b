"""The prompt that a teacher reads instead of the policy's: the same question, with its answer or a solution in it.

Sources: OPSD (arXiv:2601.18734) shows a worked solution, here the environment's demonstration; SDPO
(arXiv:2601.20802) a correct response of the same group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlinf.base.errors import UserError
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.tokens.prompts import PromptRenderer

DEMONSTRATION = "{demonstration}"
"""Stands for the environment's worked solution."""
_PARTS = re.compile(r"\{(prompt|answer|solution|demonstration)\}")


def hinted_prompt(
    hint: str, *, prompt: str, answer: str = "", solution: str = "", demonstration: str = ""
) -> str | None:
    """Fill in `teacher.hint`; None if a part that it names is empty. Other braces stay as they are.

    >>> hinted_prompt("{prompt} It is {answer}: \\\\boxed{x}.", prompt="3 + 4?", answer="7")
    '3 + 4? It is 7: \\\\boxed{x}.'
    >>> hinted_prompt("{prompt} It is {answer}.", prompt="3 + 4?") is None
    True
    """
    values = {"prompt": prompt, "answer": answer, "solution": solution, "demonstration": demonstration}
    if not all(values[name] for name in _PARTS.findall(hint)):
        return None
    return _PARTS.sub(lambda result: values[result[1]], hint)


def add_hints(
    rows: Sequence[Row],
    hint: str,
    renderer_of: Callable[[int], PromptRenderer],
    demonstrations: Callable[[list[int]], Sequence[Demonstration]],
) -> float:
    """Write the hinted prompt of each row, and return the share of rows that have one.

    A row has none if the hint names an answer and the environment has none, or a solution and no other response of
    the group was correct. The solution is the first such response, in the order of samples. ``demonstrations`` of
    task ids are requested only if the hint names them.

    Raises:
        UserError: the hint names the answer, and no row has one.
    """
    if "{answer}" in hint and rows and not any(row.answer for row in rows):
        raise UserError(
            "teacher.hint names {answer}, and the environment gives no answer to its tasks. Name {solution} instead: "
            "a correct response of the same group."
        )
    worked: dict[int, str] = {}
    if DEMONSTRATION in hint:
        task_ids = sorted({row.task_id for row in rows})
        worked = dict(zip(task_ids, (one.text for one in demonstrations(task_ids)), strict=True))
    correct: dict[int, list[Row]] = {}
    for row in rows if "{solution}" in hint else ():
        if row.verdict == "correct" and not row.lost:
            correct.setdefault(row.group, []).append(row)
    for row in rows:
        other = next((one for one in correct.get(row.group, ()) if one is not row), None)
        solution = "" if other is None else str(other.text)
        text = hinted_prompt(
            hint,
            prompt=row.prompt_text,
            answer=row.answer,
            solution=solution,
            demonstration=worked.get(row.task_id, ""),
        )
        row.hinted_ids = () if text is None else renderer_of(row.task_id).prompt(text)
    return sum(bool(row.hinted_ids) for row in rows) / max(1, len(rows))
