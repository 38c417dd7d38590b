"""Stop signals in blocks within blocks: the outer block has its own state again after the inner one."""

from __future__ import annotations

import signal

import pytest

from rlinf.base.signals import Stopped, defer_signals, stop_signals


@pytest.fixture(autouse=True)
def heeded() -> object:
    """Take Ctrl-C as a terminal's process does: a shell's background jobs, and their children, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_section_holds_signals_back_after_a_block_within_an_earlier_one() -> None:
    """A callback that evaluates inside of a section, as with `evaluation.background`, opens such a block."""
    with stop_signals():
        with defer_signals(), stop_signals():
            pass
        done = []
        with pytest.raises(Stopped), defer_signals():
            done = [signal.raise_signal(signal.SIGTERM)]
        assert done


def test_a_signal_that_came_in_an_inner_block_is_raised_after_the_section() -> None:
    with stop_signals():
        done = []
        with pytest.raises(Stopped), defer_signals():
            done = [_stopped_within()]
        assert done


def _stopped_within() -> None:
    with stop_signals():
        signal.raise_signal(signal.SIGTERM)
