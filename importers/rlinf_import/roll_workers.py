"""ROLL's workers: who trains and who generates, on how many GPUs and how a model is split over them."""

from __future__ import annotations

from rlinf_import.models import adapters, attention, precision, schedule
from rlinf_import.roll_batches import devices
from rlinf_import.sheet import Sheet

_TRAIN, _INFER = "actor_train.", "actor_infer."
_MODEL, _ARGUMENTS = f"{_TRAIN}model_args.", f"{_TRAIN}training_args."
_LAYOUT, _ENGINE = f"{_TRAIN}strategy_args.strategy_config.", f"{_INFER}strategy_args.strategy_config."
_BACKENDS = {"megatron_train": "megatron", "deepspeed_train": "fsdp", "fsdp2_train": "fsdp", "hf_train": "torch"}
_PARALLEL = {
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "context_parallel_size": "context_parallel",
    "virtual_pipeline_model_parallel_size": "virtual_pipeline",
}


def workers(sheet: Sheet) -> None:
    """Set backend, layout, samplers and what the model is loaded as."""
    _learner(sheet)
    _model(sheet)
    _samplers(sheet)


def _learner(sheet: Sheet) -> None:
    key = f"{_TRAIN}strategy_args.strategy_name"
    strategy = sheet.text(key)
    if strategy:
        sheet.put("learner.backend", _BACKENDS.get(strategy, "torch"), key)
        if strategy not in _BACKENDS:
            sheet.differ(key, "learners are torch, fsdp or megatron")
    if strategy == "megatron_train":
        for theirs, ours in _PARALLEL.items():
            sheet.copy_as(f"{_LAYOUT}{theirs}", f"learner.megatron.{ours}")
        sheet.copy_as(f"{_LAYOUT}sequence_parallel", "learner.megatron.sequence_parallel")
        sheet.copy_as(f"{_LAYOUT}use_distributed_optimizer", "learner.megatron.distributed_optimizer")
        recompute = sheet.text(f"{_LAYOUT}recompute_granularity")
        if recompute:
            sheet.put("learner.megatron.recompute", recompute, f"{_LAYOUT}recompute_granularity")
    count = devices(sheet, f"{_TRAIN}device_mapping")
    if count is not None:
        sheet.put("learner.num_workers", count, f"{_TRAIN}device_mapping")
    schedule(sheet, f"{_ARGUMENTS}lr_scheduler_type")
    first, second = sheet.number(f"{_ARGUMENTS}adam_beta1"), sheet.number(f"{_ARGUMENTS}adam_beta2")
    if first is not None or second is not None:
        betas = [0.9 if first is None else first, 0.999 if second is None else second]
        sheet.put("learner.optimizer.betas", betas, f"{_ARGUMENTS}adam_beta1", f"{_ARGUMENTS}adam_beta2")


def _model(sheet: Sheet) -> None:
    disabled = sheet.take(f"{_MODEL}disable_gradient_checkpointing")
    if isinstance(disabled, bool):
        sheet.put("policy.gradient_checkpointing", not disabled, f"{_MODEL}disable_gradient_checkpointing")
    attention(sheet, f"{_MODEL}attn_implementation")
    precision(sheet, f"{_MODEL}dtype")
    model = sheet.take(f"{_MODEL}model_name_or_path")
    if model and "policy.path" not in sheet.settings:
        sheet.put("policy.path", model, f"{_MODEL}model_name_or_path")
    sheet.ignore(f"{_MODEL}model_name_or_path", "policy.path is that of pretrain")
    if sheet.written(f"{_MODEL}lora_target") is None:
        return  # ROLL trains adapters where their layers are named
    rank, alpha, target, dropout = (f"{_MODEL}lora_{name}" for name in ("rank", "alpha", "target", "dropout"))
    adapters(sheet, rank, alpha, target, dropout, scale=2)


def _samplers(sheet: Sheet) -> None:
    key = f"{_INFER}strategy_args.strategy_name"
    engine = sheet.text(key)
    if engine:
        sheet.put("rollout.sampler", {"hf_infer": "hf"}.get(engine, "vllm"), key)
        if engine not in ("vllm", "hf_infer"):
            sheet.differ(key, "samplers are hf, vllm or a server: vllm is set")
    if engine not in ("hf_infer", "sglang"):
        for name in (
            "gpu_memory_utilization",
            "max_model_len",
            "tensor_parallel_size",
            "enforce_eager",
            "max_num_seqs",
        ):
            sheet.copy_as(f"{_ENGINE}{name}", f"rollout.vllm.{name}")
        for name in ("enable_prefix_caching", "enable_chunked_prefill"):
            sheet.copy_as(f"{_ENGINE}{name}", f"rollout.vllm.{name}")
    elif engine == "sglang":
        sheet.copy_as(f"{_ENGINE}mem_fraction_static", "rollout.vllm.gpu_memory_utilization")
        sheet.copy_as(f"{_ENGINE}tp_size", "rollout.vllm.tensor_parallel_size")
    parallel = sheet.value("rollout.vllm.tensor_parallel_size")
    each = int(parallel) if isinstance(parallel, int) else sheet.count(f"{_INFER}num_gpus_per_worker") or 1
    count = devices(sheet, f"{_INFER}device_mapping")
    if count is not None:
        sheet.put("rollout.num_samplers", max(1, count // max(1, each)), f"{_INFER}device_mapping")
        _placement(sheet)


def _placement(sheet: Sheet) -> None:
    """Samplers on GPUs of their own, if the two mappings have none in common."""
    train, infer = (str(sheet.take(f"{role}device_mapping")) for role in (_TRAIN, _INFER))
    first, second = _span(train), _span(infer)
    if first and second and not first & second:
        sheet.put("cluster.placement", "separate", f"{_TRAIN}device_mapping", f"{_INFER}device_mapping")


def _span(mapping: str) -> set[int]:
    numbers = [int(number) for number in "".join(c if c.isdigit() else " " for c in mapping).split()]
    if "range" in mapping and 1 <= len(numbers) <= 2:
        return set(range(*numbers))
    return set(numbers) if mapping.startswith("[") else set()
