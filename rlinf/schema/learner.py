"""`learner`: who owns the weights, the optimiser, and how a batch is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import LANGUAGE, SIMULATOR, TEXT, VLA, key, section


@dataclass(frozen=True)
class OptimizerConfig:
    lr: float = key(
        1e-6, at_least=0, example=3e-06, for_runs={"simulators, unless the language model is pretrained": 0.0003}
    )
    """Learning rate. Simulator policies learn with larger ones than pretrained language models."""
    name: Literal["adamw", "rmsprop", "rmsprop_tf"] = "adamw"
    """`rmsprop` divides by the root of the mean squared gradient, which begins at 0 and is not corrected for it: the
    first steps are large. `rmsprop_tf` begins at 1, with `eps` inside the root (TensorFlow). Of `backend: torch`."""
    smoothing: float = key(0.99, at_least=0, example=0.95)
    """rmsprop, rmsprop_tf: decay of the running mean of squared gradients."""
    betas: tuple[float, float] = key((0.9, 0.999), example=[0.9, 0.95])
    """AdamW: decay of the running means of gradients and of their squares."""
    eps: float = key(1e-8, above=0)
    """Added to the denominator."""
    weight_decay: float = key(0.0, at_least=0, example=0.01)
    """AdamW: share of each weight that is subtracted per step, times `lr`."""
    grad_clip: float = key(1.0, at_least=0, example=0.5)
    """Largest norm of the global gradient; 0 is off."""
    critic_lr: float | None = key(None, at_least=0, example=1e-05)
    """Learning rate of the value head; null takes `lr`."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate develops after the warm-up: constant, or falling until `run.max_steps`."""
    warmup_steps: int = key(0, at_least=0)
    """Optimiser steps over which the learning rate rises to `lr`; the first one takes lr / warmup_steps. A training
    iteration has `algorithm.update_epochs` x `algorithm.num_minibatches` of them."""
    min_lr_ratio: float = key(0.0, at_least=0, at_most=1, example=0.1)
    """Learning rate at which `linear` and `cosine` end, as a share of `lr`."""


@dataclass(frozen=True)
class MegatronConfig:
    tensor_parallel: int = key(1, at_least=1)
    """Ranks that each layer is split over."""
    pipeline_parallel: int = key(1, at_least=1)
    """Stages of layers; where they do not divide the layers, the first and the last stage get fewer."""
    virtual_pipeline: int | None = key(None, at_least=1, example=2)
    """Portions of layers per pipeline stage (interleaved schedule); null is one."""
    context_parallel: int = key(1, at_least=1)
    """Ranks that each sequence is split over."""
    expert_parallel: int = key(1, at_least=1)
    """Ranks that the experts are spread over."""
    sequence_parallel: bool = False
    """Split the tokens of norms and dropouts over the tensor-parallel ranks as well: less memory."""
    distributed_optimizer: bool = True
    """Spread the optimiser's state over the data-parallel ranks."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Activations that the backward pass computes again instead of keeping: none, those of attention, or all."""
    load_balance_coef: float = key(0.0, at_least=0, example=0.001)
    """Weight of a loss that evens out the load of experts; 0 is off, which keeps the gradient that of the policy."""

    def edge_stages(self, layers: int) -> tuple[int, int] | None:
        """Return the layers of the first and the last stage if stages are unequal; None if they are equal.

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
    """Tensors that wait on the host while samplers answer, if learner and samplers share GPUs."""

    optimizer: bool = False
    """Move optimiser state and gradients to the host."""
    weights: bool = False
    """Move the model's weights to the host."""


