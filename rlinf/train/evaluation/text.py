"""Evaluation of text policies on a held-out split of the environment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rlinf.data.messages import Metrics
from rlinf.data.pictures import with_other_pictures
from rlinf.metrics.evaluated import WITH_PICTURES, WITH_QUESTIONS, WRONG_TOOLS
from rlinf.rollouts.text.conversation import Answers, Row
from rlinf.rollouts.text.members import TextMixtureEnv, evaluation_tasks
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.schema import EvaluationConfig
from rlinf.train.evaluation.changed_inputs import WrongAnswers, with_other_questions
from rlinf.train.evaluation.outcomes import Outcome, TaskOutcome, rate_metrics
from rlinf.train.evaluation.responses import GradedResponse


@dataclass(frozen=True)
class Evaluation:
    """Metrics under `eval/`, and a few graded samples (text) or episodes (simulators) for inspection."""

    metrics: Metrics
    samples: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is printed for the user."""
    outcomes: Sequence[Outcome] = ()
    """One for each task (simulators: start state), in their order: what two evaluations are compared by."""
    responses: Iterable[GradedResponse] = ()
    """Of text, in the order of the tasks; to be read once, and made only then: training has no use for them."""


class TextEvaluator:
    """The same tasks each time: the first ``size`` of split "eval" (fewer if it has fewer)."""

    def __init__(self, rollout: TextRollout, options: EvaluationConfig, members: Sequence[TextMixtureEnv]) -> None:
        """``members``: the environments of the split "eval"."""
        self._members = members
        self.rollout, self.samples, self.seed = rollout, options.samples, options.seed
        self._options = options
        self.task_ids = evaluation_tasks(members, options.size) if options.size else []
        params, temperature = rollout.params, options.temperature
        self.params = params.greedy() if temperature == 0.0 else replace(params, temperature=temperature)

    def evaluate(self) -> Evaluation:
        done = self.rollout.converse(
            "eval", self.task_ids, samples=self.samples, params=self.params, key=(self.seed, 0)
        )
        rows = done.rows
        by_task = [rows[i : i + self.samples] for i in range(0, len(rows), self.samples)]
        outcomes = [TaskOutcome.of(responses) for responses in by_task]
        metrics = {**rate_metrics(outcomes), **_shape(rows), **_by_member(self._members, rows)}
        metrics |= self._listening()
        samples = [
            sample(row, self.rollout.rendered(row.task_id, row.prompt_text))
            for row in rows[: 3 * self.samples : self.samples]
        ]
        responses = (self._graded(row) for row in rows)
        return Evaluation(metrics, samples, notes=self._long_prompts(rows), outcomes=outcomes, responses=responses)

    def _graded(self, row: Row) -> GradedResponse:
        renderer = self.rollout.renderer_of(row.task_id)
        return GradedResponse.of(row, *renderer.opening_messages(row.prompt_text))

    def _long_prompts(self, rows: Sequence[Row]) -> list[str]:
        """Return what to print about prompts that take the room of their responses: those are cut, or empty."""
        limit = self.rollout.max_prompt_length
        lengths = {row.task_id: len(row.prompt_ids) for row in rows if len(row.prompt_ids) > limit}
        if not lengths:
            return []
        empty = len({row.task_id for row in rows if row.finish_reason == "too_long"})
        return [
            f"evaluation: {len(lengths)} of {len(self.task_ids)} prompts are longer than data.max_prompt_length "
            f"{limit} (up to {max(lengths.values())}): their responses have less room, and those of {empty} none, "
            "which count as wrong"
        ]

    def _listening(self) -> Metrics:
        """Measure the accuracy on the same tasks with other pictures, other questions and wrong tool answers."""
        offset = self.samples * len(self._members)  # the next task of the same environment
        changes: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {
            **{
                WITH_PICTURES[which]: functools.partial(with_other_pictures, which=which, offset=offset)
                for which in self._options.pictures
            },
            **{
                WITH_QUESTIONS[which]: functools.partial(with_other_questions, which=which, offset=offset)
                for which in self._options.questions
            },
        }
        metrics = {name: self._accuracy(change=change) for name, change in changes.items()}
        if self._options.wrong_tools:
            metrics[WRONG_TOOLS] = self._accuracy(answers=WrongAnswers)
        return metrics

    def _accuracy(
        self,
        change: Callable[[Sequence[str]], Sequence[str]] = tuple,
        answers: Callable[[Answers], Answers] | None = None,
    ) -> float:
        """Share of right responses when prompts, or the answers of environments, are changed."""
        done = self.rollout.converse(
            "eval",
            self.task_ids,
            samples=self.samples,
            params=self.params,
            key=(self.seed, 0),
            change=change,
            answers=answers,
        )
        return sum(row.verdict == "correct" for row in done.rows) / len(done.rows)


def sample(row: Row, rendered: str) -> dict[str, Any]:
    """Return a graded conversation as plain data. ``rendered``: its first prompt as the policy read it."""
    return {
        "prompt": row.prompt_text,
        "rendered": rendered,
        "response": "\n".join(row.answers),
        "turns": [asdict(turn) for turn in row.turns],
        "answer": row.answer,
        "verdict": row.verdict,
        "reward": row.total_reward,
        "tokens": len(row.tokens),
    }


def _by_member(members: Sequence[TextMixtureEnv], rows: Sequence[Row]) -> Metrics:
    """Return the results of each environment of a mixture; nothing if there is one alone."""
    metrics: Metrics = {}
    for number, member in enumerate(members if len(members) > 1 else ()):
        own = [row for row in rows if row.task_id % len(members) == number]
        if own:
            metrics[f"eval/accuracy/{member.name}"] = sum(row.verdict == "correct" for row in own) / len(own)
            metrics[f"eval/reward/{member.name}"] = sum(row.total_reward for row in own) / len(own)
    return metrics


def _shape(rows: Sequence[Row]) -> Metrics:
    count = len(rows)
    return {
        "eval/reward": sum(row.total_reward for row in rows) / count,
        "eval/response_length": sum(len(row.tokens) for row in rows) / count,
        "eval/cut_by_length": sum(row.cut_by_length for row in rows) / count,
        "eval/unparsable": sum(row.verdict == "unparsable" for row in rows) / count,
    }
