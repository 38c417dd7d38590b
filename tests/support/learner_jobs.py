"""What the processes of a gang run; every function returns plain tensors and numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from allocations import PeakBytes
from learner_cases import MICRO_BATCH_TOKENS, SAMPLING, make_batch, make_stage, policy_of, tiny_model
from torch import Tensor

from rlinf.data import weight_sources
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput, WeightUpdate
from rlinf.data.shards import RankBatch, StepShard
from rlinf.learners.offload import STAY
from rlinf.learners.stage import Stage
from rlinf.learners.step_plan import RowFacts, evaluation_plan, update_plan
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.routing import RouteRecorder, routers
from rlinf.schema.learner import MegatronConfig, OffloadConfig

Evaluated = tuple[Tensor, PolicyOutput]


def make_learner(
    layout: MegatronConfig,
    stage: Stage | None = None,
    *,
    family: str = "qwen2",
    tied: bool = True,
    dtype: torch.dtype = torch.float32,
    offload: OffloadConfig = STAY,
) -> Any:
    from rlinf.learners.megatron.learner import MegatronLearner

    learner_stage = stage or make_stage()
    model = tiny_model(family, tied=tied)
    state = dict(by_expert(model.named_parameters()))
    return MegatronLearner(
        model.config,
        lambda name: state[name].detach(),
        layout=layout,
        stages=(learner_stage,),
        sampling=SAMPLING,
        seed=5,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        dtype=dtype,
        offload=offload,
        value_head=bool(learner_stage.objective.needs & {"values"}),
    )


def all_weights(learner: Any) -> dict[str, Tensor]:
    """Copies of the weights that all ranks give, on rank 0, nothing on the others; no two ranks give the same one."""
    mine: dict[str, Tensor] = {}
    for part in range(len(learner.weight_sources(None))):
        mine |= {name: tensor.clone() for name, tensor in learner.weights(version=1, part=part).tensors.items()}
    if not dist.is_initialized():
        return mine
    world: list[Any] = [{}] * dist.get_world_size()
    dist.gather_object(mine, world if dist.get_rank() == 0 else None)
    weights = {name: tensor for given in world for name, tensor in given.items()}
    assert len(weights) == sum(map(len, world))
    return weights


def round_trip(layout: MegatronConfig, family: str, tied: bool) -> dict[str, Tensor]:
    """What rank 0 gets back of the weights that were loaded."""
    learner = make_learner(layout, family=family, tied=tied)
    return all_weights(learner)


def first_logits(layout: MegatronConfig, family: str, tied: bool) -> list[tuple[Tensor, Tensor]]:
    """(tokens, logits of the real vocabulary [N, V]) of each micro-batch, on ranks of the last stage."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region

    from rlinf.learners.megatron.schedule import run_forward

    learner = make_learner(layout, family=family, tied=tied)
    # Interleaved stages want an even number; what is beyond the first two does not matter.
    part = StepShard((torch.tensor([0, 1]), torch.tensor([5])), 2)
    pieces = learner._packed(RankBatch(make_batch(), [part]), part)
    context = parallel_state.get_context_parallel_group()

    def whole(piece: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        full = gather_from_tensor_model_parallel_region(logits)
        everyone = [torch.empty_like(full) for _ in range(context.size())]
        dist.all_gather(everyone, full.contiguous(), group=context)
        full = torch.cat(everyone, dim=1)
        return piece.tokens.clone(), full[0, :, : learner.source.vocab_size].clone()

    found: list[tuple[Tensor, Tensor]] = run_forward(learner.chunks, pieces, whole)
    return found[:2]


def evaluate_and_train(
    layout: MegatronConfig, stage: Stage, steps: int, family: str
) -> tuple[Evaluated, list[Metrics], dict[str, Tensor]]:
    """The learner's outputs for a batch before the first step, the metrics of each step, the weights after the last."""
    learner = make_learner(layout, stage, family=family)
    evaluated = learner.evaluate(make_batch())
    metrics = [take_step(learner, step) for step in range(steps)]
    return evaluated, metrics, all_weights(learner)


def take_step(learner: Any, step: int) -> Metrics:
    """One update on the batch of ``step``; the columns that the stage needs are filled first."""
    batch = make_batch(seed=step)
    metrics: Metrics = learner.update(with_columns(learner, batch), step=step)
    return metrics


def with_columns(learner: Any, batch: Any) -> Any:
    """Proximal and reference log-probabilities, gathered over ranks as the learner pool does it."""
    if not learner.stage.old_is_current:
        batch = batch.replace(old_logprobs=gathered(learner.evaluate(batch), batch.num_rows))
    if "values" in learner.stage.objective.needs:
        batch = batch.replace(old_values=gathered(learner.evaluate(batch), batch.num_rows, "values"))
    if learner.stage.reference:
        batch = batch.replace(ref_logprobs=gathered(learner.evaluate(batch, reference=True), batch.num_rows))
    return batch


def gathered(evaluated: Evaluated, rows: int, column: str = "logprobs") -> Tensor:
    """The log-probabilities (or another column) of all rows, on every rank."""
    parts: list[Any] = [evaluated]
    if dist.is_initialized():
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, evaluated)
    parts = [part for part in parts if len(part[0])]
    order = torch.cat([part[0] for part in parts])
    assert sorted(order.tolist()) == list(range(rows))
    return torch.cat([getattr(part[1], column) for part in parts])[torch.argsort(order)]


