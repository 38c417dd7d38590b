"""An optimiser that does not import torch's compiler, 2 CPU-seconds at the start of each learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _bare(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return what ``method`` is without the wrapper that keeps the compiler off it, and imports it to do so."""
    bare: Callable[..., Any] = getattr(method, "__wrapped__", method)
    return bare


class WithoutCompiler(torch.optim.Optimizer):
    """Makes, saves and loads the groups of parameters as torch does."""

    add_param_group = _bare(torch.optim.Optimizer.add_param_group)
    state_dict = _bare(torch.optim.Optimizer.state_dict)
    load_state_dict = _bare(torch.optim.Optimizer.load_state_dict)
