"""RMSprop as torch has it, and as TensorFlow had it, for recipes that were tuned with one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.learners.without_compiler import WithoutCompiler


class RMSprop(WithoutCompiler):
    """Divides gradients by the root of a running mean of their squares, which no correction brings up at the start.

    v <- smoothing v + (1 - smoothing) g^2, then w <- w - lr g / (sqrt(v) + eps) with v = 0 at first (torch), so that
    the first steps are 1 / sqrt(1 - smoothing) times lr long; or, with ``inside_root``, w <- w - lr g / sqrt(v + eps)
    with v = 1 at first (TensorFlow), so that they are short.

    >>> weight = nn.Parameter(torch.tensor([1.0]))
    >>> one = RMSprop([weight], lr=0.01, smoothing=0.99, eps=1e-5)
    >>> weight.grad = torch.tensor([2.0])
    >>> one.move(); round(weight.item(), 4)  # 1 - 0.01 * 2 / (0.2 + 1e-5)
    0.9
    """

    def __init__(
        self,
        params: Sequence[nn.Parameter] | list[dict[str, Any]],
        *,
        lr: float,
        smoothing: float,
        eps: float,
        inside_root: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "smoothing": smoothing, "eps": eps, "inside_root": inside_root})

    @torch.no_grad()
    def move(self) -> None:
        """One step of all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            gradients = [parameter.grad for parameter in parameters]
            squares = [self._square(parameter, group["inside_root"]) for parameter in parameters]
            torch._foreach_mul_(squares, group["smoothing"])
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - group["smoothing"])
            torch._foreach_addcdiv_(parameters, gradients, _spread(squares, group), -group["lr"])

    def step(self, closure: Any = None) -> Any:
        """Move as :meth:`move` does, without a closure."""
        self.move()

    @torch.no_grad()
    def update_norms(self) -> list[Tensor]:
        """Compute the norm of each parameter's last update, of those whose gradient is still there."""
        norms = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.state and parameter.grad is not None:
                    spread = _spread([self.state[parameter]["square"]], group)[0]
                    norms.append(torch.linalg.vector_norm(parameter.grad / spread) * group["lr"])
        return norms

    def _square(self, parameter: nn.Parameter, inside_root: bool) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["square"] = torch.ones_like(parameter) if inside_root else torch.zeros_like(parameter)
        square: Tensor = state["square"]
        return square


def _spread(squares: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
    """Compute what gradients are divided by."""
    if group["inside_root"]:
        return list(torch._foreach_sqrt(torch._foreach_add(squares, group["eps"])))
    return list(torch._foreach_add(torch._foreach_sqrt(squares), group["eps"]))
