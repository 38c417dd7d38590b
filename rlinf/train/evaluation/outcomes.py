"""The outcome of each task of an evaluation (of text; simulators: of each start state), and the rates that follow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Self

from rlinf.data.messages import Metrics
from rlinf.metrics.evaluated import pass_sizes
from rlinf.rollouts.text.conversation import Row
from rlinf.train.evaluation.intervals import pass_at_k, share_interval, with_interval
from rlinf.train.evaluation.start_outcomes import StartOutcome, start_rates


@dataclass(frozen=True)
class TaskOutcome:
    """The responses to one task."""

    task: str
    """A digest of the prompt and the reference answer: the same task has the same one in every evaluation."""
    verdicts: tuple[str, ...]
    """Of each response, as the environment reported it."""
    answers: tuple[str | None, ...]
    """The final answer that was found in each response; None where there was none."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Collect the outcomes of all responses to one task."""
        text = f"{rows[0].prompt_text}\0{rows[0].answer}"
        extracted = [row.facts.get("extracted") for row in rows]
        return cls(
            blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(),
            tuple(row.verdict for row in rows),
            tuple(None if answer is None else str(answer) for answer in extracted),
        )

    @property
    def correct(self) -> int:
        return self.verdicts.count("correct")

    @property
    def share(self) -> float:
        """Correct responses among all."""
        return self.correct / len(self.verdicts)

    @property
    def majority(self) -> float:
        """Return whether the most frequent answer is correct (self-consistency, arXiv:2203.11171); 0 without any
        answer.

        All correct responses have one answer, whatever they wrote; wrong ones count as equal by :func:`vote`. Of
        several answers that are equally frequent each is as good.

        >>> TaskOutcome("", ("correct", "correct", "wrong", "wrong"), ("1/2", "0.5", "2", " 2")).majority
        0.5
        >>> TaskOutcome("", ("unparsable", "correct"), (None, "7")).majority
        1.0
        """
        votes: Counter[str | None] = Counter()
        for verdict, answer in zip(self.verdicts, self.answers, strict=True):
            if verdict == "correct":
                votes[None] += 1
            elif answer is not None:
                votes[vote(answer)] += 1
        if not votes:
            return 0.0
        most = max(votes.values())
        tied = [answer for answer, count in votes.items() if count == most]
        return (None in tied) / len(tied)


_DRESS = re.compile(
    r"\\(?:text|mathrm|mathbf|textbf|boxed|left|right|displaystyle)(?![a-z])|\\[,;:! ()\[\]]|\{,\}|[$*`\"'\s]"
    r"|(?<=\d),(?=\d{3}(?!\d))"
)
_NUMBER = re.compile(r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}|\d{1,40}/\d{1,40})")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_UNIT = re.compile(r"([-+]?[\d.,/]+)\s+(?!hundred|thousand|million|billion|percent|dozen)[a-z][a-z ]{2,}")


def vote(answer: str) -> str:
    """Return what ``answer`` is counted as: numbers by their value, other texts without their appearance.

    >>> vote("$x = 12.0$") == vote("12 apples") == vote("12"), vote("\\\\frac{1}{2}"), vote("(B)"), vote("Yes.")
    (True, '1/2', 'b', 'yes')
    """
    text = answer.lower().strip(" .$")
    unit = _UNIT.fullmatch(text)
    text = _DRESS.sub("", _FRACTION.sub(r"\1/\2", unit[1] if unit else text)).rstrip(".")
    text = re.sub(r"^[a-z]=(?=[^=]+$)", "", text.replace("−", "-"))
    text = re.sub(r"^[({]([^(){},]*)[)}]$", r"\1", text)
    if _NUMBER.fullmatch(text):
        with suppress(ZeroDivisionError):
            return str(Fraction(text))
    return text


Outcome = TaskOutcome | StartOutcome


def outcome_from_json(stored: dict[str, Any]) -> Outcome:
    """Read the outcome of either kind from its fields, whose lists are tuples here."""
    kind: type[StartOutcome] | type[TaskOutcome] = StartOutcome if "returns" in stored else TaskOutcome
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    return kind(**fields)


def paired_rates(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Metric -> its value for each of ``outcomes``, all of the kind of the first."""
    starts = [outcome for outcome in outcomes if isinstance(outcome, StartOutcome)]
    return start_rates(starts) if starts else rates([one for one in outcomes if isinstance(one, TaskOutcome)])


def rates(outcomes: Sequence[TaskOutcome]) -> dict[str, list[float]]:
    """Metric -> its value for each task; its mean over the tasks is what is reported.

    With k > 1 responses a task: `avg@k` (the share of correct ones, the same as `accuracy`), `pass@j` for the powers of
    two up to k and k itself (unbiased), and `maj@k`, where the environment reports the answers of wrong responses:
    without them only correct ones would vote.

    >>> sorted(rates([TaskOutcome("", ("correct", "wrong", "wrong"), ("1", "2", "2"))]))
    ['accuracy', 'avg@3', 'maj@3', 'pass@2', 'pass@3']
    >>> sorted(rates([TaskOutcome("", ("correct", "wrong", "wrong"), (None, None, None))]))
    ['accuracy', 'avg@3', 'pass@2', 'pass@3']
    """
    samples = len(outcomes[0].verdicts)
    results = {"accuracy": [outcome.share for outcome in outcomes]}
    if samples == 1:
        return results
    results[f"avg@{samples}"] = results["accuracy"]
    for k in pass_sizes(samples):
        results[f"pass@{k}"] = [pass_at_k(samples, outcome.correct, k) for outcome in outcomes]
    votes = zip(
        (verdict for outcome in outcomes for verdict in outcome.verdicts),
        (answer for outcome in outcomes for answer in outcome.answers),
        strict=True,
    )
    if ("wrong", None) not in votes:
        results[f"maj@{samples}"] = [outcome.majority for outcome in outcomes]
    return results


def rate_metrics(outcomes: Sequence[TaskOutcome]) -> Metrics:
    """:func:`rates` as metrics under `eval/`, each with its 95% interval (:func:`share_interval`)."""
    samples, metrics = len(outcomes[0].verdicts), Metrics()
    for name, values in rates(outcomes).items():
        # A vote is one trial a task, however many responses took part in it.
        trials = 1 if name.startswith("maj@") else samples
        mean = sum(values) / len(values)
        metrics |= with_interval(f"eval/{name}", mean, share_interval(values, trials), len(values))
    return metrics
