"""Log lines: time, level and process, once, and nothing over an application's own handlers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from rlinf.base import logs
from rlinf.base.errors import UserError


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """A logger with no handler below a root without handlers, instead of `rlinf`."""
    made = logging.Logger("rlinf")
    monkeypatch.setattr(logs, "_LOGGER", made)
    yield made
    made.handlers.clear()


def test_lines_have_time_level_and_process(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.show("INFO", "driver")
    logs.show("INFO", "learner 3")
    logger.info("step %d: checkpoint", 4)
    logger.debug("unseen")
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO learner 3 rlinf: step 4: checkpoint\n", line)


def test_handlers_of_the_application_stay_alone(logger: logging.Logger) -> None:
    own = logging.NullHandler()
    logger.addHandler(own)
    logs.show("DEBUG", "driver")
    assert logger.handlers == [own]
    assert logger.level == logging.NOTSET


def test_the_level_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(logs.LEVEL, raising=False)
    assert logs.requested_level() is None
    monkeypatch.setenv(logs.LEVEL, "debug")
    assert logs.requested_level() == "DEBUG"
    monkeypatch.setenv(logs.LEVEL, "loud")
    with pytest.raises(UserError, match="RLINF_LOG=LOUD is no level"):
        logs.requested_level()
