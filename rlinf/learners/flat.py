"""Many parameters as one: what an optimiser costs per tensor is more than all else where networks are small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rlinf.learners.ranks import Ranks


class FlatParameters:
    """Lays parameters of one dtype end to end in :attr:`whole` [P], of which they, and their gradients, become views.

    So a step of an optimiser on ``whole`` moves all of them. Gradients are added to: :meth:`forget_gradients` comes
    before each backward pass, and nobody else may take them away (``zero_grad`` does).
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parts = list(parameters)
        self.whole = nn.Parameter(torch.cat([part.detach().reshape(-1) for part in self.parts]))
        self._gradient: Tensor = torch.zeros_like(self.whole)
        self.whole.grad = self._gradient
        sizes = [part.numel() for part in self.parts]
        pieces = zip(self.whole.detach().split(sizes), self._gradient.split(sizes), strict=True)
        for part, (values, gradient) in zip(self.parts, pieces, strict=True):
            part.data = values.view_as(part)
            part.grad = gradient.view_as(part) if part.requires_grad else None

    def forget_gradients(self) -> None:
        self._gradient.zero_()

    def average_gradients(self, ranks: Ranks, size: int) -> None:
        """The mean over ``size`` ranks, in one message."""
        if size > 1:
            self._gradient.copy_(ranks.sum(self._gradient)).div_(size)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Computations inside give these parameters no gradient."""
        trained = [part for part in self.parts if part.requires_grad]
        for part in trained:
            part.requires_grad_(False)
        try:
            yield
        finally:
            for part in trained:
                part.requires_grad_(True)
