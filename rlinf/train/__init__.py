"""The loops: train, evaluate, warm start. ``run`` is what the command line calls.

The package can be called: ``rlinf.train(config, callbacks=[...])`` is :func:`rlinf.api.functions.train`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from rlinf.api.functions import train
from rlinf.train.run import RunResult, evaluate_run, run, run_sft

__all__ = ["RunResult", "evaluate_run", "run", "run_sft"]


class _Callable(ModuleType):
    __call__ = staticmethod(train)


sys.modules[__name__].__class__ = _Callable
