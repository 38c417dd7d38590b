"""Adam and the clipping before it as bare kernels, for networks so small that their bookkeeping costs more.

Both give torch's own numbers, bit for bit. What is spared is sorting tensors by device and dtype, which torch does
in every step: of a network with ten layers it takes five times as long as the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.learners.ranks import whole_tensor
from rlinf.learners.rmsprop import RMSprop
from rlinf.learners.without_compiler import WithoutCompiler

_STATE = ("exp_avg", "exp_avg_sq", "step")
_KERNELS = ("_fused_adam_", "_fused_adamw_", "_foreach_add_", "_foreach_mul_", "_foreach_norm")
"""Functions of torch that are not public: a torch without one of them gets the public optimizer and clipping."""


class Adam(WithoutCompiler, torch.optim.Adam):
    """torch's fused Adam (AdamW if ``decoupled_weight_decay``) and its state; `move()` is `step()` with less overhead.

    Hooks of :meth:`step` are not called by :meth:`move`.
    """

    _sorted: list[tuple[list[Tensor], ...]] | None = None
    """Of each group: means, squares and step counters, in the order of its parameters."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._sorted = None

    @torch.no_grad()
    def move(self) -> None:
        """One step."""
        if self._sorted is None:
            groups = [group["params"] for group in self.param_groups]
            if not _alike([parameter.grad for group in groups for parameter in group]):
                self.step()
                return
            for group in self.param_groups:
                self._init_group(group, [], [], [], [], [], [])
            self._sorted = [
                tuple([self.state[parameter][name] for parameter in group] for name in _STATE) for group in groups
            ]
        for group, (means, squares, steps) in zip(self.param_groups, self._sorted, strict=True):
            torch._foreach_add_(steps, 1)
            kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
            kernel(
                group["params"],
                [parameter.grad for parameter in group["params"]],
                means,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    @torch.no_grad()
    def update_norms(self) -> list[Tensor]:
        """Compute the norm of each parameter's last update, without weight decay.

        It is lr m / (sqrt(v) + eps) with both moments corrected for their start."""
        norms = []
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            states = [self.state[parameter] for parameter in group["params"] if parameter in self.state]
            steps = torch.stack([state["step"] for state in states]).tolist() if states else ()  # one wait for a GPU
            for state, done in zip(states, steps, strict=True):
                spread = (state["exp_avg_sq"] / (1 - beta2**done)).sqrt_().add_(group["eps"])
                moved = torch.div(state["exp_avg"], spread, out=spread)
                norms.append(torch.linalg.vector_norm(moved) * (group["lr"] / (1 - beta1**done)))
        return norms


@torch.no_grad()
def update_ratio(optimizer: Adam | RMSprop) -> float | None:
    """|update| / |weights| of the last step, norms over all parameters that took it; None before the first one.

    Takes the memory of one parameter.

    >>> weight = nn.Parameter(torch.tensor([4.0, -3.0]))
    >>> one = Adam([weight], lr=0.1, fused=True)
    >>> weight.grad = torch.tensor([1.0, 2.0])
    >>> one.move(); round(update_ratio(one), 4)  # each weight moved by lr: 0.1414 / 4.982
    0.0284
    """
    updates = optimizer.update_norms()
    if not updates:
        return None
    moved = (p for group in optimizer.param_groups for p in group["params"] if p in optimizer.state)
    weights = [torch.linalg.vector_norm(parameter.detach()) for parameter in moved]
    size = float(whole_tensor(torch.linalg.vector_norm(torch.stack(weights))))
    return float(whole_tensor(torch.linalg.vector_norm(torch.stack(updates)))) / size if size else None


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """Compute the norm of all ``gradients`` together."""
    if not _alike(gradients):
        return nn.utils.get_total_norm(gradients)
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2.0)))


def clip_gradients(parameters: Sequence[nn.Parameter], limit: float, norm: Tensor) -> None:
    """Scales the gradients so that their ``norm`` (:func:`gradient_norm`) becomes at most ``limit``."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if _alike(gradients):
        torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
    else:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)


def _alike(tensors: Sequence[Tensor | None]) -> bool:
    """Whether all are there, whole, of float32 and on the CPU, and the kernels are: then torch has nothing to sort."""
    if not all(hasattr(torch, name) for name in _KERNELS):
        return False
    return all(type(t) is Tensor and t.dtype is torch.float32 and t.device.type == "cpu" for t in tensors)
