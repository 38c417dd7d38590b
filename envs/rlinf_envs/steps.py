"""Process supervision: a response split into steps, each with a score."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlinf.base.user_code import Signature, imported
from rlinf_envs.equations import equations
from rlinf_envs.errors import SettingError
from rlinf_envs.suggest import reject_unknown, unknown
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.typed import misfits


class StepScorer(Protocol):
    """Scores the steps of one response. A learned process reward model fits this as well as a rule does."""

    def score(self, *, question: str, steps: Sequence[str], answer: str, correct: bool) -> list[float]:
        """One number per step; NaN for a step that cannot be judged. A response without any step is one blank step."""


StepFunction = Callable[..., Sequence[float]]
"""A function with the parameters of :meth:`StepScorer.score`."""


@dataclass(frozen=True)
class Step:
    """A step's text and the character offset just behind it in the response."""

    text: str
    end: int


def split_steps(response: str, delimiter: str = "\n") -> list[Step]:
    """Split at the delimiters into non-blank pieces.

    ``end`` points behind a step's last character, before the delimiter."""
    if not delimiter:
        raise SettingError("the delimiter of steps must not be empty")
    steps = []
    start = 0
    for piece in response.split(delimiter):
        if piece.strip():
            steps.append(Step(piece.strip(), start + len(piece.rstrip())))
        start += len(piece) + len(delimiter)
    return steps


class ArithmeticScorer:
    """Checks chains such as ``12 * 7 = 84``: ``right`` if every equation of the step holds, ``wrong`` if one does not.

    A step without an equation of numbers scores NaN, except the last, which takes the verdict on the final answer.
    """

    def __init__(self, right: float = 1.0, wrong: float = 0.0) -> None:
        self.right, self.wrong = right, wrong

    def score(self, *, question: str, steps: Sequence[str], answer: str, correct: bool) -> list[float]:
        """One of ``right``, ``wrong`` and NaN per step."""
        scores = [self._score(step) for step in steps]
        if scores and scores[-1] != self.wrong:
            scores[-1] = self.right if correct else self.wrong
        return scores

    def _score(self, step: str) -> float:
        verdicts = equations(step)
        if not verdicts:
            return float("nan")
        return self.right if all(verdicts) else self.wrong


_CALL = Signature(names=("question", "steps", "answer", "correct"))
SCORERS = {"arithmetic": ArithmeticScorer}


class FunctionScorer:
    """A plain function as a scorer."""

    def __init__(self, function: StepFunction) -> None:
        self._function = function

    def score(self, *, question: str, steps: Sequence[str], answer: str, correct: bool) -> list[float]:
        """Return the scores that the function gives."""
        return list(self._function(question=question, steps=steps, answer=answer, correct=correct))


def load_scorer(name: str, options: Mapping[str, Any]) -> StepScorer:
    """Load the scorer ``module:name``: a class (made with ``options``), a function, or an object with ``score``.

    Raises:
        SettingError: the module or the name does not exist, it cannot score, or it is no class and there are
            options.
    """
    try:
        result = imported(name)
    except ValueError as error:
        raise SettingError(f"steps.scorer: {error}") from error
    if inspect.isclass(result):
        misfit = Signature(names=tuple(options), makes=True).misfit(result)
        if misfit:
            raise SettingError(f"steps.scorer: {name} {misfit}. Arguments of the class are set in steps.options")
        result = result(**options)
    elif options:
        raise SettingError(f"steps.options are for a scorer that is a class, and {name!r} is none")
    score = getattr(result, "score", None)
    misfit = _CALL.misfit(result if score is None else score)
    if misfit:
        method = "" if score is None else ".score"
        raise SettingError(f"steps.scorer: {name}{method} {misfit}. Write def NAME(*, {', '.join(_CALL.names)})")
    scorer: StepScorer = FunctionScorer(result) if score is None else result
    return scorer


class StepGrader:
    """Splits and scores the responses of a batch; made from the ``steps`` setting of an environment."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """
        Args:
            config: ``delimiter`` between steps, and ``scorer``: a name of :data:`SCORERS`, ``module:name`` (see
                :func:`load_scorer`; a class is made with ``options``), or a :class:`StepScorer`. The scorers of
                :data:`SCORERS` read ``right`` and ``wrong``.
        """
        reject_unknown("option of steps", config, ("scorer", "delimiter", "right", "wrong", "options"))
        wrong = misfits(_settings, config, "steps.")
        if wrong:
            raise SettingError("; ".join(wrong))
        self.delimiter: str = config.get("delimiter", "\n")
        split_steps("", self.delimiter)
        self.scorer = _scorer(config)

    def grade(
        self, responses: Sequence[str], tasks: Sequence[Task], judgements: Sequence[Judgement]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Character offsets behind each step, and the steps' scores; one list per response."""
        ends: list[list[int]] = []
        scores: list[list[float]] = []
        for response, task, judgement in zip(responses, tasks, judgements, strict=True):
            # An empty response is a step as well: without a score of its own it would beat every wrong step.
            steps = split_steps(response, self.delimiter) or [Step("", len(response))]
            values = self.scorer.score(
                question=task.question,
                steps=[step.text for step in steps],
                answer=task.answer,
                correct=judgement.status == "correct",
            )
            if len(values) != len(steps):
                raise ValueError(f"the step scorer gave {len(values)} scores for {len(steps)} steps")
            if any(math.isinf(value) for value in values):
                raise ValueError(f"the step scorer gave an infinite score: {values}")
            ends.append([step.end for step in steps])
            scores.append([float(value) for value in values])
        return ends, scores


def _settings(
    *,
    scorer: str | StepScorer = "arithmetic",
    delimiter: str = "\n",
    right: float = 1.0,
    wrong: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Declare the types of what `steps` holds."""


def _scorer(config: Mapping[str, Any]) -> StepScorer:
    chosen, options = config.get("scorer", "arithmetic"), config.get("options") or {}
    built_in = isinstance(chosen, str) and ":" not in chosen
    if built_in and chosen not in SCORERS:
        raise SettingError(unknown("step scorer", chosen, SCORERS))
    strange = {"options"} if built_in else {"right", "wrong"}
    for name in sorted(strange & set(config)):
        raise SettingError(f"steps.{name} is not read by the step scorer {chosen!r}")
    if built_in:
        return SCORERS[chosen](float(config.get("right", 1.0)), float(config.get("wrong", 0.0)))
    if isinstance(chosen, str):
        return load_scorer(chosen, options)
    scorer: StepScorer = chosen
    return scorer
