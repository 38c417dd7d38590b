"""Refusals of an import: files that train nothing, and features that do not exist here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlinf.base.errors import UserError


@dataclass(frozen=True)
class Missing:
    """A feature that does not exist here: what it is, the setting that selects it, and the nearest that exists."""

    feature: str
    setting: str
    nearest: str

    def __str__(self) -> str:
        return f"{self.feature} ({self.setting}); the nearest here is {self.nearest}"


class NotTrainingError(UserError):
    """The file is no training configuration: ``kind`` states what it is."""

    def __init__(self, path: Path, kind: str, instead: str) -> None:
        super().__init__(f"{path} is no training configuration: it is {kind}. {instead}")
        self.kind = kind


class NotOfferedError(UserError):
    """The file uses features that do not exist here; one sentence names each with the nearest that exists."""

    def __init__(self, path: Path, missing: Sequence[Missing]) -> None:
        self.features = tuple(dict.fromkeys(one.feature for one in missing))
        super().__init__(f"{path} needs what rlinf does not have: {'; '.join(str(one) for one in missing)}.")


class UnsettledError(UserError):
    """The settings that were read make no configuration that passes its check; the check's sentences state why."""

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(f"{path} can't be carried over as it is: {' '.join(problems)}")
