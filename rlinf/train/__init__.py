"""The loops: train, evaluate, warm start. ``run`` is what the command line calls.

The package can be called: ``rlinf.train(config, callbacks=[...])`` is :func:`rlinf.api.functions.train`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from rlinf.config import Config
from rlinf.train.callbacks import Callback
from rlinf.train.run import RunResult, evaluate_run, run, run_sft

__all__ = ["RunResult", "evaluate_run", "run", "run_sft"]


class _Callable(ModuleType):
    def __call__(self, config: Config, *, callbacks: Sequence[Callback] = (), report: bool = False) -> RunResult:
        return run(config, report=report, callbacks=callbacks)


sys.modules[__name__].__class__ = _Callable