def train_on_own_rows(
    layout: MegatronConfig | None, stage: Stage, family: str
) -> tuple[list[Metrics], list[dict[str, Tensor]]]:
    """Metrics and weights of an update by ranks that have the whole batch, and by ranks that have their own rows.

    No layout is the FSDP learner."""
    metrics, weights = [], []
    for own in (False, True):
        learner = make_fsdp_learner(stage, family) if layout is None else make_learner(layout, stage, family=family)
        batch = make_batch(groups=7)
        evaluated = learner.evaluate(evaluated_by(learner, batch) if own else batch)
        batch = with_columns(learner, batch)
        assert not own or outputs_equal(learner, batch, evaluated)
        metrics.append(learner.update(learned_by(learner, batch, step=0) if own else batch, step=0))
        weights.append(all_weights(learner))
    return metrics, weights


def evaluated_by(learner: Any, batch: Batch) -> RankBatch:
    """What this rank is sent of a batch to evaluate."""
    facts, rank = RowFacts.of(batch, learner.costs(batch)), learner.data_rank
    own = evaluation_plan(facts, rank).by_share(facts)[rank.index]
    return RankBatch(batch.select(own.rows), own.parts)


def learned_by(learner: Any, batch: Batch, *, step: int) -> RankBatch:
    """What this rank is sent of a batch to learn from."""
    facts, rank = RowFacts.of(batch, learner.costs(batch)), learner.data_rank
    plan = update_plan(facts, rank, stage=learner.stage, seed=learner.seed, step=step)
    own = plan.by_share(facts)[rank.index]
    return RankBatch(batch.select(own.rows), own.parts, plan.steps)


def outputs_equal(learner: Any, batch: Batch, evaluated: Evaluated) -> bool:
    """Whether ``evaluated``, of this rank's own rows, equals its output for them with the whole batch."""
    facts, rank = RowFacts.of(batch, learner.costs(batch)), learner.data_rank
    numbers = evaluation_plan(facts, rank).by_share(facts)[rank.index].rows
    rows, output = learner.evaluate(batch)
    return numbers[evaluated[0].long()].equal(rows) and evaluated[1].logprobs.equal(output.logprobs)


def save_then_continue(
    layout: MegatronConfig, stage: Stage, folder: Path, done: int, family: str = "qwen2"
) -> tuple[list[Metrics], dict[str, Tensor]]:
    """``done`` steps, a checkpoint, two more steps: the metrics and weights of the latter."""
    learner = make_learner(layout, stage, family=family)
    for step in range(done):
        take_step(learner, step)
    learner.save(folder)
    return _continued(learner)


def load_and_continue(
    layout: MegatronConfig, stage: Stage, folder: Path, family: str = "qwen2"
) -> tuple[list[Metrics], dict[str, Tensor]]:
    """The same last two steps from the checkpoint."""
    learner = make_learner(layout, stage, family=family)
    learner.load(folder)
    return _continued(learner)


def _continued(learner: Any) -> tuple[list[Metrics], dict[str, Tensor]]:
    metrics = [take_step(learner, step) for step in (2, 3)]
    return metrics, all_weights(learner)


def trained_learner(layout: MegatronConfig, folder: Path) -> Any:
    """Two steps away from the weights in ``folder``, the same two each time."""
    from transformers import AutoConfig

    from rlinf.learners.megatron.learner import MegatronLearner
    from rlinf.learners.shards import SafetensorsFolder

    learner = MegatronLearner(
        AutoConfig.from_pretrained(folder),
        SafetensorsFolder(folder),
        layout=layout,
        stages=(replace(make_stage(), optimizer=replace(make_stage().optimizer, lr=2e-2)),),
        sampling=SAMPLING,
        seed=5,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
    )
    for step in range(2):
        take_step(learner, step)
    return learner


