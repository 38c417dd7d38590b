"""The learned reward of a run: it scores what the policy says, and learns from the verifier what that is worth.

Iterative GRPO (DeepSeekMath, arXiv:2402.03300, Algorithm 1): every few iterations the reward model is trained on the
policy's newest responses, mixed with a share of older ones, and the reference policy becomes the policy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms.judging import judging_metrics
from rlinf.config.schema.reward_model import RewardModelConfig
from rlinf.interfaces import Rollout
from rlinf.learners.partition import minibatches
from rlinf.streams import torch_generator
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.reward_worker import RewardWorker
from rlinf.types import Batch, Metrics, TextInputs, concatenate


class LearnedReward:
    """Between rollout and algorithm: rewards of a batch become the model's, and its verdicts become labels."""

    def __init__(self, learner: LearnerPool, options: RewardModelConfig, *, seed: int) -> None:
        self.learner, self.options, self.seed = learner, options, seed
        self._current: list[Batch] = []
        """Labelled responses since the last training."""
        self._history: Batch | None = None

    def begin(self, rollout: Rollout, policy: LearnerPool) -> Metrics:
        """Before the first step: starts from the policy, if from nothing else, and learns from its responses."""
        if self.options.path is None:
            weights = {name: t for part in policy.weights_in_parts(version=0) for name, t in part.tensors.items()}
            self.learner.group.call(RewardWorker.adopt, weights)
        for number in range(self.options.fit_batches):
            batch, _ = rollout.collect(0, round=-1 - number)
            self._current.append(self.examples(batch))
        return self.train(0) if self._current else {}

    def score(self, batch: Batch) -> tuple[Batch, Metrics]:
        """The batch with the model's rewards in the environment's place, or beside it, by ``weight``."""
        examples = self.examples(batch)
        scores = self._scores(examples)
        labels = _labels(examples)
        metrics = _named("reward_model", judging_metrics(scores[examples.mask], labels))
        if self.options.refresh_every:
            self._current.append(examples)
        worth = scores.sigmoid() if self.options.output == "probability" else scores
        worth, weight = torch.where(examples.mask, worth, 0.0), self.options.weight
        if self.options.supervision == "process":
            assert batch.step_rewards is not None
            return batch.replace(step_rewards=weight * worth + (1 - weight) * batch.step_rewards), metrics
        outcome = worth.sum(dim=1) if batch.rewards.ndim == 1 else worth
        return batch.replace(rewards=weight * outcome + (1 - weight) * batch.rewards), metrics

    def refresh(self, iteration: int) -> Metrics:
        """Trains on the newest responses, where it is time."""
        every = self.options.refresh_every
        return self.train(iteration) if every and iteration % every == 0 else {}

    def train(self, step: int) -> Metrics:
        """On the responses since the last time and some from before; how it judged the new ones before and after."""
        current = concatenate(self._current)
        before = self._judged(current)
        rows = self._mixed(current, step)
        for epoch in range(self.options.epochs):
            parts = math.ceil(rows.num_rows / self.options.batch_rows)
            for chosen in minibatches(rows.num_rows, parts=parts, seed=self.seed, step=step, epoch=epoch):
                self.learner.update(rows.select(chosen), step=step)
        self._remember(current, step)
        return {
            **_named("reward_model/before", before),
            **_named("reward_model/after", self._judged(current)),
            "reward_model/trained_rows": float(rows.num_rows),
            "reward_model/replayed_rows": float(rows.num_rows - current.num_rows),
        }

    def examples(self, batch: Batch) -> Batch:
        """The responses with a valid position where a score is asked for, and the environment's verdict there as
        label."""
        if self.options.supervision == "process":
            if batch.step_rewards is None:
                raise ValueError("reward_model.supervision: process needs scores of steps from the environment")
            asked = batch.mask & ~batch.step_rewards.isnan()
            labels = (batch.step_rewards > 0).float()
        else:
            asked = batch.mask & (batch.mask.cumsum(dim=1) == batch.mask.sum(dim=1, keepdim=True))
            if batch.correct is None:
                raise ValueError("a learned reward needs the verdicts of a verifier")
            labels = batch.correct[:, None].float().expand(asked.shape)
        return Batch(
            inputs=replace(TextInputs.of(batch.inputs), labels=torch.where(asked, labels, 0.0)),
            actions=batch.actions,
            mask=asked,
            rollout_logprobs=torch.zeros(asked.shape),
            rewards=torch.zeros(batch.num_rows),
            group_ids=batch.group_ids,
            policy_version=batch.policy_version,
            advantages=torch.ones(asked.shape),
        )

    def _scores(self, examples: Batch) -> Tensor:
        values = self.learner.evaluate(examples).values
        assert values is not None
        return values

    def _judged(self, examples: Batch) -> Metrics:
        return judging_metrics(self._scores(examples)[examples.mask], _labels(examples))

    def _mixed(self, current: Batch, step: int) -> Batch:
        """``current`` joined by remembered rows, which make up ``replay_fraction`` of the result."""
        if self._history is None:
            return current
        share = self.options.replay_fraction
        count = min(self._history.num_rows, round(current.num_rows * share / (1 - share)))
        generator = torch_generator(self.seed, "reward replay", step)
        chosen = torch.randperm(self._history.num_rows, generator=generator)[:count]
        return concatenate([current, self._history.select(chosen)]) if count else current

    def _remember(self, current: Batch, step: int) -> None:
        """Adds ``current`` to the history; what is too much goes by chance, old and new alike."""
        self._current = []
        if not self.options.refresh_every:
            return
        known = current if self._history is None else concatenate([self._history, current])
        kept = torch.randperm(known.num_rows, generator=torch_generator(self.seed, "reward history", step))
        self._history = known.select(kept[: self.options.history_rows].sort().values)

    def save(self, folder: Path) -> None:
        """Weights and optimiser into ``folder``, which is of this model alone, and what it remembers."""
        self.learner.save(folder)
        save_plain({"current": self._current, "history": self._history}, folder / "memory.pt")

    def load(self, folder: Path) -> None:
        """Continues bit for bit where :meth:`save` stopped."""
        self.learner.load(folder)
        memory: dict[str, Any] = load_plain(folder / "memory.pt")
        self._current, self._history = memory["current"], memory["history"]


def _labels(examples: Batch) -> Tensor:
    """[N] of the positions that are asked for."""
    labels = TextInputs.of(examples.inputs).labels
    assert labels is not None
    return labels[examples.mask]


def _named(prefix: str, metrics: Metrics) -> Metrics:
    return {f"{prefix}/{name}": value for name, value in metrics.items()}
