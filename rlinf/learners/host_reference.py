"""A reference policy that waits on the host: a rank's part of each parameter by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@torch.no_grad()
def moved_towards(
    current: Iterable[tuple[str, Tensor]], reference: dict[str, Tensor] | None, *, keep: float
) -> dict[str, Tensor]:
    """keep * reference + (1 - keep) * current, on the CPU; without a reference a copy of ``current``.

    >>> one = {"w": torch.tensor([1.0])}
    >>> moved_towards([("w", torch.tensor([3.0]))], one, keep=0.75)
    {'w': tensor([1.5000])}
    """
    if not keep or reference is None:
        return {name: part.detach().to("cpu", copy=True) for name, part in current}
    return {name: reference[name].lerp(part.detach().to("cpu"), 1 - keep) for name, part in current}


@contextmanager
def swapped_in(
    reference: dict[str, Tensor] | None, current: Callable[[], Iterable[tuple[str, Tensor]]], *, stage: str
) -> Iterator[None]:
    """Hold the reference weights in the policy, whose own are ``current``, for a while. ValueError without any."""
    if reference is None:
        raise ValueError(f"stage {stage!r} keeps no reference policy")
    _exchange(current(), reference)
    try:
        yield
    finally:
        _exchange(current(), reference)


@torch.no_grad()
def _exchange(current: Iterable[tuple[str, Tensor]], others: dict[str, Tensor]) -> None:
    for name, part in current:
        before = part.detach().to("cpu", copy=True)
        part.copy_(others[name])
        others[name] = before
