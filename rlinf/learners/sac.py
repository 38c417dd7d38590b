"""Soft actor-critic (Haarnoja et al., arXiv:1812.05905): off-policy learning with an entropy bonus.

Of several ranks each holds the whole buffer and takes its share of the transitions of an update; gradients are
averaged, so that all of them make the update that one rank would make.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.config.schema import AlgorithmConfig, OptimizerConfig
from rlinf.learners.flat import FlatParameters
from rlinf.learners.moments import own_options
from rlinf.learners.ranks import ONE_RANK, Ranks
from rlinf.learners.replay import ReplayBuffer, Transitions
from rlinf.learners.stored_policy import require_same_weights, shapes
from rlinf.streams import torch_generator
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate

# Updates whose transitions are fetched with one read of the buffer; bounded for the sake of images.
_SAMPLED_TOGETHER = 8
_NO_REFERENCE = "loss_type sac keeps no reference policy"


class SacLearner:
    """An `interfaces.Learner` with one stage. ``policy`` is a `SoftActorCritic`, or has its draw and judge."""

    def __init__(
        self,
        policy: Any,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        *,
        seed: int,
        replay_folder: Path | None = None,
        device: torch.device | str = "cpu",
        rank: int = 0,
        size: int = 1,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        """``size`` divides the batch of an update. Networks are on ``device``, the buffer in host memory or on disk."""
        self.policy = policy.to(device)
        self.algorithm, self.seed = algorithm, seed
        self.device, self.rank, self.size, self.ranks = torch.device(device), rank, size, ranks
        self.replay = ReplayBuffer(algorithm.replay_capacity, folder=replay_folder)
        self._target = copy.deepcopy(nn.ModuleList([policy.critic_encoder, policy.critic])).requires_grad_(False)
        self._learns_alpha = algorithm.sac_alpha == "auto"
        start = 0.0 if algorithm.sac_alpha == "auto" else math.log(algorithm.sac_alpha)
        self._log_alpha = nn.Parameter(torch.tensor(start, device=device), requires_grad=self._learns_alpha)
        # The temperature moves together with the actor: an optimiser of its own would cost as much as the actor's.
        moved_together = [self._log_alpha] if self._learns_alpha else []
        self._actor = FlatParameters([*policy.parameters_of_actor(), *moved_together])
        self._critic = FlatParameters(policy.parameters_of_critic())
        self._target_weights = FlatParameters(self._target.parameters())
        self._target_entropy = algorithm.sac_target_entropy
        if self._target_entropy is None:
            self._target_entropy = -float(policy.noise_size)
        self._actor_optimizer = torch.optim.Adam([self._actor.whole], lr=optimizer.lr, fused=True)
        critic_lr = optimizer.critic_lr or optimizer.lr
        self._critic_optimizer = torch.optim.Adam([self._critic.whole], lr=critic_lr, fused=True)
        self._rates = (optimizer.lr, critic_lr)
        self._seen = 0
        self._updates = 0

    def start(self, stage: str) -> None:
        """Nothing: networks, optimisers and buffer are those of the only stage, "train"."""
        if stage != "train":
            raise ValueError(f"loss_type sac has no stage {stage!r}")

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates of actor and critic."""
        for held, rate in zip((self._actor_optimizer, self._critic_optimizer), self._rates, strict=True):
            held.param_groups[0]["lr"] = rate * factor

    def refresh_reference(self) -> None:
        """Raises ValueError: there is no reference policy here."""
        raise ValueError(_NO_REFERENCE)

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """Stores the fragment, then makes ``replay_ratio`` updates per new transition once there are enough."""
        self.replay.add(batch)
        self.policy.observe(batch.inputs, batch.mask)
        arrived = int(batch.mask.sum())
        self._seen += arrived
        metrics: Metrics = {"replay_size": float(len(self.replay))}
        if self._seen < self.algorithm.replay_start:
            return metrics
        due = int((self._seen - self.algorithm.replay_start) * self.algorithm.replay_ratio) - self._updates
        if due <= 0:
            return metrics | {"updates": float(self._updates)}
        collected: dict[str, list[Tensor]] = defaultdict(list)
        generator = torch_generator(self.seed, "sac", step)
        for first in range(0, due, _SAMPLED_TOGETHER):
            for sampled, noise in self._samples(min(_SAMPLED_TOGETHER, due - first), generator):
                for name, value in self._improve(sampled, noise).items():
                    collected[name].append(value)
        self._updates += due
        means = self.ranks.sum(torch.stack([torch.stack(values).mean() for values in collected.values()])) / self.size
        return metrics | dict(zip(collected, means.tolist(), strict=True)) | {"updates": float(self._updates)}

    def _samples(self, updates: int, generator: torch.Generator) -> list[tuple[Transitions, Tensor]]:
        """This rank's transitions of some updates, and noise [2, M, A] for each. One read of the buffer gives all."""
        count = self.algorithm.replay_batch_size
        sampled = self.replay.sample(
            updates * count,
            gamma=self.algorithm.gamma,
            n_step=self.algorithm.n_step,
            generator=generator,
            rank=self.rank,
            size=self.size,
        )
        noise = torch.randn(updates, 2, count, self.policy.noise_size, generator=generator)
        here = noise[:, :, self.rank :: self.size].to(self.device)
        return list(zip(sampled.to(self.device).split(count // self.size), here.unbind(), strict=True))

    def _improve(self, sampled: Transitions, noise: Tensor) -> dict[str, Tensor]:
        """One update of critics, actor, temperature and targets; losses and entropy are of this rank's transitions."""
        alpha = self._log_alpha.detach().exp()
        critic_loss = self._critic_loss(sampled, noise[0], alpha)
        self._critic.forget_gradients()
        critic_loss.backward()
        self._critic.average_gradients(self.ranks, self.size)
        self._critic_optimizer.step()

        # The critics are only judges here: their gradients are neither needed nor computed.
        with self._critic.frozen():
            actions, logprobs = self.policy.draw(sampled.inputs, noise[1])
            actor_loss = (alpha * logprobs - self.policy.judge(sampled.inputs, actions).amin(0)).mean()
        entropy = -logprobs.detach().mean()
        self._actor.forget_gradients()
        actor_loss.backward()
        if self._learns_alpha:
            assert self._target_entropy is not None
            assert self._log_alpha.grad is not None
            self._log_alpha.grad.add_((entropy - self._target_entropy) * alpha)
        self._actor.average_gradients(self.ranks, self.size)
        self._actor_optimizer.step()
        with torch.no_grad():
            self._target_weights.whole.lerp_(self._critic.whole, self.algorithm.sac_tau)
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
        """This rank's rows, and what the current weights say of them. There is no reference policy here."""
        if reference:
            raise ValueError(_NO_REFERENCE)
        rows = torch.arange(self.rank, batch.num_rows, self.size)
        inputs = batch.inputs.select(rows).to(self.device)
        actions, mask = batch.actions[rows].to(self.device), batch.mask[rows].to(self.device)
        with torch.no_grad():
            said = self.policy.evaluate(inputs, actions, mask)
        return rows, PolicyOutput(said.logprobs.cpu(), said.entropy.cpu())

    def weight_parts(self, bucket_bytes: int) -> int:
        """One: networks of this kind are small."""
        return 1

    def weights(self, *, version: int, part: int = 0, bucket_bytes: int | None = None) -> WeightUpdate:
        """On the CPU, on rank 0; nothing on the others. All are one part."""
        named = self.policy.weights() if self.rank == 0 else ()
        return WeightUpdate(version, {name: tensor.to("cpu", copy=True) for name, tensor in named})

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Nothing: the networks stay where they are."""
        return {"offload_bytes": 0.0, "offload_s": 0.0}

    def wake(self, *, weights_only: bool = False) -> None:
        """Nothing has moved."""

    def save(self, folder: Path) -> None:
        """Networks, targets, optimisers, temperature and the whole buffer (rank 0 writes)."""
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(self._state(), folder / "learner.pt")
            self.replay.save(folder)

    def load(self, folder: Path) -> None:
        """Continues bit for bit where :meth:`save` stopped."""
        state = torch.load(folder / "learner.pt", map_location=self.device, weights_only=True)
        self.policy.load_state_dict(state["policy"])
        self._target.load_state_dict(state["target"])
        with own_options(self._actor_optimizer, self._critic_optimizer):
            self._actor_optimizer.load_state_dict(state["actor_optimizer"])
            self._critic_optimizer.load_state_dict(state["critic_optimizer"])
        with torch.no_grad():
            self._log_alpha.copy_(state["log_alpha"])
        self._seen, self._updates = state["seen"], state["updates"]
        self.replay.load(folder)

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Takes networks and targets of another run; optimisers and temperature if asked. The buffer stays empty."""
        state = torch.load(folder / "learner.pt", map_location=self.device, weights_only=True)
        require_same_weights(shapes(self.policy.state_dict()), shapes(state["policy"]))
        self.policy.load_state_dict(state["policy"])
        self._target.load_state_dict(state["target"])
        if not optimizer:
            return
        with own_options(self._actor_optimizer, self._critic_optimizer):
            self._actor_optimizer.load_state_dict(state["actor_optimizer"])
            self._critic_optimizer.load_state_dict(state["critic_optimizer"])
        if self._learns_alpha:
            with torch.no_grad():
                self._log_alpha.copy_(state["log_alpha"])

    def _state(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "target": self._target.state_dict(),
            "actor_optimizer": self._actor_optimizer.state_dict(),
            "critic_optimizer": self._critic_optimizer.state_dict(),
            "log_alpha": self._log_alpha.detach(),
            "seen": self._seen,
            "updates": self._updates,
        }

    def export(self, folder: Path) -> None:
        """A folder that `SoftActorCritic.from_pretrained` loads (rank 0 writes)."""
        if self.rank == 0:
            self.policy.save_pretrained(str(folder))
