"""The learned reward of a run: it scores the policy's responses, and is trained on the verifier's grades.

Iterative GRPO (DeepSeekMath, arXiv:2402.03300, Algorithm 1): every few iterations the reward model is trained
on the policy's newest responses, mixed with a share of older ones, and the reference policy becomes the
policy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms.preferences import judging_metrics, pair_weights, pairs_in_order
from rlinf.base.random_streams import torch_generator
from rlinf.data.batch import Batch, concatenate
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Metrics
from rlinf.interfaces import Rollout
from rlinf.learners.partition import minibatches
from rlinf.schema.reward_model import RewardModelConfig
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.reward_worker import RewardWorker


class LearnedReward:
    """Between rollout and algorithm: rewards of a batch become the model's, and its verdicts become labels."""

    def __init__(self, learner: LearnerPool, options: RewardModelConfig, *, seed: int) -> None:
        self.learner, self.options, self.seed = learner, options, seed
        self._current: list[Batch] = []
        """Labelled responses since the last training."""
        self._history: Batch | None = None
        self._groups = 0
        """Groups that were remembered so far: each has a number of its own."""

    def begin(self, rollout: Rollout, policy: LearnerPool) -> Metrics:
        """Before the first step: starts from the policy, if from nothing else, and learns from its responses."""
        if self.options.path is None:
            weights = {name: t for part in policy.weights_in_parts(version=0) for name, t in part.tensors.items()}
            self.learner.group.call(RewardWorker.adopt, weights)
        for number in range(self.options.fit_batches):
            batch, _ = rollout.collect(0, round=-1 - number)
            self._note(self.examples(batch.fetch()))
        return self.train(0) if self._current else {}

    def score(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        """Return the batch with the model's rewards instead of the environment's, or added to them, by ``weight``."""
        examples = self.examples(batch)
        scores = self._scores(examples)
        metrics = _named("reward_model", _judged(scores, examples))
        if self.options.refresh_every:
            self._note(examples)
        worth = scores.sigmoid() if self.options.output == "probability" else scores
        worth, weight = torch.where(examples.mask, worth, 0.0), self._weights(batch, step)
        if self.options.supervision == "process":
            own = batch.reward_details.step_rewards
            assert own is not None
            weight = weight[:, None]
            return batch.replace(step_rewards=weight * worth + (1 - weight) * own), metrics
        if batch.rewards.ndim == 1:
            outcome = worth.sum(dim=1)
        else:
            outcome, weight = worth, weight[:, None]
        return batch.replace(rewards=weight * outcome + (1 - weight) * batch.rewards), metrics

    def _weights(self, batch: Batch, step: int) -> Tensor:
        """[B] of the model's score in the reward: ``weight``, and 0 in the groups that the environment rewards."""
        groups = batch.group_ids.unique()
        count = round(self.options.verified_fraction * len(groups))
        order = torch.randperm(len(groups), generator=torch_generator(self.seed, "verified groups", step))
        verified = torch.isin(batch.group_ids, groups[order[:count]])
        return torch.where(verified, 0.0, self.options.weight)

    def refresh(self, iteration: int, rollout: Rollout) -> Metrics:
        """Train on the newest responses, and on some that the policy gives to no other end, when it is time."""
        every = self.options.refresh_every
        if not every or iteration % every:
            return {}
        for number in range(self.options.fresh_batches):
            batch, _ = rollout.collect(iteration, round=-1 - number)
            self._note(self.examples(batch.fetch()))
        return self.train(iteration)

    def _note(self, examples: Batch) -> None:
        """Keep examples for the next training, their groups separate from all others."""
        _, groups = examples.group_ids.unique(return_inverse=True)
        self._current.append(examples.replace(group_ids=groups + self._groups))
        self._groups += int(groups.max()) + 1

    def train(self, step: int) -> Metrics:
        """On the responses since the last time and some from before; how it judged the new ones before and after."""
        current = concatenate(self._current)
        before = _judged(self._scores(current), current)
        # Join ``current`` with remembered groups, whose rows make up at most ``replay_fraction`` of the result.
        share = self.options.replay_fraction
        count = round(current.num_rows * share / (1 - share))
        old = None if self._history is None else self._some(self._history, count, "reward replay", step)
        rows = concatenate([current, old]) if old is not None and old.num_rows else current
        groups = rows.group_ids.unique()
        parts = min(math.ceil(rows.num_rows / self.options.batch_rows), len(groups))
        for epoch in range(self.options.epochs):
            for chosen in minibatches(len(groups), parts=parts, seed=self.seed, step=step, epoch=epoch):
                self._learn(_of_groups(rows, groups[chosen]), step)
        self._remember(current, step)
        return {
            **_named("reward_model/before", before),
            **_named("reward_model/after", _judged(self._scores(current), current)),
            "reward_model/trained_rows": float(rows.num_rows),
            "reward_model/replayed_rows": float(rows.num_rows - current.num_rows),
        }

    def _learn(self, rows: Batch, step: int) -> None:
        """One optimiser step. Without labels a row's log-likelihood is its score, and its advantage the way to go."""
        if self.options.learn_from == "pairs":
            scored, labels = rows.mask, _labels(rows)
            owner = rows.group_ids[scored.nonzero()[:, 0]]
            weights = torch.zeros(scored.shape)
            weights[scored] = pair_weights(self._scores(rows)[scored], labels, owner).float()
            rows = rows.replace(inputs=replace(TextInputs.of(rows.inputs), labels=None), advantages=weights)
        self.learner.update(rows, step=step)

    def examples(self, batch: Batch) -> Batch:
        """Return the responses with a valid position where a score is needed, and the environment's label there.

        The label is a verdict, or what the answer or step is worth."""
        graded, rewards, details = self.options.learn_from != "verdicts", batch.rewards, batch.reward_details
        if self.options.supervision == "process":
            if details.step_rewards is None:
                raise ValueError("reward_model.supervision: process needs scores of steps from the environment")
            scored = batch.mask & ~details.step_rewards.isnan()
            labels = details.step_rewards if graded else (details.step_rewards > 0).float()
        else:
            scored = batch.mask & (batch.mask.cumsum(dim=1) == batch.mask.sum(dim=1, keepdim=True))
            if details.correct is None and not graded:
                raise ValueError("a learned reward needs the verdicts of a verifier")
            outcomes = rewards if rewards.ndim == 1 else rewards.sum(dim=1)
            worths = outcomes if graded or details.correct is None else details.correct
            labels = worths[:, None].float().expand(scored.shape)
        known = labels[scored]
        if self.options.learn_from == "scores" and bool(((known < 0) | (known > 1)).any()):
            raise ValueError(
                f"reward_model.learn_from: scores needs rewards between 0 and 1, and there is one of "
                f"{float(known.min() if known.min() < 0 else known.max()):g}: scale the reward, or learn from pairs"
            )
        return Batch(
            inputs=replace(TextInputs.of(batch.inputs), labels=torch.where(scored, labels, 0.0)),
            actions=batch.actions,
            mask=scored,
            rollout_logprobs=torch.zeros(scored.shape),
            rewards=torch.zeros(batch.num_rows),
            group_ids=batch.group_ids,
            policy_version=batch.policy_version,
            advantages=torch.ones(scored.shape),
        )

    def _scores(self, examples: Batch) -> Tensor:
        values = self.learner.evaluate(examples).values
        assert values is not None
        return values

    def _remember(self, current: Batch, step: int) -> None:
        """Move ``current`` to the history; what is too much goes by chance, a group at a time, old and new alike."""
        self._current = []
        if not self.options.refresh_every:
            return
        known = current if self._history is None else concatenate([self._history, current])
        self._history = self._some(known, self.options.history_rows, "reward history", step)

    def _some(self, rows: Batch, count: int, stream: str, step: int) -> Batch:
        """Draw groups of ``rows`` by chance, as many as have at most ``count`` rows together."""
        groups, sizes = rows.group_ids.unique(return_counts=True)
        order = torch.randperm(len(groups), generator=torch_generator(self.seed, stream, step))
        return _of_groups(rows, groups[order[sizes[order].cumsum(0) <= count]])

    def save(self, folder: Path) -> None:
        """Weights and optimiser into ``folder``, which is of this model alone, and what it remembers."""
        self.learner.save(folder)
        memory = {"current": self._current, "history": self._history, "groups": self._groups}
        save_plain(memory, folder / "memory.pt")

    def load(self, folder: Path) -> None:
        """Continue bit for bit from what :meth:`save` wrote."""
        self.learner.load(folder)
        memory: dict[str, Any] = load_plain(folder / "memory.pt")
        self._current, self._history, self._groups = memory["current"], memory["history"], memory["groups"]


def _judged(scores: Tensor, examples: Batch) -> Metrics:
    """Compute the metrics of scores [B, T] against the labels of examples."""
    predicted, labels = scores[examples.mask], _labels(examples)
    ordered = pairs_in_order(predicted, labels, examples.group_ids[examples.mask.nonzero()[:, 0]])
    # Rewards on another scale are no probabilities: only their order is known.
    metrics = judging_metrics(predicted, labels) if bool(((labels >= 0) & (labels <= 1)).all()) else {}
    return metrics if math.isnan(ordered) else {**metrics, "pairs_in_order": ordered}


def _of_groups(rows: Batch, groups: Tensor) -> Batch:
    return rows.select(torch.isin(rows.group_ids, groups).nonzero().flatten())


def _labels(examples: Batch) -> Tensor:
    """Return the labels [N] of the positions that need a score."""
    labels = TextInputs.of(examples.inputs).labels
    assert labels is not None
    return labels[examples.mask]


def _named(prefix: str, metrics: Metrics) -> Metrics:
    return {f"{prefix}/{name}": value for name, value in metrics.items()}