@dataclass(frozen=True)
class LearnerConfig:
    backend: Literal["torch", "fsdp", "megatron"] = "torch"
    """`torch` keeps the whole model on every rank, `fsdp` shards it, `megatron` also splits layers and tokens."""
    num_workers: int = key(1, at_least=1)
    """Learner processes (ranks). With `torch`, each computes the gradient of its share of the rows."""
    optimizer: OptimizerConfig = section(OptimizerConfig)
    micro_batch_tokens: int = key(16_384, at_least=1)
    """Rows are packed into micro-batches of at most N tokens (text, vla) or decisions (actor_critic).

    Text on a CPU: fewer if half of the machine's memory does not hold them with weights and optimiser. It has no
    influence on the result."""
    compare_float32_every: int = key(0, at_least=0, read_by=TEXT)
    """Text, `backend: torch`, activations in bfloat16: every N iterations the gradient and the log-probabilities
    of one micro-batch are computed in float32 as well, and their distance is logged
    (`train/float32_gradient_distance`, ...); 0 is off."""
    pack: bool = key(True, read_by=TEXT)
    """Text: rows of a micro-batch lie end to end, without padding."""
    weight_bucket_mb: int = key(2048, at_least=1)
    """Weights travel to samplers and env workers in portions of at most N MiB (one parameter at least)."""
    recompute_logprobs: bool | None = key(None, example=True, read_by=VLA)
    """vla, flow: the learner evaluates each batch before its update, instead of the log-probabilities that came with
    its actions. null: where there is a GPU, since actors may then compute on another device or with other rounding."""
    offload: OffloadConfig = section(OffloadConfig, read_by=LANGUAGE)
    megatron: MegatronConfig = section(MegatronConfig)


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning before the first step, on the conversations of `sft.data` or else on the environment's
    own demonstrations; alone: `rlinf sft`, which with `sft.data` needs no environment.

    Responses of a dataset are imitated as they are if `env.kwargs.response_field` names their column. Metrics of
    the warm start are `sft/loss` and so on, at negative steps: -1 is the last one before step 0.

    Simulators: imitation of what the environment's `expert_action` does, of another demonstrator (`sft.expert`),
    or of recorded episodes (`sft.dataset`)."""

    steps: int = key(0, at_least=0)
    """Supervised steps before reinforcement learning; 0 is off. Epochs of `sft.data` are
    steps * batch_size / rows: the run prints how many at its start."""
    epochs: float | None = key(None, above=0, example=2.0)
    """Instead of `steps`: passes over the rows of `sft.data` that are not held out, rounded up to whole steps.
    The run keeps the `steps` that they come to."""
    data: str | None = key(None, example="demonstrations.jsonl", read_by=TEXT)
    """Text: a JSONL, JSON or Parquet file, or a folder of them (of its split for training), of prompt/response pairs or
    chat `messages`; answers of the assistant are imitated to the letter, everything else is context. An end mark behind
    an answer is the one that it gets, and one inside is taught as letters. null: the environment's demonstrations."""
    loss: Literal["imitation", "dpo"] = key("imitation", read_by=TEXT)
    """Text: what is made of `sft.data`. `imitation` raises the likelihood of its answers; `dpo` (arXiv:2305.18290) that
    of a row's `chosen` answer against its `rejected` one, both measured against the policy before the first step."""
    dpo_beta: float = key(0.1, at_least=0, example=0.05, read_by=TEXT)
    """DPO: how closely the policy is held to what it was: a small one lets it go further."""
    dpo_imitation: float = key(0.0, at_least=0, example=1.0, read_by=TEXT)
    """DPO: weight of the chosen answers' cross-entropy per token in the loss (arXiv:2404.19733), 1 for example. Pairs
    that the policy did not write itself need it: DPO alone may lower the likelihood of both answers."""
    eval_data: str | None = key(None, example="held_out.jsonl", read_by=TEXT)
    """Another such file, or a folder's split for evaluation, that is never trained on: each evaluation reports its loss
    as `eval/sft_loss`."""
    eval_fraction: float = key(0.0, at_least=0, example=0.02, read_by=TEXT)
    """Share of `sft.data` that is held out for `eval/sft_loss`, by a hash of the prompt."""
    max_tokens: int = key(2048, at_least=2, read_by=TEXT)
    """Conversations of `sft.data` that are longer are left out and counted, never cut."""
    batch_size: int = key(64, at_least=1)
    """Responses, or decisions of a demonstrator, per step."""
    lr: float = key(1e-3, at_least=0, example=1e-05, for_runs={"pretrained language models": 1e-05})
    """Learning rate of the warm start: about 1e-5 for a pretrained model, 1e-3 for random weights."""
    warmup_steps: int = key(10, at_least=0)
    """Optimiser steps of the warm start (one each) over which its learning rate rises to `lr`; the first one takes
    lr / warmup_steps."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """How the warm start's learning rate develops after that; `linear` and `cosine` reach 0 at its last step."""
    evaluate_every: int = key(0, at_least=0, example=50)
    """Evaluate every N supervised steps too, as set by `evaluation`: the curve shows how long a warm start should
    be. 0: only before and after it."""
    max_tasks: int | None = key(None, at_least=1, example=1000, read_by=TEXT)
    """Text: demonstrations are drawn from the first N training tasks; null takes all."""
    hinted: float = key(0.0, at_least=0, at_most=1, example=0.5, read_by=TEXT)
    """Text: share of demonstrations that follow the teacher's prompt (`teacher.hint`, without `{solution}`) instead of
    the policy's. A model from random weights learns to read hints so; a pretrained one needs none."""
    demonstrations: int = key(256, at_least=1, read_by=SIMULATOR)
    """Simulators: episodes of the demonstrator, recorded before the first step; those without success are left out."""
    perturbation: float = key(0.0, at_least=0, at_most=0.9, example=0.1, read_by=SIMULATOR)
    """Simulators: share of decisions at which a random action throws the demonstrator off; it is not imitated."""
    dagger_rounds: int = key(0, at_least=0, read_by=SIMULATOR)
    """Simulators: N times, evenly over the warm start, `demonstrations` more episodes are recorded, in which the policy
    as it then is makes `dagger_share` of the decisions: what the demonstrator does in the others, about the policy's
    mistakes, is imitated as well (DAgger)."""
    dagger_share: float = key(0.5, at_least=0, at_most=0.9, read_by=SIMULATOR)
    """Of the decisions of those episodes."""
    gate: str | None = key(None, example="rlinf_envs.sim.tabletop.gate:astray", read_by=SIMULATOR)
    """`module:name` of what decides in those episodes when the demonstrator takes over, instead of `dagger_share`
    (HG-DAgger, arXiv:1810.02890): called with the environment at the start of each episode, it returns a function from
    observations to whether the next decision is the demonstrator's. null: by chance."""
    expert: str | None = key(None, example="rlinf_envs.sim.fetch:reach_expert", read_by=SIMULATOR)
    """Simulators: `module:name` of a demonstrator, a function that is called with the environment at the start of each
    episode and returns one from observations to actions. null: the environment's own `expert_action`."""
    dataset: str | None = key(None, example="datasets/tabletop", read_by=SIMULATOR)
    """Simulators: a LeRobotDataset v3 folder (`rlinf record` writes one), a Minari dataset (the folder with `data` in
    it), or an HDF5 file of LIBERO or ManiSkill, which is imitated instead of a demonstrator. `FILE.hdf5#train` takes
    the episodes of the file's `mask/train` alone. Its statistics are kept with the run and the exported policy."""
    dataset_stride: int = key(1, at_least=1, example=4, read_by=SIMULATOR)
    """Simulators: decisions are imitated from every N-th frame of an episode of `sft.dataset`;
    `env.num_action_chunks` takes those that a policy would meet, 1 takes all that there are."""
    rename: dict[str, str] = key({}, example={"observation.image": "observation.images.front"}, read_by=SIMULATOR)
    """Simulators: parts of the observation, or `action` -> their columns of `sft.dataset`, if the names differ."""
    image_shift: int = key(0, at_least=0, example=5, read_by=SIMULATOR)
    """Simulators: pictures of imitated decisions are moved by up to N pixels in both directions, the edge repeated.
    With `policy.vla.center_crop` that is a random crop."""
    color_jitter: float = key(0.0, at_least=0, at_most=1, example=0.2, read_by=SIMULATOR)
    """Simulators: imitated pictures change brightness, contrast and saturation by up to this share (OpenVLA: 0.2)."""
    cache: str | None = key(None, example="runs/warm_starts")
    """A folder of finished warm starts: one that would be the same (data, policy, seed, versions, commit) is taken from
    there, and a new one is left there. Sweeps have one of their own."""
