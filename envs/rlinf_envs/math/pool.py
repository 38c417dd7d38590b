"""Grading in a pool of processes, so that no answer can hold up a training step."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from rlinf_envs.extraction import AnswerFormat
from rlinf_envs.math.final_answer import final_answer, strict_answer
from rlinf_envs.math.grading import Verdict, grade_cheaply
from rlinf_envs.workers import Counts, Outcome, WorkerPool

Extraction = Literal["lenient", "strict"]

DEFAULT_TIMEOUT_S = 5.0
_REMEMBERED = 4096


class VerifierPool:
    """Grades batches: what structure decides here at once, what needs algebra in worker processes."""

    def __init__(self, *, workers: int = 1, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """
        Args:
            workers: processes, started when the first answer needs one.
            timeout_s: deadline per answer in seconds; an answer that exceeds it, or kills its process, is a "timeout".
        """
        self._pool = WorkerPool("rlinf_envs.math.algebra_worker:grade_answer", workers=workers, timeout_s=timeout_s)
        self._hopeless: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.verdicts: Counter[str] = Counter()
        """How often each status was given."""

    @property
    def counts(self) -> Counts:
        """Calls, timeouts, deaths and respawns of the worker processes."""
        return self._pool.counts

    def process_ids(self) -> list[int]:
        """Ids of the worker processes that run now."""
        return self._pool.process_ids()

    def verify(
        self,
        responses: Sequence[str],
        answers: Sequence[str],
        *,
        extraction: Extraction = "lenient",
        answer_format: AnswerFormat = "boxed",
        cut: bool = False,
    ) -> list[Verdict]:
        """One verdict per response, in order. Works in any thread. The options are those of :func:`verify`.

        Raises:
            ValueError: the two sequences differ in length.
            ImportError: math-verify is not installed and an answer needs it.
        """
        strict = cut or extraction == "strict"
        read = partial(strict_answer, answer_format=answer_format, cut=cut) if strict else final_answer
        results = [read(text) for text in responses]
        # Groups repeat answers; each different pair of answer and reference is worked on once.
        pairs = list(zip(results, answers, strict=True))
        graded = self._grade(dict.fromkeys((given, requested) for given, requested in pairs if given is not None))
        nothing = Verdict(False, "unparsable", None)
        verdicts = [nothing if given is None else graded[given, requested] for given, requested in pairs]
        self.verdicts.update(verdict.status for verdict in verdicts)
        return verdicts

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def _grade(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Verdict]:
        """(answer, reference) -> verdict."""
        cheap = {pair: grade_cheaply(*pair) for pair in pairs}
        hard = [pair for pair, verdict in cheap.items() if verdict is None and pair not in self._hopeless]
        outcomes = dict(zip(hard, self._pool.map(hard), strict=True))
        for pair, outcome in outcomes.items():
            if outcome.status == "timeout" and outcome.repeatable:
                # The same answer comes again, from the group and in later steps: its deadline is paid once.
                self._hopeless[pair] = None
                while len(self._hopeless) > _REMEMBERED:
                    self._hopeless.popitem(last=False)
        given_up = Outcome("timeout")
        return {
            pair: _verdict(pair[0], outcomes.get(pair, given_up)) if verdict is None else verdict
            for pair, verdict in cheap.items()
        }


def _verdict(extracted: str, outcome: Outcome) -> Verdict:
    if outcome.status == "done":
        verdict: Verdict = outcome.value
        return verdict
    if outcome.status == "error":
        if "ImportError" in outcome.value:
            raise ImportError(outcome.value)
        return Verdict(False, "unparsable", extracted)
    return Verdict(False, "timeout", extracted)


_shared: list[VerifierPool] = []
_shared_lock = threading.Lock()


def verify(
    response: str,
    answer: str,
    *,
    extraction: Extraction = "lenient",
    answer_format: AnswerFormat = "boxed",
    cut: bool = False,
) -> Verdict:
    """Return whether ``response`` ends in an answer equal to ``answer``.

    Plain numbers, choices and equal texts take microseconds. Answers that need algebra go to a process that all
    callers of this function share, and have five seconds each. It starts at the first such answer, in about a
    second.

    Args:
        extraction: where the final answer may stand. "lenient": in a tag, a box, behind ``####`` or "answer is",
            or on the last line; "strict": in ``answer_format`` alone.
        answer_format: "boxed", "tag", "####" or "plain" (the whole response); read if extraction is strict.
        cut: the response was ended by a length limit. It counts only if its answer was complete in
            ``answer_format`` by then, for any ``extraction``.
    """
    with _shared_lock:
        if not _shared:
            _shared.append(VerifierPool())
    [verdict] = _shared[0].verify([response], [answer], extraction=extraction, answer_format=answer_format, cut=cut)
    return verdict
