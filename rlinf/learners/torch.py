"""The PyTorch learner: one process, or data parallel over several.

Every rank is given the whole batch and takes its own share. So every rank knows the counts of the whole optimiser step,
slot weights are fixed before the first forward pass, and gradients simply add up over micro-batches and ranks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.algorithms.metrics import (
    PartialMetrics,
    early_stop,
    finalise_metrics,
    mean_metrics,
    mean_over,
    reduce_metrics,
)
from rlinf.algorithms.statistics import ONE_RANK, Ranks
from rlinf.learners.partition import micro_batches, minibatches, share
from rlinf.learners.ranks import sum_gradients
from rlinf.learners.schedule import lr_factor
from rlinf.learners.stage import Stage
from rlinf.types import Batch, Costs, Metrics, PolicyOutput, WeightUpdate


class NonFiniteUpdate(RuntimeError):
    """A loss or gradient that is no number: the weights were left as they were."""


class TorchLearner:
    """Trains any policy whose ``evaluate(inputs, actions, mask)`` gives log-probabilities [B, T] with gradient."""

    def __init__(
        self,
        policy: Any,
        *,
        stage: Stage,
        seed: int,
        micro_batch_tokens: int,
        device: torch.device | str = "cpu",
        rank: int = 0,
        size: int = 1,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        self.device = torch.device(device)
        self.policy = policy.to(self.device)
        self.seed, self.micro_batch_tokens = seed, micro_batch_tokens
        self.rank, self.size, self.ranks = rank, size, ranks
        self.reference: Any = None
        self.start(stage)

    def start(self, stage: Stage) -> None:
        """Begins a stage: a new optimiser, and a reference policy where the stage asks for one."""
        self.stage = stage
        heads = {id(parameter) for parameter in self._critic_parameters()}
        # Collected once: walking the modules at every optimiser step costs as much as stepping a small policy.
        self._trained = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in self._trained if id(p) not in heads], "peak_lr": stage.lr},
            {"params": [p for p in self._trained if id(p) in heads], "peak_lr": stage.critic_lr or stage.lr},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=stage.lr,
            betas=stage.betas,
            eps=stage.eps,
            weight_decay=stage.weight_decay,
            fused=True,
        )
        self.optimizer_steps = 0
        self.reference = None
        if stage.reference:
            self.refresh_reference()

    def refresh_reference(self) -> None:
        """The reference becomes what the policy is now (adapters need no copy: their reference is the adapter off)."""
        if getattr(self.policy, "is_lora", False):
            return
        self.reference = copy.deepcopy(self.policy).requires_grad_(False).eval()

    def costs(self, batch: Batch) -> Costs:
        """What each row costs; the policy knows best."""
        return self.policy.costs(batch.inputs, batch.mask)

    def evaluate(self, batch: Batch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], their log-probabilities and values [B', T] on the CPU) of this rank's share."""
        costs = self.costs(batch)
        rows = share(torch.arange(batch.num_rows), costs, rank=self.rank, size=self.size)
        policy, context = self.policy, nullcontext()
        if reference:
            policy, context = (self.reference, nullcontext()) if self.reference else (policy, policy.reference())
        pieces = micro_batches(rows, costs, budget=self.micro_batch_tokens)
        outputs = []
        with torch.no_grad(), context:
            for piece in pieces:
                part = batch.select(piece).to(self.device)
                outputs.append(policy.evaluate(part.inputs, part.actions, part.mask, with_entropy=False))
        empty = torch.zeros(0, batch.num_slots)

        def joined(name: str) -> Tensor | None:
            columns = [getattr(output, name) for output in outputs]
            if any(column is None for column in columns):
                return None
            return torch.cat(columns).float().cpu() if columns else empty

        order = torch.cat(pieces) if pieces else rows
        logprobs = joined("logprobs")
        return order, PolicyOutput(empty if logprobs is None else logprobs, values=joined("values"))

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """All epochs and minibatches of one step. Advantages are in the batch; metrics are those of all ranks.

        Raises NonFiniteUpdate, on every rank alike, before a number that is none can reach the weights.
        """
        if batch.advantages is None:
            raise ValueError("the batch has no advantages: prepare it first")
        whole, (batch, costs) = batch, self._as_rows(batch)
        metrics: list[Metrics] = []
        skipped = 0
        for epoch in range(self.stage.epochs):
            order = minibatches(batch.num_rows, parts=self.stage.minibatches, seed=self.seed, step=step, epoch=epoch)
            for rows in order:
                if len(rows):
                    numbers, stopped = self._optimise(batch, costs, rows)
                    metrics.append(numbers)
                    skipped += stopped
        # Running statistics change between batches only: all of one batch is evaluated under the same ones.
        self.policy.observe(whole.inputs, whole.mask)
        return {**mean_metrics(metrics), "skipped_minibatches": float(skipped), "lr": self._lr()}

    def _as_rows(self, batch: Batch) -> tuple[Batch, Costs]:
        """Where slots are independent of each other (a policy without memory), each becomes a row of its own."""
        objective = self.stage.objective
        if self.policy.slots_independent and objective.per_slot:
            batch = batch.slots_as_rows()
        return batch, self.costs(batch)

    def _optimise(self, batch: Batch, costs: Costs, rows: Tensor) -> tuple[Metrics, bool]:
        """One optimiser step over the minibatch ``rows``; (metrics, whether it was skipped)."""
        objective = self.stage.objective
        mini = batch.select(rows)
        weights = objective.weights(mini.mask)
        proximal = mini.old_logprobs if mini.old_logprobs is not None else mini.logprobs
        selected = objective.select(old_logprobs=proximal, advantages=_given(mini.advantages), mask=mini.mask)
        mine = share(self._moving(mini, rows), costs, rank=self.rank, size=self.size)
        self.optimizer.zero_grad(set_to_none=True)
        partial: list[PartialMetrics] = []
        for piece in micro_batches(mine, costs, budget=self.micro_batch_tokens):
            partial.append(self._backward(mini, _places(piece, rows), weights, selected))
        if not partial:  # more ranks than rows: this one still has to take part in every sum
            partial.append(
                self._backward(mini.replace(mask=mini.mask & False), torch.tensor([0]), weights * 0, selected)
            )
        sum_gradients(self._trained, self.size)
        merged = reduce_metrics(partial, ranks=self.ranks)
        ratio, count = merged["ratio"]
        if self.stage.early_stop_imp_ratio is not None and early_stop(
            float(ratio), float(count), self.stage.early_stop_imp_ratio
        ):
            return finalise_metrics(merged), True
        norm = self._step(float(merged["loss"][0]))
        return {**finalise_metrics(merged), "grad_norm": norm}, False

    def _moving(self, mini: Batch, rows: Tensor) -> Tensor:
        """``rows`` of the minibatch ``mini`` without those that can't move the weights, which need no computing.

        Where the objective is a multiple of the advantage, a row whose advantages are all 0 (a group with one reward)
        has a gradient of exactly 0. It still counts in the denominators; metrics speak of the rows that are left. All
        stay where none would be left, and where something is asked about every row.
        """
        objective = self.stage.objective
        asked = objective.calculate_entropy or self.stage.early_stop_imp_ratio is not None
        if asked or not objective.idle_without_advantage:
            return rows
        moving = (mini.mask & (_given(mini.advantages) != 0)).any(dim=1)
        return rows[moving] if bool(moving.any()) else rows

    def _backward(self, mini: Batch, places: Tensor | None, weights: Tensor, selected: Tensor | None) -> PartialMetrics:
        """Gradients of the rows ``places`` of the minibatch; None is all of them."""
        if places is not None:
            mini, weights = mini.select(places), weights[places]
            selected = None if selected is None else selected[places]
        part = mini.to(self.device)
        objective = self.stage.objective
        output = self.policy.evaluate(part.inputs, part.actions, part.mask, with_entropy="entropy" in objective.needs)
        old = part.old_logprobs
        if old is None:
            old = output.logprobs.detach() if self.stage.old_is_current else part.logprobs
        loss, metrics = objective(
            logprobs=output.logprobs,
            old_logprobs=old,
            advantages=_given(part.advantages),
            mask=part.mask,
            weights=weights.to(self.device),
            values=output.values,
            old_values=part.values,
            returns=part.returns,
            ref_logprobs=part.ref_logprobs,
            entropy=output.entropy,
            rollout_logprobs=part.logprobs,
            selected=None if selected is None else selected.to(self.device),
        )
        if loss.requires_grad:
            loss.backward()
        if self.stage.old_is_current:
            gap = torch.where(part.mask, (output.logprobs.detach() - part.logprobs).abs(), 0.0)
            metrics["sampler_logprob_gap"] = mean_over(gap, part.mask)
            metrics["sampler_logprob_gap_max"] = gap.max().double(), part.mask.any().double()
        if self.device.type == "cpu":
            return metrics
        return {name: (value.cpu(), count.cpu()) for name, (value, count) in metrics.items()}

    def _step(self, loss: float) -> float:
        """Clips and applies the gradient; returns its norm before clipping."""
        limit = self.stage.grad_clip if self.stage.grad_clip > 0 else math.inf
        norm = float(nn.utils.clip_grad_norm_(self._trained, limit))
        if not (math.isfinite(norm) and math.isfinite(loss)):
            raise NonFiniteUpdate(
                f"optimiser step {self.optimizer_steps} of stage {self.stage.name!r}: loss {loss}, "
                f"gradient norm {norm}; the weights were left as they were"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * self._factor()
        self.optimizer.step()
        self.optimizer_steps += 1
        return norm

    def _factor(self) -> float:
        stage = self.stage
        return lr_factor(
            self.optimizer_steps,
            schedule=stage.schedule,
            total_steps=stage.optimizer_steps,
            warmup_steps=stage.warmup_steps,
            min_lr_ratio=stage.min_lr_ratio,
        )

    def _lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _critic_parameters(self) -> Iterator[nn.Parameter]:
        head = getattr(self.policy, "value_head", None)
        return iter(()) if head is None else head.parameters()

    def weights(self, *, version: int) -> WeightUpdate:
        """The policy's weights on the CPU, complete on rank 0 and empty on the others."""
        named = self.policy.weights() if self.rank == 0 else ()
        return WeightUpdate(version, {name: tensor.cpu() for name, tensor in named})

    def save(self, folder: Path) -> None:
        """Weights, optimiser, schedule and reference into ``folder`` (rank 0 writes)."""
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            state = {
                "stage": self.stage.name,
                "optimizer_steps": self.optimizer_steps,
                "policy": self.policy.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "reference": self.reference.state_dict() if self.reference is not None else None,
            }
            torch.save(state, folder / "learner.pt")

    def load(self, folder: Path) -> None:
        """Continues bit for bit where :meth:`save` stopped. Raises ValueError for another stage's checkpoint."""
        state = torch.load(folder / "learner.pt", map_location=self.device, weights_only=True)
        if state["stage"] != self.stage.name:
            raise ValueError(f"the checkpoint in {folder} is of stage {state['stage']!r}, not {self.stage.name!r}")
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.optimizer_steps = state["optimizer_steps"]
        if state["reference"] is not None and self.reference is not None:
            self.reference.load_state_dict(state["reference"])

    def export(self, folder: Path) -> None:
        """A folder that the policy's own library loads (rank 0 writes)."""
        if self.rank == 0:
            self.policy.save_pretrained(str(folder))


def _places(piece: Tensor, rows: Tensor) -> Tensor | None:
    """Where the rows ``piece`` stand within the minibatch ``rows``; None where they are the minibatch."""
    if piece is rows:
        return None
    place = torch.full((int(rows.max()) + 1,), -1, dtype=torch.int64)
    place[rows] = torch.arange(len(rows))
    return place[piece]


def _given(column: Tensor | None) -> Tensor:
    assert column is not None
    return column
