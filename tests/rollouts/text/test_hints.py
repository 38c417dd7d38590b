"""What a teacher reads instead of the policy's prompt, and what is learned from it: numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from letters import Letters

from rlinf.algorithms import compute_advantages
from rlinf.base.errors import UserError
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Completion
from rlinf.rollouts.text.conversation import Feedback, Row
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.hints import add_hints, hinted_prompt
from rlinf.rollouts.text.to_batch import batch_of
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.train.teacher import hinted_teacher

RENDERER = PromptRenderer(Letters())


def answered(group: int, sample: int, response: str, *, correct: bool, answer: str = "7") -> Row:
    """A row about 3 + 4."""
    row = Row(group, sample, 0, "sums", answer, "3+4", tuple(map(ord, "3+4")))
    tokens = tuple(map(ord, response))
    row.append_response(Completion(sample, 0, tokens, (-1.0,) * len(tokens), "stop", (0,) * len(tokens)), RENDERER)
    row.read(Feedback(0, "", float(correct), True, {"verdict": "correct" if correct else "wrong"}), RENDERER)
    return row


def worked(task_ids: list[int]) -> list[Demonstration]:
    """The worked solution of each task: the calculator is called, answers, and the last response ends."""
    return [Demonstration.of(("3+4", [f"<{task}>", "7", "so 7"])) for task in task_ids]


def refused(task_ids: list[int]) -> list[Demonstration]:
    raise AssertionError("no hint names demonstrations")


def read_by_teacher(rows: list[Row], hint: str) -> list[str]:
    add_hints(rows, hint, lambda task: RENDERER, worked if "{demonstration}" in hint else refused)
    return ["".join(map(chr, row.hinted_ids)) for row in rows]


def test_what_is_filled_in_is_not_filled_in_again() -> None:
    assert hinted_prompt("{prompt}|{answer}", prompt="{answer}", answer="{prompt}") == "{answer}|{prompt}"


def test_the_answer_stands_in_the_teachers_prompt() -> None:
    rows = [answered(0, 0, "8", correct=False), answered(0, 1, "7", correct=True, answer="")]
    assert read_by_teacher(rows, "{prompt} ({answer})") == ["3+4 (7)", ""]
    with pytest.raises(UserError, match="gives no answer to its tasks"):
        add_hints(rows[1:], "{prompt} ({answer})", lambda task: RENDERER, refused)


def test_a_solution_is_another_correct_response_of_the_group() -> None:
    rows = [answered(0, 0, "8", correct=False), answered(0, 1, "7", correct=True), answered(0, 2, "07", correct=True)]
    rows += [answered(1, 0, "7", correct=True), answered(1, 1, "1", correct=False)]
    assert read_by_teacher(rows, "{prompt}: {solution}") == ["3+4: 7", "3+4: 07", "3+4: 7", "", "3+4: 7"]
    rows[1].lose("env_error")
    assert read_by_teacher(rows, "{prompt}: {solution}") == ["3+4: 07", "3+4: 07", "", "", "3+4: 7"]


def test_a_demonstration_is_the_worked_solution_of_the_rows_task() -> None:
    rows = [answered(0, 0, "8", correct=False), answered(1, 0, "7", correct=True), answered(1, 1, "1", correct=False)]
    for row in rows[1:]:
        row.task_id = 5
    first, second = "3+4 <0>\n7\nso 7", "3+4 <5>\n7\nso 7"
    assert read_by_teacher(rows, "{prompt} {demonstration}") == [first, second, second]


def test_gains_are_those_of_the_hinted_prompt_and_zero_without_one() -> None:
    """Row 0 has a hint: the teacher finds its tokens at -3 and -0.5, where the policy had -1 each. Row 1 has none."""
    rows = [answered(0, 0, "8.", correct=False), answered(0, 1, "7", correct=True, answer="")]
    add_hints(rows, "{prompt} ({answer})", lambda task: RENDERER, refused)
    batch = batch_of(rows, pad_token_id=0, multi_turn=False)
    seen: list[str] = []

    def teach(given: object) -> torch.Tensor:
        inputs = given.inputs  # type: ignore[attr-defined]
        assert inputs.hinted_ids is None
        seen.extend("".join(map(chr, ids[:n])) for ids, n in zip(inputs.prompt_ids, inputs.prompt_lengths, strict=True))
        return torch.tensor([[-3.0, -0.5], [-9.0, 0.0]])

    found = hinted_teacher(teach)(batch)
    assert seen == ["3+4 (7)", "3+4"]
    assert found.tolist() == [[-3.0, -0.5], [-1.0, 0.0]]
    advantages = compute_advantages(
        "opd",
        rewards=batch.rewards,
        mask=batch.mask,
        group_ids=batch.group_ids,
        logprobs=batch.rollout_logprobs,
        teacher_logprobs=found,
    ).advantages
    assert advantages.tolist() == [[-2.0, 0.5], [0.0, 0.0]]


def test_rows_with_and_without_hints_join() -> None:
    lengths = torch.tensor([2])
    plain = TextInputs(torch.tensor([[5, 6]]), lengths, lengths)
    short = replace(plain, hinted_ids=torch.tensor([[7]]), hinted_lengths=torch.tensor([1]))
    long = replace(plain, hinted_ids=torch.tensor([[7, 8, 9]]), hinted_lengths=torch.tensor([3]))
    prompts, has = TextInputs.join([short, plain, long]).hinted()
    assert has.tolist() == [True, False, True]
    assert prompts.prompt_ids.tolist() == [[7, 0, 0], [5, 6, 0], [7, 8, 9]]
    assert prompts.prompt_lengths.tolist() == [1, 2, 3]
    assert TextInputs.join([plain, plain]).hinted_ids is None
