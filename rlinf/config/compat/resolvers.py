"""The arithmetic that RLinf's files use inside of ``${...}``: ``${subtract:${a},${b}}`` and the like."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

RESOLVERS: Mapping[str, Callable[..., object]] = {
    "int_div": operator.floordiv,
    "multiply": operator.mul,
    "not": operator.not_,
    "subtract": operator.sub,
}


def register_resolvers(omegaconf: Any) -> None:
    """Make them known to OmegaConf (its class is passed in, for it is imported only where a value needs it)."""
    with warnings.catch_warnings():
        # Version 2.4 renames this function, and the new name means something else in 2.3.
        warnings.simplefilter("ignore")
        for name, function in RESOLVERS.items():
            omegaconf.register_new_resolver(name, function, replace=True)
