"""The experts that a mixture of experts sends each token to: recorded while it samples, replayed while it learns.

Sampler and learner round differently, and where two experts score almost alike one of them takes the other expert. Its
output then differs by far more than rounding. Replaying the sampler's choices removes that; the weights of the chosen
experts are computed again, so the gradient still reaches the router. Source: Ma et al., arXiv:2510.11370 (rollout
routing replay, R3).

    N  tokens, in the order in which the model reads them        E  layers with experts, times experts of a token
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

MODEL_TYPES = ("qwen3_moe", "qwen2_moe", "olmoe", "mixtral")
"""Their routers return (logits [N, experts], weights [N, k], experts [N, k]); weights are softmax probabilities."""


def routers(model: nn.Module) -> list[Any]:
    """Return the routers of a model in the order of its layers.

    Raises:
        ValueError: it has none, or those of another kind of model, whose weights are computed otherwise.
    """
    config: Any = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    result = [part for part in model.modules() if type(part).__name__.endswith("TopKRouter")]
    if kind not in MODEL_TYPES or not result:
        raise ValueError(f"the experts of model_type {kind} can't be recorded; known: {', '.join(MODEL_TYPES)}")
    return result


class RouteRecorder:
    """Keeps the experts of each token of the newest forward pass."""

    def __init__(self, model: nn.Module) -> None:
        self._experts: list[Tensor] = []
        self._count = 0
        for number, router in enumerate(routers(model)):
            router.register_forward_hook(lambda _router, _given, output, number=number: self._keep(number, output[2]))
            self._count = number + 1

    def _keep(self, layer: int, experts: Tensor) -> None:
        if layer == 0:
            self._experts = []
        self._experts.append(experts.detach())

    def taken(self) -> Tensor:
        """Return the experts [N, E] int16 of the pass, layer after layer.

        Raises:
            RuntimeError: there was no whole pass since the last call.
        """
        result, self._experts = self._experts, []
        if len(result) != self._count:
            raise RuntimeError(f"{len(result)} of {self._count} routers ran in this pass")
        return torch.cat(result, dim=1).to(torch.int16)


@contextmanager
def replayed(model: nn.Module, routes: Tensor | None) -> Iterator[None]:
    """Send tokens to the experts ``routes`` [N, E] int16 in this context; None, and -1 for a token: to its own.

    The weights of the experts are those of the router now, and have its gradient.
    """
    if routes is None:
        yield
        return
    every = routers(model)
    hooks = []
    for router, chosen in zip(every, routes.long().chunk(len(every), dim=1), strict=True):

        def replay(router: Any, _given: object, output: tuple[Tensor, ...], chosen: Tensor = chosen) -> Any:
            logits, weights, experts = output
            experts = torch.where(chosen >= 0, chosen, experts)
            result = logits.float().softmax(-1).gather(1, experts)
            if getattr(router, "norm_topk_prob", True):  # mixtral always does
                result = result / result.sum(dim=-1, keepdim=True)
            return logits, result.to(weights.dtype), experts

        hooks.append(router.register_forward_hook(replay))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
