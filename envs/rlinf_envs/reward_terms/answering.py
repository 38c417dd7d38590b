"""What reward terms have in common that compare an answer, or read instructions of the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.suggest import unknown

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm


@dataclass(frozen=True)
class Answering:
    """A reward term that compares an answer, and reports which one it found."""

    term: RewardTerm
    answer_in: Callable[[str], str | None]
    """The answer in a response; None if there is none."""

    def __call__(self, *, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        """Return the term's value."""
        return self.term(prompt=prompt, response=response, answer=answer, row=row)


@dataclass(frozen=True)
class RowReading:
    """A reward term that reads instructions of the row, which can be checked without a response."""

    term: RewardTerm
    check: Callable[[Mapping[str, Any]], object]
    """Raises a SettingError if the term cannot read the row."""

    def __call__(self, *, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        """Return the term's value."""
        return self.term(prompt=prompt, response=response, answer=answer, row=row)


def row_value(term: str, field: str, row: Mapping[str, Any]) -> Any:
    """``row[field]``; a SettingError names the fields that there are."""
    if field not in row:
        raise SettingError(f"reward.{term}: {unknown('field of the row', field, map(str, row))}")
    return row[field]
