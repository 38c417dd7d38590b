"""The PyTorch learner: one process, or data parallel over several.

Every rank receives its own share of the rows with its parts of all optimiser steps. Or it receives the whole
batch, and makes the same from it. It has the counts of the whole optimiser step. So position weights are
fixed before the first forward pass, and gradients simply add up over micro-batches and ranks.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.algorithms.metrics import PartialMetrics
from rlinf.base import timeline
from rlinf.base.random_streams import stream_seed
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput, WeightForm, WeightUpdate
from rlinf.data.shards import RankBatch
from rlinf.data.split import split_by_size
from rlinf.interfaces import TrainablePolicy
from rlinf.learners.adam import Adam, clip_gradients, gradient_norm, update_ratio
from rlinf.learners.minibatch import Minibatch, learned_rows, require_finite, train_on
from rlinf.learners.moments import own_options
from rlinf.learners.offload import STAY, Offloadable
from rlinf.learners.precision import compare_with_float32
from rlinf.learners.ranks import ONE_RANK, Ranks, own_shard, reduce_metrics, sum_gradients, whole_tensor
from rlinf.learners.rmsprop import RMSprop
from rlinf.learners.scorer import Replica
from rlinf.learners.stage import Stage
from rlinf.learners.step_plan import share_of_update
from rlinf.learners.stored_policy import load_policy
from rlinf.models.adapters import separable
from rlinf.schema.learner import OffloadConfig


class TorchLearner(Replica, Offloadable):
    """An `interfaces.Learner` of any `interfaces.TrainablePolicy` that is a torch module."""

    def __init__(
        self,
        policy: TrainablePolicy,
        *,
        stages: Sequence[Stage],
        seed: int,
        micro_batch_tokens: int,
        device: torch.device | str = "cpu",
        rank: int = 0,
        size: int = 1,
        ranks: Ranks = ONE_RANK,
        offload: OffloadConfig = STAY,
        compare_float32_every: int = 0,
    ) -> None:
        """``stages``: those that :meth:`start` finds by name; the first begins at once."""
        self.compare_float32_every = compare_float32_every
        self.offload = offload
        self.device = torch.device(device)
        module: Any = policy  # a torch module too, which a protocol cannot state
        self.policy = module.to(self.device)
        # Of adapters: what is new is made in training mode. Base models come without.
        self._dropouts = [part for part in module.modules() if isinstance(part, nn.Dropout) and part.training]
        module.eval()
        for part in module.modules():
            # transformers computes a layer again only where the layer believes to be in training. What is random in it
            # checks the modes of its own modules, which stay as they are.
            if getattr(part, "gradient_checkpointing", False):
                part.training = True
        self.seed, self.micro_batch_tokens = seed, micro_batch_tokens
        self.rank, self.size, self.ranks = rank, size, ranks
        self.reference: Any = None
        self.lr_scale = 1.0
        self.stages = {stage.name: stage for stage in stages}
        self.start(stages[0].name)

    def start(self, stage: str) -> None:
        """Begin a stage: a new optimiser, and a reference policy if the stage needs one."""
        self.stage = self.stages[stage]
        critic = getattr(self.policy, "value_head", None)
        heads = set() if critic is None else {id(parameter) for parameter in critic.parameters()}
        # Collected once: walking the modules at every optimiser step costs as much as stepping a small policy.
        self._trained = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        options = self.stage.optimizer
        groups = [
            {"params": [p for p in self._trained if id(p) not in heads], "peak_lr": options.lr},
            {"params": [p for p in self._trained if id(p) in heads], "peak_lr": options.critic_lr or options.lr},
        ]
        used = [group for group in groups if group["params"]]
        self.optimizer: Adam | RMSprop
        if options.name == "adamw":
            self.optimizer = Adam(
                used,
                lr=options.lr,
                betas=options.betas,
                eps=options.eps,
                weight_decay=options.weight_decay,
                decoupled_weight_decay=True,
                fused=True,
            )
        else:
            inside = options.name == "rmsprop_tf"
            self.optimizer = RMSprop(
                used, lr=options.lr, smoothing=options.smoothing, eps=options.eps, inside_root=inside
            )
        self.optimizer_steps = 0
        self.reference = None
        if self.stage.reference:
            self.refresh_reference()

    @torch.no_grad()
    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Set the reference to the current policy: of a policy with adapters, to a copy of the adapters.

        With ``keep`` it becomes keep * reference + (1 - keep) * policy, parameter by parameter.
        """
        current = self.policy.copied_adapters() if self._has_adapters else self.policy
        if keep and self.reference is not None:
            for kept, new in zip(self.reference.parameters(), current.parameters(), strict=True):
                kept.lerp_(new, 1 - keep)
        elif self._has_adapters:
            self.reference = current
        else:
            self.reference = copy.deepcopy(current).requires_grad_(False).eval()

    @property
    def _has_adapters(self) -> bool:
        return bool(getattr(self.policy, "is_lora", False))

    def resident_weights(self) -> Iterator[Tensor]:
        """Parameters and buffers of policy and reference."""
        for module in (self.policy, self.reference):
            if module is not None:
                yield from map(own_shard, [*module.parameters(), *module.buffers()])

    def resident_state(self) -> Iterator[Tensor]:
        """Yield the optimiser's moments (step counters are not worth a copy, but are tensors too)."""
        for state in self.optimizer.state.values():
            yield from (own_shard(value) for value in state.values() if isinstance(value, Tensor))

    def forget_gradients(self) -> None:
        """Each optimiser step recreates them."""
        for parameter in self._trained:  # what the optimiser's own method does, without its bookkeeping of each call
            parameter.grad = None

    def evaluate(self, batch: Batch | RankBatch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], their log-probabilities and values [B', T] on the CPU) of this rank's share."""
        with self._evaluated(reference) as policy:
            return self.evaluate_by(policy, batch)

    @contextmanager
    def _evaluated(self, reference: bool) -> Iterator[Any]:
        """Yield the policy, or the ``reference``: another policy, or other adapters that the same one holds."""
        policy: Any = self.policy
        if reference and self._has_adapters:
            with policy.reference(self.reference):
                yield policy
        else:
            yield self.reference if reference else policy

    @torch.enable_grad()  # code of a user's own in this process may have turned gradients off
    def update(self, batch: Batch | RankBatch, *, step: int) -> Metrics:
        """All epochs and minibatches of one step. Advantages are in the batch; metrics are those of all ranks.

        Raises NonFiniteUpdate, on every rank alike, before a non-finite value can reach the weights.
        """
        independent = self.policy.positions_independent
        rows = batch if isinstance(batch, RankBatch) else learned_rows(batch, self.stage, independent=independent)
        rows = share_of_update(rows, self, step=step)
        compared = self._compare_with_float32(rows, step)
        with self._dropout(step):
            metrics = train_on(rows, self.stage, optimise=self._optimise)
        observed = batch if isinstance(batch, Batch) else batch.observed
        if observed is not None:
            # Running statistics change between batches only: all of one batch is evaluated under the same ones.
            self.policy.observe(observed.inputs, observed.mask)
        ratio = update_ratio(self.optimizer)
        size: Metrics = {} if ratio is None else {"update_ratio": ratio}
        clip = self.stage.clip_metrics(self.optimizer_steps)
        return {**metrics, **compared, **size, **clip, "lr": float(self.optimizer.param_groups[0]["lr"])}

    def _optimise(self, mini: Minibatch) -> tuple[Metrics, bool]:
        """One optimiser step over a minibatch; (metrics, whether it was skipped)."""
        self.forget_gradients()
        partial = [self._backward(mini, part, rows) for part, rows in mini.batch.passes(mini.part)]
        with timeline.span("sum of gradients"):
            self._sum_gradients()
        merged = reduce_metrics(partial, ranks=self.ranks)
        metrics, skipped = mini.conclude(merged)
        if skipped:
            self.forget_gradients()
        else:
            metrics["grad_norm"] = self._step(merged["loss"][0])
        return metrics, skipped

    def _backward(self, mini: Minibatch, part: Batch, rows: Tensor) -> PartialMetrics:
        """Add the gradient of ``part``, which are ``rows`` of the batch."""
        part = part.to(self.device)
        with_entropy = "entropy" in self.stage.objective.needs
        with timeline.span("forward", details={"rows": part.num_rows}):
            output = self.policy.evaluate(part.inputs, part.actions, mini.scored(part), with_entropy=with_entropy)
            loss, metrics = mini.loss(part, rows, output, optimizer_steps=self.optimizer_steps)
        if loss.requires_grad:
            with timeline.span("backward", details={"rows": part.num_rows}):
                loss.backward()
        return metrics

    def _sum_gradients(self) -> None:
        """Add the gradients of all ranks."""
        sum_gradients(self._trained, self.size)

    def _step(self, loss: float) -> float:
        """Clips and applies the gradient; returns its norm before clipping."""
        total = whole_tensor(gradient_norm([p.grad for p in self._trained if p.grad is not None]))
        norm = float(total)
        require_finite(loss, norm, self.stage, self.optimizer_steps)
        if 0 < self.stage.optimizer.grad_clip < norm:
            clip_gradients(self._trained, self.stage.optimizer.grad_clip, total)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * self.lr_scale * self.stage.lr_factor(self.optimizer_steps)
        with timeline.span("optimiser step"):
            self.optimizer.move()
        self.optimizer_steps += 1
        return norm

    def _compare_with_float32(self, batch: RankBatch, step: int) -> Metrics:
        """Compare the first micro-batch here, at the iterations that ``learner.compare_float32_every`` names."""
        every = self.compare_float32_every
        if not every or step % every or getattr(self.policy, "autocast", None) is None:
            return {}
        mini = Minibatch(batch, batch.parts[0], batch.steps[0], self.stage)
        if not mini.part.micro_batches:
            return {}
        rows = mini.part.micro_batches[0]
        part = batch.select(rows).to(self.device)
        scored = part.replace(mask=mini.scored(part))

        def loss(output: PolicyOutput) -> Tensor:
            return mini.loss(part, rows, output, optimizer_steps=self.optimizer_steps)[0]

        return compare_with_float32(self.policy, scored, loss, self._trained)

    @contextmanager
    def _dropout(self, step: int) -> Iterator[None]:
        """Dropout in updates alone, drawn from the seed, the step and the rank: a resumed run draws the same."""
        if not self._dropouts:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(stream_seed(self.seed, "dropout", self.stage.name, step, self.rank))
            try:
                for dropout in self._dropouts:
                    dropout.train()
                yield
            finally:
                for dropout in self._dropouts:
                    dropout.eval()

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives."""
        self.lr_scale = factor

    def has_adapters(self) -> bool:
        policy: Any = self.policy
        return self._has_adapters and separable(policy)

    def weight_sources(self, bucket_bytes: int | None, *, form: WeightForm = "merged") -> list[int]:
        """Rank 0 for each part that :meth:`weights` makes: at most ``bucket_bytes`` or one parameter each."""
        return [0] * len(self._weight_runs(bucket_bytes, form))

    def _named_weights(self, form: WeightForm) -> list[list[tuple[str, Tensor]]]:
        """Return the weights to send, in sections whose parts don't mix; those that training changes come last."""
        if form == "merged":
            return [list(self.policy.weights())]
        policy: Any = self.policy
        fixed: list[tuple[str, Tensor]] = []
        changing: list[tuple[str, Tensor]] = []
        for name, tensor, changes in policy.separate_weights():
            (changing if changes else fixed).append((name, tensor))
        return [fixed, changing] if form == "separate" else [changing]

    def _weight_runs(self, bucket_bytes: int | None, form: WeightForm = "merged") -> list[list[str]]:
        """Return the names of each part; those of one adapter are in the same part."""
        return _divided(self._named_weights(form), bucket_bytes)

    def weights(
        self, *, version: int, part: int = 0, bucket_bytes: int | None = None, form: WeightForm = "merged"
    ) -> WeightUpdate:
        """Return the policy's weights on the CPU, or one part of them, on rank 0; nothing on the others."""
        sections = self._named_weights(form)
        runs = _divided(sections, bucket_bytes)
        requested, tensors = set(runs[part]), {}
        for name, tensor in itertools.chain.from_iterable(sections):
            if name in requested:
                whole = whole_tensor(tensor)  # all ranks take part in it
                if self.rank == 0:
                    tensors[name] = whole.cpu()
        return WeightUpdate(version, tensors, part, len(runs), partial=form == "changing")

    def save(self, folder: Path) -> None:
        """Weights, optimiser, schedule and reference into ``folder`` (rank 0 writes)."""
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            state = {
                **self.stage.saved(self.optimizer_steps),
                "policy": self.policy.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "reference": self.reference.state_dict() if self.reference is not None else None,
            }
            torch.save(state, folder / "learner.pt")

    def load(self, folder: Path) -> None:
        """Continue bit for bit where :meth:`save` stopped. Raises ValueError for another stage's checkpoint."""
        state = torch.load(folder / "learner.pt", map_location=self.device, weights_only=True)
        self.optimizer_steps = self.stage.resumed(state, folder)
        self.policy.load_state_dict(state["policy"])
        with own_options(self.optimizer):
            self.optimizer.load_state_dict(state["optimizer"])
        if state["reference"] is not None and self.reference is not None:
            self.reference.load_state_dict(state["reference"])

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begin the stage again with the weights in ``folder``, of any PyTorch learner; Adam's moments if
        ``optimizer``."""
        load_policy(folder, self.policy)
        self.start(self.stage.name)
        if optimizer:
            state = torch.load(folder / "learner.pt", map_location=self.device, weights_only=True)
            with own_options(self.optimizer):
                self.optimizer.load_state_dict(state["optimizer"])

    def export(self, folder: Path) -> None:
        """Write a folder that the policy's own library loads (rank 0 writes)."""
        if self.rank == 0:
            self.policy.save_pretrained(str(folder))


def _divided(sections: Sequence[Sequence[tuple[str, Tensor]]], bucket_bytes: int | None) -> list[list[str]]:
    """Divide named weights into parts of at most ``bucket_bytes``, or one parameter each; return their names."""
    runs: list[list[str]] = []
    for section in sections:
        units: dict[str, tuple[list[str], int]] = {}
        for name, tensor in section:
            weight, _, mark = name.partition("@")
            unit = name if mark in ("", "base") else f"{weight}@"
            names, size = units.get(unit, ([], 0))
            units[unit] = [*names, name], size + tensor.nbytes
        runs += [[name for names in run for name in names] for run in split_by_size(units.values(), bucket_bytes)]
    return runs
