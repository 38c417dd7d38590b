"""The record of which weights made which tokens, by which an asynchronous run is repeated bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlinf.base.durable import write_atomically
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines
from rlinf.data.token_array import TokenArray

FILE = "arrivals.jsonl"

Spans = list[tuple[int, int]]
"""(version of the weights, tokens that they made), in the order of the tokens of a response."""


class TokenVersionLog:
    """The spans of every response of a run, a line for each batch."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def truncate(self, step: int) -> None:
        """Forgets the batches from ``step`` on, which a resumed run makes again."""
        kept = [row for row in read_json_lines(self._path, number="step").rows if row["step"] < step]
        write_atomically(self._path, "".join(json.dumps(row) + "\n" for row in kept))

    def add(
        self, step: int, round: int, rows: Sequence[Sequence[TokenArray[int]]], groups: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Add the versions of the tokens of each response of each row.

        ``groups``: if a batch takes what is complete first, which groups it took, each by the step that it was begun
        in and its number there."""
        spans = [[versions.runs() for versions in responses] for responses in rows]
        line: dict[str, Any] = {"step": step, "round": round, "spans": spans}
        if groups:
            line["groups"] = list(groups)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class VersionsOfTokens:
    """The log of a run that is repeated."""

    def __init__(self, run: Path) -> None:
        """Raise UserError if ``run`` has no log."""
        lines = read_json_lines(run / FILE, number="step").rows
        if not lines:
            raise UserError(
                f"rollout.replay_arrivals: {run} has no {FILE}: it was no run whose responses continue during updates "
                "(rollout.staleness above 0)"
            )
        self._run = run
        self._spans: dict[tuple[int, int], dict[int, list[Spans]]] = {}
        """By step and round that a row was begun in, and its index there: the spans of each of its responses."""
        self._sizes: dict[tuple[int, int], int] = {}
        self._groups: dict[int, list[tuple[int, int]]] = {}
        for line in lines:
            step, round = int(line["step"]), int(line.get("round", 0))
            rows = [_by_response(one) for one in line["spans"]]
            self._sizes[step, round] = len(rows)
            if "groups" not in line:
                self._spans[step, round] = dict(enumerate(rows))
                continue
            groups = self._groups[step] = [(int(begun), int(number)) for begun, number in line["groups"]]
            size = len(rows) // len(groups)
            for index, row in enumerate(rows):
                begun, number = groups[index // size]
                self._spans.setdefault((begun, 0), {})[number * size + index % size] = row

    def tokens(self, batch: tuple[int, int], index: int, turn: int, version: int) -> int | None:
        """Return the length of response ``turn`` of row ``index`` when weights ``version`` were replaced.

        The row was begun in this (step, round). None if the response was finished by then. A row that the log does
        not have was never trained on: 0.
        """
        responses = self._spans.get(batch, {}).get(index, [])
        if turn >= len(responses):
            return 0
        until = sum(count for made_by, count in responses[turn] if made_by <= version)
        return None if until == sum(count for _, count in responses[turn]) else until

    def groups(self, step: int) -> list[tuple[int, int]]:
        """Return the groups that the batch of ``step`` took, if it took what was complete first."""
        return self._groups.get(step, [])

    def require(self, step: int, round: int, rows: int) -> None:
        """Raise UserError if the log ends before the batch of ``step``, or is of batches of another size."""
        result = self._sizes.get((step, round), 0)
        if result != rows:
            raise UserError(
                f"rollout.replay_arrivals: {self._run / FILE} has {result} rows of step "
                f"{step}, and {rows} are wanted: repeat it with the run's own config.yaml and run.max_steps"
            )


def _by_response(row: Sequence[Any]) -> list[Spans]:
    """Return the spans of each response of a row; earlier versions wrote those of a row's only one."""
    if row and isinstance(row[0][0], int):
        row = [row]
    return [[(int(version), int(count)) for version, count in spans] for spans in row]
