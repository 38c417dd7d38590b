"""The learner of every off-policy algorithm: a replay buffer, and an objective that is improved by samples of it.

Of several ranks each holds the whole buffer and takes its share of the transitions of an update; gradients are
averaged, so that all of them make the update that one rank would make.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from rlinf.algorithms import catalog
from rlinf.base.random_streams import torch_generator
from rlinf.base.user_code import imported
from rlinf.data.batch import Batch
from rlinf.data.goals import GoalEnvironment
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import Metrics, PolicyOutput, WeightForm, WeightUpdate
from rlinf.data.shards import DataParallelRank, RankBatch, complete
from rlinf.data.spaces import SpaceError
from rlinf.learners.off_policy.hindsight import HindsightSampler
from rlinf.learners.off_policy.objective import OffPolicyObjective, Placement
from rlinf.learners.off_policy.prior import PriorTransitions
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer, Transitions
from rlinf.learners.off_policy.sequences import SequenceSampler
from rlinf.learners.stored_policy import require_same_weights, shapes
from rlinf.models.off_policy.networks import OffPolicyNetworks
from rlinf.models.off_policy.recurrent_soft import RecurrentSoftActorCritic
from rlinf.schema import AlgorithmConfig, OptimizerConfig


class RandomShift:
    """Moves images of sampled transitions (Yarats et al., DrQ arXiv:2004.13649 and DrQ-v2 arXiv:2107.09645).

    Each image is moved by up to ``pixels`` in both directions, what is missing at the edges repeats the edge.
    Observations now and after the step are moved separately; the frames of a stack move together.
    """

    def __init__(self, axes: Mapping[str, tuple[int, int]], pixels: int) -> None:
        """``axes``: of height and width, counted from the end, of each image leaf. Raises SpaceError without any."""
        if not axes:
            raise SpaceError("algorithm.random_shift moves images, and the observations hold none: set it to 0")
        self._axes, self._pixels = axes, pixels

    def __call__(
        self, sampled: Transitions, count: int, generator: Generator, *, rank: int = 0, size: int = 1
    ) -> Transitions:
        """Shift ``sampled``: of ``count`` transitions every ``size``-th from ``rank`` on; offsets are drawn for all."""
        inputs, following = dict(sampled.inputs), dict(sampled.next_inputs)
        for name, axes in self._axes.items():
            for leaves in (inputs, following):
                offsets = torch.randint(2 * self._pixels + 1, (count, 2), generator=generator)[rank::size]
                leaves[name] = shifted(leaves[name], offsets - self._pixels, axes)
        return replace(sampled, inputs=inputs, next_inputs=following)


def shifted(images: Tensor, offsets: Tensor, axes: tuple[int, int]) -> Tensor:
    """Images [M, ...] whose pixel (y, x) is that of (y + dy, x + dx), or the nearest there is; offsets [M, 2].

    >>> shifted(torch.arange(6).view(1, 2, 3), torch.tensor([[0, 1]]), (-2, -1))
    tensor([[[1, 2, 2],
             [4, 5, 5]]])
    """
    front = images.movedim(axes, (1, 2))
    height, width = front.shape[1:3]
    rows = (torch.arange(height) + offsets[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + offsets[:, 1:]).clamp(0, width - 1)
    images_of = torch.arange(len(images))[:, None, None]
    return front[images_of, rows[:, :, None], columns[:, None, :]].movedim((1, 2), axes)


# Updates whose transitions are fetched with one read of the buffer; bounded for the sake of images.
_SAMPLED_TOGETHER = 8


class OffPolicyLearner:
    """An `interfaces.Learner` with one stage, whose objective `algorithm.loss_type` names."""

    saves_replay: ClassVar[bool] = True
    """Checkpoints hold the transitions too."""

    def __init__(
        self,
        policy: OffPolicyNetworks,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        *,
        seed: int,
        replay_folder: Path | None = None,
        placement: Placement | None = None,
        prior: PriorTransitions | None = None,
        goals: GoalEnvironment | None = None,
    ) -> None:
        """Networks are on the device of ``placement``, the buffer in host memory or on disk. ``prior``: recorded
        transitions that enter every update. ``goals``: computes the rewards of relabelled transitions
        (`algorithm.hindsight`). Raises SpaceError for image augmentation without images."""
        self.placement = placement or Placement()
        self.policy = policy.to(self.placement.device).eval()
        self.algorithm, self.seed = algorithm, seed
        prioritised = algorithm.priority_exponent > 0
        self.replay = ReplayBuffer(
            algorithm.replay_capacity, folder=replay_folder, priority_exponent=algorithm.priority_exponent
        )
        self._together = 1 if prioritised else _SAMPLED_TOGETHER
        self._shift = RandomShift(policy.image_axes(), algorithm.random_shift) if algorithm.random_shift else None
        entry = catalog.off_policy(algorithm.loss_type)
        make = imported(entry.recurrent_function if policy.remembers else entry.function)
        length, warm_up = algorithm.sequence_length, algorithm.burn_in
        self._sequences = SequenceSampler(length, warm_up, algorithm.gamma) if policy.remembers else None
        self._hindsight: HindsightSampler | None = None
        if goals is not None:
            self._hindsight = HindsightSampler(
                goals, strategy=algorithm.hindsight, goals=algorithm.hindsight_goals, gamma=algorithm.gamma
            )
        self.objective: OffPolicyObjective[Any] = make(self.policy, algorithm, optimizer, self.placement)
        self._prior = prior
        self._seen = 0
        self._updates = 0
        self.objective.explore(0)

    def start(self, stage: str) -> None:
        """Nothing: networks, optimisers and buffer are those of the only stage, "train"."""
        if stage != "train":
            raise ValueError(f"loss_type {self.algorithm.loss_type} has no stage {stage!r}")

    def scale_lr(self, factor: float) -> None:
        """Multiplies all learning rates."""
        for part in self.objective.trained.values():
            part.optimizer.param_groups[0]["lr"] = part.lr * factor

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Raise ValueError: there is no reference policy here."""
        raise ValueError(f"loss_type {self.algorithm.loss_type} keeps no reference policy")

    @property
    def data_rank(self) -> DataParallelRank:
        """Every rank reads all transitions, and draws its own from them."""
        return DataParallelRank(self.placement.rank, self.placement.size, self.algorithm.replay_batch_size)

    def update(self, batch: Batch | RankBatch, *, step: int) -> Metrics:
        """Store the fragment, then make ``replay_ratio`` updates per new transition once there are enough."""
        batch = complete(batch)
        self.replay.add(batch, self._states_before(batch))
        self.policy.observe(batch.inputs, batch.mask)
        self._seen += int(batch.mask.sum())
        metrics: Metrics = {"replay_size": float(len(self.replay)), **self.objective.explore(self._seen)}
        if self._seen < self.algorithm.replay_start:
            return metrics
        due = int((self._seen - self.algorithm.replay_start) * self.algorithm.replay_ratio) - self._updates
        if due > 0:
            metrics |= self.improve(due, step)
        return metrics | {"updates": float(self._updates)}

    @torch.enable_grad()  # code of a user's own in this process may have turned gradients off
    def improve(self, due: int, step: int) -> Metrics:
        """Make ``due`` updates of training iteration ``step``; return the means of their metrics over all ranks."""
        collected: dict[str, list[Tensor]] = defaultdict(list)
        generator = torch_generator(self.seed, self.algorithm.loss_type, step)
        for first in range(0, due, self._together):
            for sampled, noise in self._samples(min(self._together, due - first), generator):
                improvement = self.objective.improve(sampled, noise, self._updates)
                if sampled.indices is not None:
                    ranks = self.placement.ranks
                    self.replay.prioritise(ranks.gather(sampled.indices), ranks.gather(improvement.errors.cpu()))
                self._updates += 1
                for name, value in improvement.metrics.items():
                    collected[name].append(value)
        if self._hindsight is not None:
            collected["relabelled_reward"].append(self._hindsight.mean_reward().to(self.placement.device))
        local = torch.stack([torch.stack(values).mean() for values in collected.values()])
        means = self.placement.ranks.sum(local) / self.placement.size
        return dict(zip(collected, means.tolist(), strict=True))

    def _samples(self, updates: int, generator: torch.Generator) -> list[tuple[Transitions, Tensor]]:
        """Draw this rank's transitions of some updates, and noise [D, M, A] for each. One read of the buffer gives
        all."""
        algorithm, placement = self.algorithm, self.placement
        count = algorithm.replay_batch_size
        sampled = self._drawn(updates, generator)
        draws = self.objective.noise_draws
        noise = torch.randn(updates, draws, count, self.policy.head.draw_size if draws else 0, generator=generator)
        if self._shift is not None:
            sampled = self._shift(sampled, updates * count, generator, rank=placement.rank, size=placement.size)
        length = 1 if self._sequences is None else algorithm.sequence_length
        mine = noise.unflatten(2, (-1, length))[:, :, placement.rank :: placement.size].flatten(2, 3)
        here = mine.to(placement.device)
        return list(zip(sampled.to(placement.device).split(count // placement.size), here.unbind(), strict=True))

    def _drawn(self, updates: int, generator: torch.Generator) -> Transitions:
        """Draw this rank's transitions of some updates, end to end."""
        algorithm, placement = self.algorithm, self.placement
        count = algorithm.replay_batch_size
        if self._sequences is not None:
            return self._sequences(self.replay, count, updates, generator, rank=placement.rank, size=placement.size)
        own = count if self._prior is None else count - self._prior.count
        if self._hindsight is not None:
            sampled = self._hindsight(self.replay, own, updates, generator, rank=placement.rank, size=placement.size)
        else:
            sampled = self.replay.sample(
                updates * own,
                gamma=algorithm.gamma,
                n_step=algorithm.n_step,
                priority_correction=algorithm.priority_correction,
                generator=generator,
                rank=placement.rank,
                size=placement.size,
            )
        if self._prior is None:
            return sampled
        return self._prior.joined(sampled, updates, generator, rank=placement.rank, size=placement.size)

    def _states_before(self, batch: Batch) -> Tensor | None:
        """Recurrent states [N, T, S] before the decisions of a fragment; None for a policy without memory."""
        if not isinstance(self.policy, RecurrentSoftActorCritic):
            return None
        given = ObservationInputs.of(batch.inputs)
        assert given.recurrent_state is not None
        after = (
            self.policy.states(given.to(self.placement.device), batch.mask.shape).cpu().unflatten(0, batch.mask.shape)
        )
        return torch.cat([given.recurrent_state[:, None], after[:, :-1]], dim=1)

    def evaluate(self, batch: Batch | RankBatch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """Return this rank's rows and their evaluation under the current weights. There is no reference policy here."""
        if reference:
            raise ValueError(f"loss_type {self.algorithm.loss_type} keeps no reference policy")
        batch = complete(batch)
        rows = torch.arange(self.placement.rank, batch.num_rows, self.placement.size)
        device = self.placement.device
        inputs = batch.inputs.select(rows).to(device)
        actions, mask = batch.actions[rows].to(device), batch.mask[rows].to(device)
        with torch.no_grad():
            output = self.policy.evaluate(inputs, actions, mask)
        assert output.entropy is not None
        return rows, PolicyOutput(output.logprobs.cpu(), output.entropy.cpu())

    def has_adapters(self) -> bool:
        """No adapters here."""
        return False

    def weight_sources(self, bucket_bytes: int | None, *, form: WeightForm = "merged") -> list[int]:
        """One part, of rank 0: networks of this kind are small."""
        return [0]

    def weights(
        self, *, version: int, part: int = 0, bucket_bytes: int | None = None, form: WeightForm = "merged"
    ) -> WeightUpdate:
        """On the CPU, on rank 0; nothing on the others. All are one part."""
        named = self.policy.weights() if self.placement.rank == 0 else ()
        return WeightUpdate(version, {name: tensor.to("cpu", copy=True) for name, tensor in named})

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Nothing: the networks stay where they are."""
        return {"offload_bytes": 0.0, "offload_s": 0.0}

    def wake(self, *, weights_only: bool = False) -> None:
        """Nothing has moved."""

    def save(self, folder: Path) -> None:
        """Networks, what the objective keeps in addition, and the whole buffer (rank 0 writes)."""
        if self.placement.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            counts = {"seen": self._seen, "updates": self._updates}
            state = {"policy": self.policy.state_dict(), **self.objective.state_dict(), **counts}
            torch.save(state, folder / "learner.pt")
            if self.saves_replay:
                self.replay.save(folder)

    def load(self, folder: Path) -> None:
        """Continue bit for bit where :meth:`save` stopped."""
        state = torch.load(folder / "learner.pt", map_location=self.placement.device, weights_only=True)
        self.policy.load_state_dict(state["policy"])
        self.objective.load_state_dict(state)
        self._seen, self._updates = state["seen"], state["updates"]
        if self.saves_replay:
            self.replay.load(folder)

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Load networks and targets of another run; optimisers and temperature if requested. The buffer stays empty."""
        state = torch.load(folder / "learner.pt", map_location=self.placement.device, weights_only=True)
        require_same_weights(shapes(self.policy.state_dict()), shapes(state["policy"]))
        self.policy.load_state_dict(state["policy"])
        if optimizer:
            self.objective.load_state_dict(state)
        else:
            self.objective.load_target(state)

    def export(self, folder: Path) -> None:
        """Export to a folder that the policy's class loads (rank 0 writes)."""
        if self.placement.rank == 0:
            self.policy.save_pretrained(str(folder))
