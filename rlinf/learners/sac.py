"""Soft actor-critic (Haarnoja et al., arXiv:1812.05905): off-policy learning with an entropy bonus."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlinf.learners.moments import own_options
from rlinf.learners.replay import ReplayBuffer, Transitions
from rlinf.streams import torch_generator
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate


@dataclass(frozen=True)
class SacOptions:
    """Named as in the configuration: `algorithm.sac_*`, `algorithm.replay_*`, `learner.optimizer`."""

    seed: int
    gamma: float = 0.99
    lr: float = 3e-4
    critic_lr: float | None = None
    tau: float = 0.005
    alpha: float | Literal["auto"] = "auto"
    target_entropy: float | None = None
    replay_capacity: int = 1_000_000
    replay_start: int = 1_000
    replay_batch_size: int = 256
    replay_ratio: float = 1.0
    n_step: int = 1
    replay_folder: Path | None = None


class SacLearner:
    """Fits `interfaces.Learner`. ``policy`` is a `SoftActorCritic` (or anything with its draw and judge)."""

    def __init__(self, policy: Any, options: SacOptions) -> None:
        self.policy = policy
        self.options = options
        self.replay = ReplayBuffer(options.replay_capacity, folder=options.replay_folder)
        self._target = copy.deepcopy(nn.ModuleList([policy.critic_encoder, policy.critic])).requires_grad_(False)
        self._actor_parameters = policy.parameters_of_actor()
        self._critic_parameters = policy.parameters_of_critic()
        learned = options.alpha == "auto"
        start = 0.0 if options.alpha == "auto" else math.log(options.alpha)
        self._log_alpha = torch.tensor(start, requires_grad=learned)
        self._target_entropy = options.target_entropy
        if self._target_entropy is None:
            self._target_entropy = -float(policy.noise_size)
        # Fused Adam does one pass over all weights; unfused it is a third of the update's time.
        self._actor_optimizer = torch.optim.Adam(self._actor_parameters, lr=options.lr, fused=True)
        self._critic_optimizer = torch.optim.Adam(
            self._critic_parameters, lr=options.critic_lr or options.lr, fused=True
        )
        self._alpha_optimizer = torch.optim.Adam([self._log_alpha], lr=options.lr) if learned else None
        self._seen = 0
        self._updates = 0

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """Stores the fragment, then makes ``replay_ratio`` updates per new transition once there are enough."""
        self.replay.add(batch)
        self.policy.observe(batch.inputs, batch.mask)
        arrived = int(batch.mask.sum())
        self._seen += arrived
        metrics: Metrics = {"replay_size": float(len(self.replay))}
        if self._seen < self.options.replay_start:
            return metrics
        due = int((self._seen - self.options.replay_start) * self.options.replay_ratio) - self._updates
        sums: dict[str, Tensor] = {}
        generator = torch_generator(self.options.seed, "sac", step)
        for _ in range(max(due, 0)):
            for name, value in self._improve(generator).items():
                sums[name] = sums.get(name, torch.zeros(())) + value
        self._updates += max(due, 0)
        return metrics | {name: float(total) / due for name, total in sums.items()} | {"updates": float(self._updates)}

    def _improve(self, generator: torch.Generator) -> dict[str, Tensor]:
        """One update of critics, actor, temperature and targets."""
        options = self.options
        sampled = self.replay.sample(
            options.replay_batch_size, gamma=options.gamma, n_step=options.n_step, generator=generator
        )
        count, size = options.replay_batch_size, self.policy.noise_size
        noise = torch.randn(2, count, size, generator=generator)
        alpha = self._log_alpha.detach().exp()
        critic_loss = self._critic_loss(sampled, noise[0], alpha)
        self._critic_optimizer.zero_grad()
        critic_loss.backward()
        self._critic_optimizer.step()

        actions, logprobs = self.policy.draw(sampled.inputs, noise[1])
        # The critics are only judges here: their gradients are neither needed nor computed.
        for parameter in self._critic_parameters:
            parameter.requires_grad_(False)
        actor_loss = (alpha * logprobs - self.policy.judge(sampled.inputs, actions).amin(0)).mean()
        self._actor_optimizer.zero_grad()
        actor_loss.backward()
        self._actor_optimizer.step()
        for parameter in self._critic_parameters:
            parameter.requires_grad_(True)

        entropy = -logprobs.detach().mean()
        if self._alpha_optimizer is not None:
            assert self._target_entropy is not None
            self._log_alpha.grad = (entropy - self._target_entropy) * self._log_alpha.detach().exp()
            self._alpha_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self._target.parameters()), self._critic_parameters, options.tau)
        return {
            "critic_loss": critic_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "entropy": entropy,
            "alpha": alpha,
        }

    def _critic_loss(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> Tensor:
        """Half the squared error of both critics against the soft bootstrapped return."""
        with torch.no_grad():
            actions, logprobs = self.policy.draw(sampled.next_inputs, noise)
            encoder, critic = self._target
            following = critic(encoder(sampled.next_inputs), torch.tanh(actions)).amin(0) - alpha * logprobs
            target = sampled.rewards + sampled.discounts * following
        judged = self.policy.judge(sampled.inputs, sampled.actions)
        return 0.5 * (judged - target).square().mean(1).sum()

    def evaluate(self, batch: Batch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """All rows, and what the current weights say of them. There is no reference policy here."""
        if reference:
            raise ValueError("loss_type sac keeps no reference policy")
        with torch.no_grad():
            return torch.arange(batch.num_rows), self.policy.evaluate(batch.inputs, batch.actions, batch.mask)

    def weights(self, *, version: int) -> WeightUpdate:
        return WeightUpdate(version, {name: tensor.clone() for name, tensor in self.policy.weights()})

    def save(self, folder: Path) -> None:
        """Networks, targets, optimisers, temperature and the whole buffer."""
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self._state(), folder / "learner.pt")
        torch.save(self.replay.state_dict(), folder / "replay.pt")

    def load(self, folder: Path) -> None:
        """Continues bit for bit where :meth:`save` stopped."""
        state = torch.load(folder / "learner.pt", weights_only=True)
        self.policy.load_state_dict(state["policy"])
        self._target.load_state_dict(state["target"])
        with own_options(self._actor_optimizer, self._critic_optimizer):
            self._actor_optimizer.load_state_dict(state["actor_optimizer"])
            self._critic_optimizer.load_state_dict(state["critic_optimizer"])
        if self._alpha_optimizer is not None:
            with own_options(self._alpha_optimizer):
                self._alpha_optimizer.load_state_dict(state["alpha_optimizer"])
        with torch.no_grad():
            self._log_alpha.copy_(state["log_alpha"])
        self._seen, self._updates = state["seen"], state["updates"]
        self.replay.load_state_dict(torch.load(folder / "replay.pt", weights_only=True))

    def _state(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "target": self._target.state_dict(),
            "actor_optimizer": self._actor_optimizer.state_dict(),
            "critic_optimizer": self._critic_optimizer.state_dict(),
            "alpha_optimizer": None if self._alpha_optimizer is None else self._alpha_optimizer.state_dict(),
            "log_alpha": self._log_alpha.detach(),
            "seen": self._seen,
            "updates": self._updates,
        }

    def export(self, folder: Path) -> None:
        """A folder that `SoftActorCritic.from_pretrained` loads."""
        self.policy.save_pretrained(str(folder))
