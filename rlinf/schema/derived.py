"""The values that follow from a configuration, as components receive them: the words, and the types of a run's facts.

`config/derived.py` derives them; this module declares them, so that every layer can name their types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rlinf.schema.algorithm import AlgorithmConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.schema.env import DataConfig, EnvConfig, TaskConfig
from rlinf.schema.learner import SftConfig
from rlinf.schema.rollout import RolloutConfig, TransferBackend, WeightTransportName
from rlinf.schema.run import EvaluationConfig, RunConfig, Words
from rlinf.schema.teacher import TeacherConfig

OTHER_WORDS: Mapping[Words, str] = {
    "other_goal": "rlinf.rollouts.wrappers:OtherGoal",
    "blank": "rlinf.rollouts.wrappers:BlankWords",
}
"""The wrapper that changes an environment's instructions, by the entry of `evaluation.words`."""


KEPT_STATES_BYTES = 1 << 30
"""Keys and values that the `hf` sampler keeps for later turns of conversations, and as many for later weights."""


AGENT = "agent:"
"""What begins `env.id` where it names a function that is an agent."""


VERIFIERS = "verifiers:"
"""What begins `env.id` where it names a taskset of the package verifiers."""


INSTRUCTION = "{instruction}"
"""What stands for the instruction in `policy.vla.prompt`."""


Precision = Literal["float32", "bfloat16", "auto"]


def is_agent(env_id: str) -> bool:
    """Whether `env.id` names a program that calls the policy itself."""
    return env_id.startswith((AGENT, VERIFIERS))


@dataclass(frozen=True)
class TextEnv:
    """One of the environments of a text run."""

    name: str
    """What metrics call it; empty where it is the only one."""
    id: str
    splits: Mapping[str, Mapping[str, object]]
    """Constructor arguments of "train" and of "eval"."""
    max_turns: int
    weight: float = 1.0
    evaluation_size: int | None = None


def with_words(env: EnvConfig, words: Words | None) -> EnvConfig:
    """Return ``env`` with the instruction that an entry of `evaluation.words` describes; None: its own instruction."""
    return env if words is None else replace(env, wrappers=[OTHER_WORDS[words], *env.wrappers])


def task_name(task: TaskConfig, number: int) -> str:
    """Return the name of a task in metrics: its own, else the settings that distinguish it.

    >>> task_name(TaskConfig(kwargs={"task": "reach-v3"}), 0)
    'reach-v3'
    >>> task_name(TaskConfig(instruction="open the drawer"), 0), task_name(TaskConfig(), 3)
    ('open_the_drawer', '3')
    """
    name = task.name or "_".join(str(value) for value in task.kwargs.values()) or task.instruction or str(number)
    return name.replace(" ", "_").replace("/", "_")


def prompted(prompt: str | None, instruction: str) -> str:
    """Return what the language model of a `vla` policy reads.

    >>> prompted("In: What action should the robot take to {instruction}?", "open the drawer")
    'In: What action should the robot take to open the drawer?'
    """
    return instruction if prompt is None else prompt.replace(INSTRUCTION, instruction)


def gpus_per_learner(cluster: ClusterConfig, *, on_gpus: bool) -> float:
    """GPUs of each learner rank; ``on_gpus``: whether the machine has any."""
    configured = cluster.gpus_per_learner
    return float(on_gpus) if configured is None else configured


def activation_dtype(dtype: Precision, *, on_gpu: bool) -> Literal["float32", "bfloat16"]:
    """``dtype``, or for ``auto`` bfloat16 on a GPU and float32 elsewhere."""
    return dtype if dtype != "auto" else "bfloat16" if on_gpu else "float32"


RunKind = Literal["supervised", "text", "simulator"]
"""Training on files alone, a language model on tasks, or a policy in a simulator."""


@dataclass(frozen=True)
class DerivedConfig:
    """The facts of a run; the functions of the same names describe what each one means."""

    run_kind: RunKind
    run_dir: str
    vla: bool
    pi0: bool
    published: bool
    openvla: bool
    off_policy: bool
    offline: bool
    labelled: bool
    collects_episodes: bool
    holds_fragments: bool
    needs_values: bool
    needs_reference: bool
    keeps_reference: bool
    teacher: str | None
    text_envs: Sequence[TextEnv]
    max_turns: int
    recomputes_logprobs: bool
    conversation_tokens: int
    row_tokens: int
    training_env: EnvConfig
    evaluation_env: EnvConfig
    acts_in: Literal["worker", "sampler"]
    overlaps: bool
    """Whether samplers work while the learner does."""
    weight_transport: WeightTransportName | Literal["object_store"]
    """`object_store` within one process, which hands weights over as they are."""
    transfer_backend: TransferBackend | None
    """How tensors travel in vLLM's own weight transfer; None with another transport."""
    shares_gpus: bool
    driver_reads_tokens: bool
    """Whether tokens of a response are needed between samplers and learner."""
    continues_responses: bool
    gap_limits: Mapping[bool, float | None]
    """By whether the policy is on a GPU."""
    text_only_parts: Sequence[tuple[str, str, str]]
    """(key, message, fix) of the parts that do not go together with a vision-language model."""


@dataclass(frozen=True)
class RolloutSections:
    """The part of a run that rollouts read: its sections by their names, nothing of policy, learner or cluster."""

    run: RunConfig
    env: EnvConfig
    data: DataConfig
    rollout: RolloutConfig
    algorithm: AlgorithmConfig
    sft: SftConfig
    evaluation: EvaluationConfig
    teacher: TeacherConfig
    facts: DerivedConfig