def trained_parts(layout: MegatronConfig, folder: Path, bucket_bytes: int) -> list[WeightUpdate]:
    """Its weights as a sampler is sent them: a part is empty on all ranks but the one that gives it."""
    learner = trained_learner(layout, folder)
    numbers = range(len(learner.weight_sources(bucket_bytes)))
    return [learner.weights(version=2, part=number, bucket_bytes=bucket_bytes) for number in numbers]


def trained_logprobs(layout: MegatronConfig, folder: Path, batch: Batch) -> Tensor:
    """Its log-probabilities of a batch."""
    return gathered(trained_learner(layout, folder).evaluate(batch), batch.num_rows)


def take_over(
    layout: MegatronConfig | None, donor: Stage, taker: Stage, folder: Path
) -> tuple[list[Metrics], dict[str, Tensor]]:
    """Four steps as ``donor``, then two as ``taker`` from its checkpoint: metrics and weights of the latter.

    No layout is FSDP.
    """

    def made(stage: Stage) -> Any:
        return make_fsdp_learner(stage) if layout is None else make_learner(layout, stage)

    return taken_over(made(donor), made(taker), folder)


def taken_over(first: Any, second: Any, folder: Path) -> tuple[list[Metrics], dict[str, Tensor]]:
    """As :func:`take_over`."""
    for step in range(4):
        take_step(first, step)
    first.save(folder)
    second.load(folder)
    metrics = [take_step(second, step) for step in (4, 5)]
    return metrics, all_weights(second)


def weights_in_parts(
    layout: MegatronConfig | None, family: str, bucket_bytes: int
) -> tuple[dict[str, Tensor], list[int], int]:
    """(weights that this rank gives, bytes of each part, most bytes of new tensors meanwhile). No layout is FSDP."""
    learner = make_fsdp_learner(family=family) if layout is None else make_learner(layout, family=family)
    known = list(learner.resident_weights())
    numbers, sizes, parts, number = {}, [], 1, 0
    with PeakBytes(known) as allocations:
        while number < parts:
            update = learner.weights(version=3, part=number, bucket_bytes=bucket_bytes)
            assert (update.version, update.part) == (3, number)
            sizes.append(sum(tensor.nbytes for tensor in update.tensors.values()))
            # What a sampler keeps is not this rank's memory: numpy's copy is not counted.
            numbers |= {name: tensor.numpy().copy() for name, tensor in update.tensors.items()}
            parts, number = update.parts, number + 1
            del update
    return {name: torch.from_numpy(array) for name, array in numbers.items()}, sizes, allocations.peak


def weight_traffic(layout: MegatronConfig, family: str, bucket_bytes: int) -> tuple[int, int, int]:
    """Bytes of the parameters that this rank gives, when whole, of its own parts of them, and of what it receives."""
    learner = make_learner(layout, family=family)
    arrived, receive = 0, dist.recv

    def counted(tensor: Tensor, src: int) -> Any:
        nonlocal arrived
        arrived += tensor.nbytes
        return receive(tensor, src=src)

    whole = own = 0
    with patch.object(dist, "recv", counted):
        for part, (source, names) in enumerate(learner.gatherer.parts(bucket_bytes)):
            learner.weights(version=1, part=part, bucket_bytes=bucket_bytes)
            if source == dist.get_rank():
                whole += sum(learner.gatherer.held[name].bytes for name in names)
                own += sum(learner.gatherer.mine[name].nbytes for name in names)
    return whole, own, arrived


def weights_of_few_sources(layout: MegatronConfig, family: str, most: int) -> tuple[dict[str, Tensor], list[int]]:
    """The weights, where at most ``most`` ranks give them, and these ranks."""
    with patch.object(weight_sources, "MOST", most):
        learner = make_learner(layout, family=family)
        return all_weights(learner), learner.weight_sources(None)


