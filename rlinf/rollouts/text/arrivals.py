"""The record of which weights made which tokens, by which an asynchronous run is repeated bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rlinf.columns import Column
from rlinf.errors import UserError
from rlinf.json_files import read_json_lines

FILE = "arrivals.jsonl"

Spans = list[tuple[int, int]]
"""(version of the weights, tokens that they made), in the order of the tokens of a response."""


class ArrivalLog:
    """The spans of every response of a run, a line for each batch."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def truncate(self, step: int) -> None:
        """Forgets the batches from ``step`` on, which a resumed run makes again."""
        kept = [row for row in read_json_lines(self._path, number="step").rows if row["step"] < step]
        self._path.write_text("".join(json.dumps(row) + "\n" for row in kept))

    def add(self, step: int, round: int, responses: Sequence[Column[int]]) -> None:
        """The versions of the tokens of each response of a batch."""
        line = {"step": step, "round": round, "spans": [versions.runs() for versions in responses]}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class Arrivals:
    """The log of a run that is repeated."""

    def __init__(self, run: Path) -> None:
        """Raises UserError where ``run`` has no log."""
        rows = read_json_lines(run / FILE, number="step").rows
        if not rows:
            raise UserError(
                f"rollout.replay_arrivals: {run} has no {FILE}: it was no run with rollout.staleness above 0"
            )
        self._run = run
        self._spans: dict[tuple[int, int], list[Spans]] = {}
        """By step and round."""
        for row in rows:
            spans = [[(int(version), int(count)) for version, count in one] for one in row["spans"]]
            self._spans[int(row["step"]), int(row.get("round", 0))] = spans

    def tokens(self, batch: tuple[int, int], place: int, version: int) -> int | None:
        """How long response ``place`` of the ``batch`` of a step and round was when weights ``version`` were replaced.

        None where it was finished by then. A batch that the log does not have was never trained on: 0.
        """
        if batch not in self._spans:
            return 0
        spans = self._spans[batch][place]
        until = sum(count for made_by, count in spans if made_by <= version)
        return None if until == sum(count for _, count in spans) else until

    def require(self, step: int, round: int, rows: int) -> None:
        """Raises UserError where the log ends before the batch of ``step``, or is of batches of another size."""
        found = len(self._spans.get((step, round), ()))
        if found != rows:
            raise UserError(
                f"rollout.replay_arrivals: {self._run / FILE} has {found} responses of step "
                f"{step}, and {rows} are wanted: repeat it with the run's own config.yaml and run.max_steps"
            )
