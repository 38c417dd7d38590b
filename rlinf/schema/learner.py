"""`learner`: who owns the weights, the optimiser, and how a batch is cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class OptimizerConfig:
    lr: float = 1e-6
    """Learning rate. Simulator policies learn with larger ones than pretrained language models."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW: decay of the running means of gradients and of their squares."""
    eps: float = 1e-8
    """AdamW: added to the denominator."""
    weight_decay: float = 0.0
    """AdamW: share of each weight that is subtracted per step, times `lr`."""
    grad_clip: float = 1.0
    """Largest norm of the global gradient; 0 is off."""
    critic_lr: float | None = None
    """Learning rate of the value head; null takes `lr`."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate develops after the warm-up: constant, or falling until `run.max_steps`."""
    warmup_steps: int = 0
    """Optimiser steps over which the learning rate rises to `lr`; the first one takes lr / warmup_steps. A training
    iteration has `algorithm.update_epochs` x `algorithm.num_minibatches` of them."""
    min_lr_ratio: float = 0.0
    """Learning rate at which `linear` and `cosine` end, as a share of `lr`."""


@dataclass(frozen=True)
class MegatronConfig:
    tensor_parallel: int = 1
    """Ranks that each layer is split over."""
    pipeline_parallel: int = 1
    """Stages of layers; where they do not divide the layers, the first and the last stage get fewer."""
    virtual_pipeline: int | None = None
    """Portions of layers per pipeline stage (interleaved schedule); null is one."""
    context_parallel: int = 1
    """Ranks that each sequence is split over."""
    expert_parallel: int = 1
    """Ranks that the experts are spread over."""
    sequence_parallel: bool = False
    """Split the tokens of norms and dropouts over the tensor-parallel ranks as well: less memory."""
    distributed_optimizer: bool = True
    """Spread the optimiser's state over the data-parallel ranks."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Activations that the backward pass computes again instead of keeping: none, those of attention, or all."""
    load_balance_coef: float = 0.0
    """Weight of a loss that evens out the load of experts; 0 is off, which keeps the gradient that of the policy."""

    def edge_stages(self, layers: int) -> tuple[int, int] | None:
        """Layers of the first and the last stage where stages are unequal; None where they are equal.

        >>> MegatronConfig(pipeline_parallel=4).edge_stages(94)
        (23, 23)
        """
        stages = self.pipeline_parallel
        if layers % stages == 0:
            return None
        rest = layers - -(-layers // stages) * (stages - 2)
        return rest // 2, rest - rest // 2


@dataclass(frozen=True)
class OffloadConfig:
    """Tensors that wait on the host while samplers answer, where learner and samplers share GPUs."""

    optimizer: bool = False
    """Move optimiser state and gradients to the host."""
    weights: bool = False
    """Move the model's weights to the host."""


@dataclass(frozen=True)
class LearnerConfig:
    backend: Literal["torch", "fsdp", "megatron"] = "torch"
    """`torch` keeps the whole model on every rank, `fsdp` shards it, `megatron` also splits layers and tokens."""
    num_workers: int = 1
    """Learner processes (ranks). With `torch`, each computes the gradient of its share of the rows."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    micro_batch_tokens: int = 16_384
    """Rows are packed into micro-batches of at most N tokens (text, vla) or decisions (actor_critic).

    Text on a CPU: fewer where half of the machine's memory does not hold them beside weights and optimiser. It has no
    influence on the result."""
    compare_float32_every: int = 0
    """Text, `backend: torch`, activations in bfloat16: every N iterations the gradient and the log-probabilities
    of one micro-batch are computed in float32 as well, and their distance is logged
    (`train/float32_gradient_distance`, ...); 0 is off."""
    pack: bool = True
    """Text: rows of a micro-batch lie end to end, without padding."""
    weight_bucket_mb: int = 2048
    """Weights travel to samplers and env workers in portions of at most N MiB (one parameter at least)."""
    recompute_logprobs: bool | None = None
    """vla, flow: the learner evaluates each batch before its update, in place of the log-probabilities that came with
    its actions. null: where there is a GPU, since actors may then compute on another device or with other rounding."""
    offload: OffloadConfig = field(default_factory=OffloadConfig)
    megatron: MegatronConfig = field(default_factory=MegatronConfig)


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning before the first step, on the conversations of `sft.data` or else on the environment's own
    demonstrations; alone: `rlinf sft`, which with `sft.data` needs no environment.

    Responses of a dataset are imitated as they are where `env.kwargs.response_field` names their column. Metrics of the
    warm start are `sft/loss` and so on, at negative steps: -1 is the last one before step 0.

    Simulators: imitation of what the environment's `expert_action` does, of another demonstrator (`sft.expert`), or of
    recorded episodes (`sft.dataset`)."""

    steps: int = 0
    """Supervised steps before reinforcement learning; 0 is off. Epochs of `sft.data` are
    steps * batch_size / rows: the run says how many at its start."""
    epochs: float | None = None
    """In place of `steps`: passes over the rows of `sft.data` that are not held out, rounded up to whole steps.
    The run keeps the `steps` that they come to."""
    data: str | None = None
    """Text: a JSONL, JSON or Parquet file, or a folder of them, of prompt/response pairs or chat `messages`; answers of
    the assistant are imitated to the letter, everything else is context. null: the environment's demonstrations."""
    loss: Literal["imitation", "dpo"] = "imitation"
    """Text: what is made of `sft.data`. `imitation` raises the likelihood of its answers; `dpo` (arXiv:2305.18290) that
    of a row's `chosen` answer against its `rejected` one, both measured against the policy before the first step."""
    dpo_beta: float = 0.1
    """DPO: how closely the policy is held to what it was: a small one lets it go further."""
    dpo_imitation: float = 0.0
    """DPO: weight of the chosen answers' cross-entropy per token in the loss (arXiv:2404.19733), 1 for example. Pairs
    that the policy did not write itself need it: DPO alone may lower the likelihood of both answers."""
    eval_data: str | None = None
    """Another such file that is never trained on: each evaluation reports its loss as `eval/sft_loss`."""
    eval_fraction: float = 0.0
    """Share of `sft.data` that is held out for `eval/sft_loss`, by a hash of the prompt."""
    max_tokens: int = 2048
    """Conversations of `sft.data` that are longer are left out and counted, never cut."""
    batch_size: int = 64
    """Responses, or decisions of a demonstrator, per step."""
    lr: float = 1e-3
    """Learning rate of the warm start: about 1e-5 for a pretrained model, 1e-3 for random weights."""
    warmup_steps: int = 10
    """Optimiser steps of the warm start (one each) over which its learning rate rises to `lr`; the first one takes
    lr / warmup_steps."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """How the warm start's learning rate develops after that; `linear` and `cosine` reach 0 at its last step."""
    evaluate_every: int = 0
    """Evaluate every N supervised steps too, as `evaluation` says: the curve that tells how long a warm start should
    be. 0: only before and after it."""
    max_tasks: int | None = None
    """Text: demonstrations are drawn from the first N training tasks; null takes all."""
    demonstrations: int = 256
    """Simulators: episodes of the demonstrator, recorded before the first step; those without success are left out."""
    perturbation: float = 0.0
    """Simulators: share of decisions at which a random action throws the demonstrator off; it is not imitated."""
    dagger_rounds: int = 0
    """Simulators: N times, evenly over the warm start, `demonstrations` more episodes are recorded, in which the policy
    as it then is makes `dagger_share` of the decisions: what the demonstrator does in the others, about the policy's
    mistakes, is imitated as well (DAgger)."""
    dagger_share: float = 0.5
    """Of the decisions of those episodes."""
    expert: str | None = None
    """Simulators: `module:name` of a demonstrator, a function that is called with the environment at the start of each
    episode and returns one from observations to actions. null: the environment's own `expert_action`."""
    dataset: str | None = None
    """Simulators: a LeRobotDataset v3 folder (`rlinf record` writes one), or an HDF5 file of LIBERO or ManiSkill, which
    is imitated instead of a demonstrator. Its statistics are kept with the run and with the exported policy."""
    dataset_stride: int = 1
    """Simulators: decisions are imitated from every N-th frame of an episode of `sft.dataset`;
    `env.num_action_chunks` takes those that a policy would meet, 1 takes all that there are."""
    rename: dict[str, str] = field(default_factory=dict)
    """Simulators: which column of `sft.dataset` a part of the observation, or `action`, is, where its name does not say
    it."""
    image_shift: int = 0
    """Simulators: pictures of imitated decisions are moved by up to N pixels in both directions, the edge repeated.
    With `policy.vla.center_crop` that is a random crop."""
    color_jitter: float = 0.0
    """Simulators: imitated pictures change brightness, contrast and saturation by up to this share (OpenVLA: 0.2)."""
    cache: str | None = None
    """A folder of finished warm starts: one that would be the same (data, policy, seed, versions, commit) is taken from
    there, and a new one is left there. Sweeps have one of their own."""
