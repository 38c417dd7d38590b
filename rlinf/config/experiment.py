"""One experiment: the typed sections of its file, and what follows from them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

from rlinf.config.derived import derive, is_text
from rlinf.config.extras import Extra, needed_extras
from rlinf.config.record import ConfigRecord
from rlinf.schema import Sections
from rlinf.schema.derived import DerivedConfig, RolloutSections


@dataclass(frozen=True)
class Config(Sections):
    """One experiment."""

    @functools.cached_property
    def facts(self) -> DerivedConfig:
        """Derive what follows from the configuration, if it passed its checks: once, and handed down with it."""
        return derive(self)

    @functools.cached_property
    def collection(self) -> RolloutSections:
        """Collect the part that rollouts read."""
        sections = {item.name: getattr(self, item.name) for item in fields(RolloutSections) if item.name != "facts"}
        return RolloutSections(**sections, facts=self.facts)

    @functools.cached_property
    def extras(self) -> Sequence[Extra]:
        """List the optional libraries that the run needs."""
        return needed_extras(self, text=is_text(self))

    @functools.cached_property
    def record(self) -> ConfigRecord:
        """Make the copy that a run directory keeps, and compares with."""
        return ConfigRecord.of(self)
