"""The learner of a text run as one of its ranks makes it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlinf.base.random_streams import stream_seed
from rlinf.cluster import Cluster, RankInfo, Starting, WorkerGroup
from rlinf.config import Config
from rlinf.data.messages import SamplingParams
from rlinf.interfaces import Learner
from rlinf.models.checkpoint_files import require_trainable
from rlinf.schema import LoraConfig, OffloadConfig
from rlinf.train.assemble.conversations import policy_reader
from rlinf.train.assemble.learner import join_group, torch_learner
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.stages import stages_of
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import TextPlan, text_facts

if TYPE_CHECKING:
    import torch

    from rlinf.learners.scorer import Scorer
    from rlinf.models.causal_lm import CausalLMPolicy


def language_model(config: Config, tokenizer_path: str, *, dtype: Any = None) -> Any:
    """Build the language model, the same in every worker."""
    import torch

    from rlinf.models.loading import build_causal_lm, load_causal_lm, load_tokenizer

    if config.policy.path is not None:
        return load_causal_lm(config.policy.path, dtype=dtype or torch.float32, attention=config.policy.attention)
    tokenizer = load_tokenizer(tokenizer_path)
    model = build_causal_lm(config.policy.architecture, tokenizer, seed=stream_seed(config.run.seed, "policy"))
    return model.to(dtype or torch.float32)


def start_learner(setup: ResolvedRun, cluster: Cluster, tokenizer_path: str) -> LearnerPool:
    """Start the ranks of the learner."""
    return learner_pool(setup.config, cluster, begin_learner(setup, cluster, tokenizer_path).ready())


def begin_learner(setup: ResolvedRun, cluster: Cluster, tokenizer_path: str) -> Starting:
    """Begin to start the ranks of the learner. Raise UserError if its weights are quantised."""
    require_trainable(setup.config.policy.path)
    size = setup.groups["learner"]
    return cluster.begin(
        "learner",
        functools.partial(_build_learner, setup.config, setup.devices.learner_device, tokenizer_path),
        n=size.n,
        resources=size.resources,
        rendezvous=size.n > 1,
    )


def learner_pool(config: Config, cluster: Cluster, ranks: WorkerGroup) -> LearnerPool:
    """Combine the ranks of :func:`begin_learner` into one."""
    plan = TextPlan(
        stages_of(config),
        seed=config.run.seed,
        packed=config.learner.pack or config.learner.backend == "megatron",
    )
    return LearnerPool(
        ranks,
        cluster,
        offload=config.learner.offload != OffloadConfig(),
        plan=plan,
        teacher_facts=functools.partial(text_facts, packed=config.learner.pack),
    )


def _build_learner(config: Config, device_type: str, tokenizer_path: str, info: RankInfo) -> LearnerWorker:
    """Build the learner that ``learner.backend`` names, with the stages of this run."""
    import torch

    device = torch.device(device_type)
    learner = LEARNERS[config.learner.backend](config, device, tokenizer_path, info)
    return LearnerWorker(
        learner,
        rank=info.rank,
        bucket_bytes=config.learner.weight_bucket_mb << 20,
        teacher=_teacher(config, device, info),
    )


def _teacher(config: Config, device: torch.device, info: RankInfo) -> Scorer | None:
    """Load this rank's copy of the teacher, which replaces a reference policy: a whole one with every backend.

    Its log-probabilities are of the policy's distribution: at the sampling temperature, with nothing cut off.
    """
    if config.teacher.path is None:
        return None
    import torch

    from rlinf.learners.scorer import Scorer
    from rlinf.models.causal_lm import CausalLMPolicy
    from rlinf.models.loading import activation_dtype, load_causal_lm

    dtype = activation_dtype(config.teacher.dtype, device.type)
    model = load_causal_lm(config.teacher.path, dtype=dtype, attention=config.policy.attention)
    policy = CausalLMPolicy(
        model,
        sampling=SamplingParams.of(config.rollout),
        pack_rows=config.learner.pack,
        autocast=None if dtype == torch.float32 else dtype,
    )
    tokens = config.learner.micro_batch_tokens
    return Scorer(policy, micro_batch_tokens=tokens, device=device, rank=info.rank, size=info.size)


def _torch_learner(config: Config, device: torch.device, tokenizer_path: str, info: RankInfo) -> Learner:
    return torch_learner(config, device, info, functools.partial(text_policy, config, tokenizer_path, device.type))


def _fsdp_learner(config: Config, device: torch.device, tokenizer_path: str, info: RankInfo) -> Learner:
    from rlinf.learners.fsdp import FSDPLearner

    join_group(device, info, timeout_s=config.cluster.call_timeout_s)
    return FSDPLearner(
        text_policy(config, tokenizer_path, device.type),
        stages=stages_of(config),
        seed=config.run.seed,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        device=device,
        offload=config.learner.offload,
    )


def _megatron_learner(config: Config, device: torch.device, tokenizer_path: str, info: RankInfo) -> Learner:
    from rlinf.learners.megatron.learner import MegatronLearner
    from rlinf.learners.shards import SafetensorsFolder
    from rlinf.models.checkpoint_names import by_expert
    from rlinf.models.loading import activation_dtype, checkpoint_config

    join_group(device, info, timeout_s=config.cluster.call_timeout_s)
    if config.policy.path is not None:
        from rlinf.models.gguf import model_folder

        source = checkpoint_config(config.policy.path)
        read: Callable[[str], Any] = SafetensorsFolder.of(model_folder(config.policy.path))
    else:
        model = language_model(config, tokenizer_path)
        source, read = model.config, dict(by_expert(model.named_parameters())).__getitem__
    layout = config.learner.megatron
    if config.policy.gradient_checkpointing and layout.recompute == "none":
        layout = replace(layout, recompute="full")
    return MegatronLearner(
        source,
        read,
        layout=layout,
        stages=stages_of(config),
        sampling=SamplingParams.of(config.rollout),
        seed=config.run.seed,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        device=device,
        dtype=activation_dtype(config.policy.dtype, device.type),
        value_head=config.policy.value_head,
        offload=config.learner.offload,
    )


LEARNERS: Mapping[str, Callable[[Config, torch.device, str, RankInfo], Learner]] = {
    "torch": _torch_learner,
    "fsdp": _fsdp_learner,
    "megatron": _megatron_learner,
}
"""``learner.backend`` -> what makes one rank of it."""


def text_policy(config: Config, tokenizer_path: str, device: str) -> CausalLMPolicy:
    """Build the language model as a policy of a PyTorch learner, with adapters and value head if configured."""
    import torch

    from rlinf.models.causal_lm import CausalLMPolicy
    from rlinf.models.kept_base import base_model
    from rlinf.models.loading import activation_dtype, add_lora, load_tokenizer
    from rlinf.models.vision.families import family_of, freeze_encoder
    from rlinf.models.vision.reading import excluded_ids

    lora = config.policy.lora
    if lora.rank > 0:
        # What the numbers of the base model depend on: its checkpoint, or what its random weights are drawn for.
        base = replace(config.policy, lora=LoraConfig(), gradient_checkpointing=False)
        key = repr((base, None if base.path is not None else (config.run.seed, config.env, config.data)))
        model = base_model(key, functools.partial(language_model, config, tokenizer_path))
    else:
        model = language_model(config, tokenizer_path)
    sight: dict[str, Any] = {}
    if family_of(model.config) is not None:
        tokenizer = load_tokenizer(tokenizer_path)
        reader, excluded = policy_reader(config, tokenizer), excluded_ids(model.config, tokenizer)
        sight = {"reader": reader, "excluded": excluded}
        if config.policy.vision.freeze:
            freeze_encoder(model)
    if config.policy.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if lora.rank > 0:
        model = add_lora(
            model,
            rank=lora.rank,
            alpha=lora.alpha,
            dropout=lora.dropout,
            target_modules=lora.target_modules,
            seed=stream_seed(config.run.seed, "lora"),
        )
    dtype = activation_dtype(config.policy.dtype, device)
    return CausalLMPolicy(
        model,
        sampling=SamplingParams.of(config.rollout),
        value_head=config.policy.value_head,
        pack_rows=config.learner.pack,
        autocast=None if dtype == torch.float32 else dtype,
        liger=config.policy.fused_logprobs == "liger",
        float32_logits=config.policy.logits_dtype == "float32",
        **sight,
    )