def sleep_between_steps(
    layout: MegatronConfig | None, offload: OffloadConfig, dtype: torch.dtype, family: str
) -> tuple[list[Metrics], dict[str, Tensor], list[tuple[int, int, int]]]:
    """Three updates with sleep before each: metrics, weights, and (bytes awake, bytes asleep, bytes moved) each time.

    No layout is the FSDP learner."""
    if layout is None:
        learner = make_fsdp_learner(make_stage(reference=True), family, offload)
    else:
        learner = make_learner(layout, make_stage(reference=True), family=family, dtype=dtype, offload=offload)

    def held() -> int:
        from rlinf.learners.megatron.optimizer import gradient_buffers

        tensors = [*learner.resident_weights(), *learner.resident_state()]
        tensors += [] if layout is None else gradient_buffers(learner.chunks)
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
        return sum(storage.nbytes() for storage in storages.values())

    metrics, sizes = [], []
    for step in range(3):
        awake = held()
        moved = int(learner.sleep()["offload_bytes"])
        sizes.append((awake, held(), moved))
        learner.wake()
        assert held() == awake
        metrics.append(take_step(learner, step))
    return metrics, all_weights(learner), sizes


def grouped_experts() -> tuple[tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """(outputs of the experts one by one, and in one product), and the gradients of input and weights of both."""
    from rlinf.learners.megatron.experts import Experts

    learner = make_learner(MegatronConfig(), family="qwen3_moe")
    experts = next(module for module in learner.chunks[0].modules() if isinstance(module, Experts))
    torch.manual_seed(0)
    counts = torch.tensor([3, 0, 5, 1, 4, 0, 2, 2])
    tokens, weights = torch.randn(17, 32, requires_grad=True), torch.rand(17)
    leaves = [tokens, experts.local_experts[2].linear_fc1.weight, experts.local_experts[4].linear_fc2.weight]
    outputs = experts(tokens, counts, weights)[0], experts.grouped(tokens, counts, weights)
    found = [torch.autograd.grad(output.square().sum(), leaves) for output in outputs]
    return (outputs[0].detach(), outputs[1].detach()), list(zip(*found, strict=True))


def export(layout: MegatronConfig, folder: Path, family: str) -> None:
    make_learner(layout, family=family).export(folder)


def train_on_nan(layout: MegatronConfig) -> tuple[bool, bool]:
    """(whether a batch with NaN is refused, whether the weights are the same afterwards)."""
    from rlinf.learners.minibatch import NonFiniteUpdate

    learner = make_learner(layout)
    before = all_weights(learner)
    batch = make_batch()
    assert batch.advantages is not None
    try:
        learner.update(batch.replace(advantages=batch.advantages * float("nan")), step=0)
    except NonFiniteUpdate:
        after = all_weights(learner)
        return True, all(torch.equal(after[name], before[name]) for name in before)
    return False, False


def make_fsdp_learner(stage: Stage | None = None, family: str = "qwen2", offload: OffloadConfig = STAY) -> Any:
    from rlinf.learners.fsdp import FSDPLearner

    learner_stage = stage or make_stage()
    critic = bool(learner_stage.objective.needs & {"values"})
    policy = policy_of(tiny_model(family), value_head=critic)
    return FSDPLearner(policy, stages=(learner_stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS, offload=offload)


def evaluate_and_train_fsdp(
    stage: Stage, steps: int, family: str
) -> tuple[Evaluated, list[Metrics], dict[str, Tensor]]:
    """As :func:`evaluate_and_train`."""
    learner = make_fsdp_learner(stage, family)
    evaluated = learner.evaluate(make_batch())
    metrics = [take_step(learner, step) for step in range(steps)]
    return evaluated, metrics, all_weights(learner)


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


def adapted_policy(seed: int = 3) -> Any:
    """A policy with adapters, none of whose weights is 0."""
    from rlinf.models.loading import add_lora

    model = add_lora(tiny_model("qwen2"), rank=2, alpha=4, dropout=0.0, target_modules=["q_proj", "up_proj"], seed=seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B" in name:
                parameter.normal_(std=0.05, generator=torch.Generator().manual_seed(seed))
    return policy_of(model)


def train_adapters_fsdp(stage: Stage, folder: Path) -> tuple[list[Metrics], dict[str, dict[str, Tensor]]]:
    """Five steps, then the weights in each form, a checkpoint and an export; the last two steps again from it."""
    from rlinf.learners.fsdp import FSDPLearner

    learner = FSDPLearner(adapted_policy(), stages=(stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)
    metrics = [take_step(learner, step) for step in range(3)]
    learner.save(folder / "checkpoint")
    metrics += [take_step(learner, step) for step in (3, 4)]
    forms: dict[str, dict[str, Tensor]] = {
        form: weights_as(learner, form) for form in ("merged", "separate", "changing")
    }
    learner.export(folder / "export")
    again = FSDPLearner(adapted_policy(seed=4), stages=(stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)
    again.load(folder / "checkpoint")
    assert [take_step(again, step) for step in (3, 4)] == metrics[3:]
    resumed = weights_as(again, "merged")
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in forms["merged"].items())
    return metrics, forms


def weights_as(learner: Any, form: Any) -> dict[str, Tensor]:
    """The weights of a learner in a form, on rank 0."""
    parts = len(learner.weight_sources(4096, form=form))
    found: dict[str, Tensor] = {}
    for part in range(parts):
        update = learner.weights(version=1, part=part, bucket_bytes=4096, form=form)
        found |= {name: tensor.clone() for name, tensor in update.tensors.items()}
    return found


def evaluate_fsdp(batch: Batch) -> Evaluated:
    evaluated: Evaluated = make_fsdp_learner().evaluate(batch)
    return evaluated


def train_fsdp_on(batches: list[Batch], stage: Stage, own: bool) -> tuple[list[Metrics], dict[str, Tensor]]:
    """Metrics and weights of an update on each batch; with ``own`` a rank is sent its own rows alone."""
    return train_on_batches(make_fsdp_learner(stage), batches, own)


def train_on_batches(learner: Any, batches: list[Batch], own: bool) -> tuple[list[Metrics], dict[str, Tensor]]:
    """As :func:`train_fsdp_on`."""
    metrics = [
        learner.update(learned_by(learner, batch, step=step) if own else batch, step=step)
        for step, batch in enumerate(batches)
    ]
    return metrics, {name: tensor.clone() for name, tensor in learner.weights(version=1).tensors.items()}


def convert(arguments: list[str]) -> int:
    from rlinf.cli import main

    return main(["convert", *arguments])


def train_in_bfloat16(layout: MegatronConfig) -> tuple[Evaluated, list[Metrics], dict[str, Tensor]]:
    """As :func:`evaluate_and_train`."""
    learner = make_learner(layout, dtype=torch.bfloat16)
    evaluated = learner.evaluate(make_batch())
    metrics = [take_step(learner, step) for step in range(3)]
    return evaluated, metrics, all_weights(learner)


def perturbed_moe(noise: float) -> Any:
    """A mixture of experts whose routers are off by ``noise``: experts that differ, scores that are close."""
    model = tiny_model("qwen3_moe")
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for router in routers(model):
            router.weight.mul_(0.1)
            router.weight.add_(noise * torch.randn(router.weight.shape, generator=random))
    return model


def moe_batch(seed: int = 0, *, routed: bool = True) -> Batch:
    """A batch whose log-probabilities and experts are those of the model without noise."""
    batch, model = make_batch(seed=seed), perturbed_moe(0.0)
    recorder, inputs, rows = RouteRecorder(model), batch.inputs, []
    for row in range(batch.num_rows):
        prompt = inputs.prompt_ids[row, : inputs.prompt_lengths[row]]
        with torch.no_grad():
            model(input_ids=torch.cat([prompt, batch.actions[row, : inputs.response_lengths[row]]])[None, :-1])
        rows.append(recorder.taken())
    routes = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    return batch.replace(inputs=replace(inputs, routes=routes if routed else None))


def replay_experts(layout: MegatronConfig | str, stage: Stage) -> dict[str, Any]:
    """A learner with perturbed routers: ``with`` and ``without`` the experts of the batch, and one step with them.

    ``layout``: of the megatron learner, or "fsdp" or "torch"."""
    model = perturbed_moe(1e-2)
    learner: Any
    if isinstance(layout, MegatronConfig):
        from rlinf.learners.megatron.learner import MegatronLearner

        state = dict(by_expert(model.named_parameters()))
        learner = MegatronLearner(
            model.config,
            lambda name: state[name].detach(),
            layout=layout,
            stages=(stage,),
            sampling=SAMPLING,
            seed=5,
            micro_batch_tokens=MICRO_BATCH_TOKENS,
        )
    else:
        from rlinf.learners.fsdp import FSDPLearner
        from rlinf.learners.torch import TorchLearner

        kind = FSDPLearner if layout == "fsdp" else TorchLearner
        learner = kind(policy_of(model), stages=(stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)
    found = {name: learner.evaluate(moe_batch(routed=routed)) for name, routed in (("with", True), ("without", False))}
    batch = moe_batch()
    return {**found, "metrics": learner.update(with_columns(learner, batch), step=0), "weights": all_weights(learner)}
