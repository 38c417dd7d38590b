"""The update of an off-policy algorithm: some networks, by one set of sampled transitions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlinf.learners.adam import Adam
from rlinf.learners.moments import own_options
from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.learners.off_policy.temperature import Temperature
from rlinf.learners.ranks import ONE_RANK, Ranks
from rlinf.models.off_policy.networks import OffPolicyNetworks
from rlinf.schema import AlgorithmConfig, OptimizerConfig

PolicyT = TypeVar("PolicyT", bound=OffPolicyNetworks)


@dataclass(frozen=True)
class Placement:
    """Where a learner's rank computes, and the ranks that share each update."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    size: int = 1
    ranks: Ranks = ONE_RANK


class Improvement(NamedTuple):
    """The result of one update."""

    metrics: dict[str, Tensor]
    """Means over this rank's transitions."""
    errors: Tensor
    """[M] absolute temporal-difference errors, by which transitions may be sampled."""


class Trained:
    """Parameters that one optimiser moves: laid end to end, their gradients averaged over the ranks."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        placement: Placement,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        grad_clip: float = 0.0,
    ) -> None:
        """``grad_clip``: the largest norm of the gradient; 0 is off."""
        self.flat, self.lr = FlatParameters(parameters), lr
        self._placement, self._grad_clip = placement, grad_clip
        self.optimizer = Adam([self.flat.whole], lr=lr, betas=betas, fused=True)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient of ``loss`` alone."""
        self.flat.forget_gradients()
        loss.backward()

    def step(self) -> None:
        """Move the parameters, the same way on all ranks."""
        if self._placement.size > 1:
            self.flat._gradient.copy_(self._placement.ranks.sum(self.flat._gradient)).div_(self._placement.size)
        if self._grad_clip > 0:
            nn.utils.clip_grad_norm_([self.flat.whole], self._grad_clip)
        self.optimizer.move()

    def descend(self, loss: Tensor) -> None:
        """One step of gradient descent."""
        self.backward(loss)
        self.step()


class Target:
    """A copy of some modules that follows them slowly, or is renewed from time to time."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._online = list(modules)
        self.modules = copy.deepcopy(nn.ModuleList(modules)).requires_grad_(False)
        self.weights = FlatParameters(self.modules.parameters())

    def copy(self) -> None:
        """Becomes what the modules are now."""
        self.modules.load_state_dict(nn.ModuleList(self._online).state_dict())

    def follow(self, online: Sequence[FlatParameters], share: float) -> None:
        """Move ``share`` of the way to ``online``, the parameters in the order of the modules; buffers are copied."""
        with torch.no_grad():
            pieces = self.weights.whole.split([part.whole.numel() for part in online])
            for mine, theirs in zip(pieces, online, strict=True):
                mine.lerp_(theirs.whole, share)
            buffers = zip(self.modules.buffers(), (b for module in self._online for b in module.buffers()), strict=True)
            for kept, newest in buffers:
                kept.copy_(newest)


class OffPolicyObjective(Generic[PolicyT]):
    """One algorithm. A subclass makes :attr:`trained` and :attr:`target`, and writes :meth:`improve`."""

    noise_draws = 0
    """Standard normal numbers [M, draw_size of the policy's head] that an update consumes."""

    trained: dict[str, Trained]
    target: Target | None = None
    temperature: Temperature | None = None

    def __init__(
        self, policy: PolicyT, algorithm: AlgorithmConfig, optimizer: OptimizerConfig, placement: Placement
    ) -> None:
        self.policy, self.algorithm, self.optimizer, self.placement = policy, algorithm, optimizer, placement
        self.critic_lr = optimizer.critic_lr or optimizer.lr

    def explore(self, seen: int) -> dict[str, float]:
        """Set how the policy explores after ``seen`` transitions, and return what is worth a metric."""
        return {}

    def improve(self, sampled: Transitions, noise: Tensor, number: int) -> Improvement:
        """Apply the update ``number`` (from 0 on) by this rank's transitions and noise [noise_draws, M, draw_size]."""
        raise NotImplementedError

    def acts_now(self, number: int) -> bool:
        """Whether the actor moves in update ``number``: in the last one of every ``policy_delay``."""
        return (number + 1) % self.algorithm.policy_delay == 0

    def follow(self, online: Sequence[FlatParameters], number: int) -> None:
        """Move the target towards ``online`` in every ``target_update_every``-th update."""
        if self.target is not None and (number + 1) % self.algorithm.target_update_every == 0:
            self.target.follow(online, self.algorithm.target_tau)

    def regression(self, judged: Tensor, wanted: Tensor, sampled: Transitions) -> Tensor:
        """Half the squared error (or Huber's) of estimates [critics, M] of ``wanted`` [M], summed over the critics."""
        delta, weights = self.algorithm.huber_delta, sampled.weights
        if delta is None and weights is None:
            return 0.5 * (judged - wanted).square().mean(1).sum()
        goal = wanted.expand_as(judged)
        if delta is None:
            losses = 0.5 * (judged - goal).square()
        else:
            losses = functional.huber_loss(judged, goal, reduction="none", delta=delta)
        return (losses if weights is None else losses * weights).mean(1).sum()

    def state_dict(self) -> dict[str, Any]:
        """Optimisers, targets and temperature."""
        parts = self.trained.items()
        state: dict[str, Any] = {f"{name}_optimizer": part.optimizer.state_dict() for name, part in parts}
        if self.target is not None:
            state["target"] = self.target.modules.state_dict()
        if self.temperature is not None:
            state["log_alpha"] = self.temperature.log.detach()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Moments come from the checkpoint, learning rates stay those of the configuration."""
        self.load_target(state)
        with own_options(*(part.optimizer for part in self.trained.values())):
            for name, part in self.trained.items():
                part.optimizer.load_state_dict(state[f"{name}_optimizer"])
        if self.temperature is not None:
            with torch.no_grad():
                self.temperature.log.copy_(state["log_alpha"])

    def load_target(self, state: dict[str, Any]) -> None:
        """Load the targets alone; if the checkpoint has none, they become a copy of the networks as they are."""
        if self.target is None:
            return
        if "target" in state:
            self.target.modules.load_state_dict(state["target"])
        else:
            self.target.copy()


def td_errors(judged: Tensor, wanted: Tensor) -> Tensor:
    """[M] from estimates [critics, M]: the mean over the critics of the absolute errors."""
    return (judged.detach() - wanted).abs().mean(0)


class FlatParameters:
    """Lays parameters of one dtype end to end in :attr:`whole` [P], of which they and their gradients become views.

    So a step of an optimiser on ``whole`` moves all of them. Gradients are added to: :meth:`forget_gradients`
    comes before each backward pass, and no other code may take them away (``zero_grad`` does).
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

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep computations inside from giving these parameters a gradient."""
        trained = [part for part in self.parts if part.requires_grad]
        for part in trained:
            part.requires_grad_(False)
        try:
            yield
        finally:
            for part in trained:
                part.requires_grad_(True)
