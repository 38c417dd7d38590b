"""rlinf: one loop that trains language models on verified tasks and policies in simulators.

    import rlinf

    config = rlinf.load("quickstart", "run.seed=1")
    print(rlinf.check(config))
    result = rlinf.fit(config, callbacks=[rlinf.EarlyStopping("eval/accuracy")])
    result.policy.generate("What is 3 + 4 - 2?")

Importing it is light: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

import signal
import sys

if sys.argv[0].endswith("/rlinf") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `cli.main`: Ctrl-C during imports has no traceback

import importlib
from typing import TYPE_CHECKING, Any

from rlinf.base import earlier_paths, packages

if TYPE_CHECKING:
    from rlinf.api.functions import check as check
    from rlinf.api.functions import evaluate as evaluate
    from rlinf.api.functions import fit as fit
    from rlinf.api.functions import load as load
    from rlinf.api.policy import Policy as Policy
    from rlinf.config import Config as Config
    from rlinf.config import ConfigErrors as ConfigErrors
    from rlinf.train.callbacks import Callback as Callback
    from rlinf.train.callbacks import EarlyStopping as EarlyStopping
    from rlinf.train.callbacks import LearningRateSchedule as LearningRateSchedule
    from rlinf.train.callbacks import RunStart as RunStart
    from rlinf.train.callbacks import Step as Step
    from rlinf.train.run import RunResult as RunResult

__version__ = "0.1.0"

packages.warn_of_other_distribution()
earlier_paths.install()

_NAMES = {
    "load": "rlinf.api.functions",
    "check": "rlinf.api.functions",
    "evaluate": "rlinf.api.functions",
    "fit": "rlinf.api.functions",
    "Policy": "rlinf.api.policy",
    "Config": "rlinf.config",
    "ConfigErrors": "rlinf.config",
    "Callback": "rlinf.train.callbacks",
    "EarlyStopping": "rlinf.train.callbacks",
    "LearningRateSchedule": "rlinf.train.callbacks",
    "RunStart": "rlinf.train.callbacks",
    "Step": "rlinf.train.callbacks",
    "RunResult": "rlinf.train.run",
}


def __getattr__(name: str) -> Any:
    if name == "train":
        return importlib.import_module("rlinf.train")
    if name not in _NAMES:
        raise AttributeError(f"module 'rlinf' has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_NAMES, "__version__"])
