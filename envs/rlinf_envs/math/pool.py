"""Grading in a pool of processes, so that no answer can hold up a training step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from rlinf_envs.math.final_answer import final_answer
from rlinf_envs.math.grading import Verdict, grade_cheaply
from rlinf_envs.workers import Counts, Outcome, WorkerPool

DEFAULT_TIMEOUT_S = 5.0


class VerifierPool:
    """Grades batches: what structure decides here at once, what needs algebra in worker processes."""

    def __init__(self, *, workers: int = 1, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """
        Args:
            workers: processes, started when the first answer needs one.
            timeout_s: deadline per answer in seconds; an answer that exceeds it, or kills its process, is a "timeout".
        """
        self._pool = WorkerPool("rlinf_envs.math.algebra_worker:grade", workers=workers, timeout_s=timeout_s)
        self.verdicts: Counter[str] = Counter()
        """How often each status was given."""

    @property
    def counts(self) -> Counts:
        """Calls, timeouts, deaths and respawns of the worker processes."""
        return self._pool.counts

    def process_ids(self) -> list[int]:
        """Ids of the worker processes that run now."""
        return self._pool.process_ids()

    def verify(self, responses: Sequence[str], answers: Sequence[str]) -> list[Verdict]:
        """One verdict per response, in order. Works in any thread.

        Raises:
            ValueError: the two sequences differ in length.
            ImportError: math-verify is not installed and an answer needs it.
        """
        pairs = list(zip(responses, answers, strict=True))
        verdicts = [grade_cheaply(response, answer) for response, answer in pairs]
        # Groups repeat answers; each different pair is worked on once.
        hard = list(dict.fromkeys(pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict is None))
        graded = dict(zip(hard, self._pool.map(hard), strict=True))
        complete = [verdict or _verdict(pair[0], graded[pair]) for pair, verdict in zip(pairs, verdicts, strict=True)]
        self.verdicts.update(verdict.status for verdict in complete)
        return complete

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()


def _verdict(response: str, outcome: Outcome) -> Verdict:
    if outcome.status == "done":
        verdict: Verdict = outcome.value
        return verdict
    if outcome.status == "error":
        if "ImportError" in outcome.value:
            raise ImportError(outcome.value)
        return Verdict(False, "unparsable", final_answer(response))
    return Verdict(False, "timeout", final_answer(response))


_shared: list[VerifierPool] = []
_shared_lock = threading.Lock()


def verify(response: str, answer: str) -> Verdict:
    """Whether ``response`` ends in an answer equal to ``answer``.

    Plain numbers, choices and equal texts take microseconds. Answers that need algebra go to a process that all callers
    of this function share (it starts at the first such answer, about a second) and have five seconds each.
    """
    verdict = grade_cheaply(response, answer)
    if verdict is not None:
        return verdict
    with _shared_lock:
        if not _shared:
            _shared.append(VerifierPool())
    return _shared[0].verify([response], [answer])[0]
