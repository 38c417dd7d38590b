"""What the processes of a gang run; every function returns plain tensors and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from learner_cases import MICRO_BATCH_TOKENS, SAMPLING, make_batch, make_stage, policy_of, tiny_model
from torch import Tensor

from rlinf.config.schema.learner import MegatronConfig
from rlinf.learners.stage import Stage
from rlinf.types import Batch, Metrics, PolicyOutput

Evaluated = tuple[Tensor, PolicyOutput]


def make_learner(
    layout: MegatronConfig,
    stage: Stage | None = None,
    *,
    family: str = "qwen2",
    tied: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Any:
    from rlinf.learners.megatron.learner import MegatronLearner

    model = tiny_model(family, tied=tied)
    state = dict(model.named_parameters())
    return MegatronLearner(
        model.config,
        lambda name: state[name].detach(),
        layout=layout,
        stage=stage or make_stage(),
        sampling=SAMPLING,
        seed=5,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        dtype=dtype,
    )


def round_trip(layout: MegatronConfig, family: str, tied: bool) -> dict[str, Tensor]:
    """What rank 0 gets back of the weights that were loaded."""
    learner = make_learner(layout, family=family, tied=tied)
    return {name: tensor.clone() for name, tensor in learner.weights(version=0).tensors.items()}


def first_logits(layout: MegatronConfig, family: str, tied: bool) -> list[tuple[Tensor, Tensor]]:
    """(tokens, logits of the real vocabulary [N, V]) of each micro-batch, on ranks of the last stage."""
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region

    from rlinf.learners.megatron.schedule import run_forward

    learner = make_learner(layout, family=family, tied=tied)
    batch = make_batch()
    pieces = learner._packed(batch, [torch.tensor([0, 1]), torch.tensor([5])])

    def whole(piece: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        full = gather_from_tensor_model_parallel_region(logits)
        return piece.tokens.clone(), full[0, :, : learner.source.vocab_size].clone()

    found: list[tuple[Tensor, Tensor]] = run_forward(learner.chunks, pieces, whole)
    return found[:2]


def evaluate_and_train(
    layout: MegatronConfig, stage: Stage, steps: int, family: str
) -> tuple[Evaluated, list[Metrics], dict[str, Tensor]]:
    """What the learner says of a batch before the first step, the metrics of each step, the weights after the last."""
    learner = make_learner(layout, stage, family=family)
    evaluated = learner.evaluate(make_batch())
    metrics = [take_step(learner, step) for step in range(steps)]
    return evaluated, metrics, {name: tensor.clone() for name, tensor in learner.weights(version=1).tensors.items()}


def take_step(learner: Any, step: int) -> Metrics:
    """One update on the batch of ``step``; the columns that the stage asks for are filled first."""
    batch = make_batch(seed=step)
    metrics: Metrics = learner.update(with_columns(learner, batch), step=step)
    return metrics


def with_columns(learner: Any, batch: Any) -> Any:
    """Proximal and reference log-probabilities, gathered over ranks as the learner pool does it."""
    if not learner.stage.old_is_current:
        batch = batch.replace(old_logprobs=gathered(learner.evaluate(batch), batch.num_rows))
    if learner.stage.reference:
        batch = batch.replace(ref_logprobs=gathered(learner.evaluate(batch, reference=True), batch.num_rows))
    return batch


def gathered(evaluated: Evaluated, rows: int) -> Tensor:
    """The log-probabilities of all rows, on every rank."""
    import torch.distributed as dist

    parts: list[Any] = [evaluated]
    if dist.is_initialized():
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, evaluated)
    order = torch.cat([part[0] for part in parts])
    assert sorted(order.tolist()) == list(range(rows))
    return torch.cat([part[1].logprobs for part in parts])[torch.argsort(order)]


def save_then_continue(
    layout: MegatronConfig, stage: Stage, folder: Path, done: int
) -> tuple[list[Metrics], dict[str, Tensor]]:
    """``done`` steps, a checkpoint, two more steps: the metrics and weights of the latter."""
    learner = make_learner(layout, stage)
    for step in range(done):
        take_step(learner, step)
    learner.save(folder)
    return _continued(learner)


def load_and_continue(layout: MegatronConfig, stage: Stage, folder: Path) -> tuple[list[Metrics], dict[str, Tensor]]:
    """The same last two steps from the checkpoint."""
    learner = make_learner(layout, stage)
    learner.load(folder)
    return _continued(learner)


def _continued(learner: Any) -> tuple[list[Metrics], dict[str, Tensor]]:
    metrics = [take_step(learner, step) for step in (2, 3)]
    return metrics, {name: tensor.clone() for name, tensor in learner.weights(version=4).tensors.items()}


def export(layout: MegatronConfig, folder: Path, family: str) -> None:
    make_learner(layout, family=family).export(folder)


def train_on_nan(layout: MegatronConfig) -> tuple[bool, bool]:
    """(whether a batch with NaN is refused, whether the weights are the same afterwards)."""
    from rlinf.learners.minibatch import NonFiniteUpdate

    learner = make_learner(layout)
    before = {name: tensor.clone() for name, tensor in learner.weights(version=0).tensors.items()}
    batch = make_batch()
    assert batch.advantages is not None
    try:
        learner.update(batch.replace(advantages=batch.advantages * float("nan")), step=0)
    except NonFiniteUpdate:
        after = learner.weights(version=0).tensors
        return True, all(torch.equal(after[name], before[name]) for name in before)
    return False, False


def make_fsdp_learner(stage: Stage | None = None, family: str = "qwen2") -> Any:
    from rlinf.learners.fsdp import FSDPLearner

    policy = policy_of(tiny_model(family))
    return FSDPLearner(policy, stage=stage or make_stage(), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)


def evaluate_and_train_fsdp(
    stage: Stage, steps: int, family: str
) -> tuple[Evaluated, list[Metrics], dict[str, Tensor]]:
    """As :func:`evaluate_and_train`."""
    learner = make_fsdp_learner(stage, family)
    evaluated = learner.evaluate(make_batch())
    metrics = [take_step(learner, step) for step in range(steps)]
    return evaluated, metrics, {name: tensor.clone() for name, tensor in learner.weights(version=1).tensors.items()}


def save_then_continue_fsdp(stage: Stage, folder: Path) -> tuple[list[Metrics], dict[str, Tensor]]:
    learner = make_fsdp_learner(stage)
    for step in range(2):
        take_step(learner, step)
    learner.save(folder)
    return _continued(learner)


def load_and_continue_fsdp(stage: Stage, folder: Path) -> tuple[list[Metrics], dict[str, Tensor]]:
    learner = make_fsdp_learner(stage)
    learner.load(folder)
    return _continued(learner)


def export_fsdp(folder: Path) -> None:
    make_fsdp_learner().export(folder)


def evaluate_fsdp(batch: Batch) -> Evaluated:
    evaluated: Evaluated = make_fsdp_learner().evaluate(batch)
    return evaluated


def convert(arguments: list[str]) -> int:
    from rlinf.learners.convert import main

    return main(arguments)


def train_in_bfloat16(layout: MegatronConfig) -> tuple[Evaluated, list[Metrics], dict[str, Tensor]]:
    """As :func:`evaluate_and_train`."""
    learner = make_learner(layout, dtype=torch.bfloat16)
    evaluated = learner.evaluate(make_batch())
    metrics = [take_step(learner, step) for step in range(3)]
    return evaluated, metrics, {name: tensor.clone() for name, tensor in learner.weights(version=1).tensors.items()}
