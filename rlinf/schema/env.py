"""`env` and `data`: which environment, how many of it, and the form of its prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlinf.schema.key import SIMULATOR, TEXT, key, section

Vectorization = Literal["auto", "native", "sync", "async"]


@dataclass(frozen=True)
class TaskConfig:
    """One of several tasks, or text environments, that a run trains on."""

    name: str = ""
    """What metrics call it; empty: the values of its `kwargs`, or for text the last part of its `id`."""
    id: str = ""
    """Text: the environment; empty: `env.id`, with other `kwargs`."""
    kwargs: dict[str, object] = key({})
    """Arguments of the constructor in addition to `env.kwargs`."""
    weight: float = 1.0
    """Its share of training episodes, or groups of responses, and of demonstrations is this over the sum of all."""
    max_turns: int | None = None
    """Text: responses of the policy in one of its conversations; null: `env.max_turns`."""
    evaluation_kwargs: dict[str, object] = key({})
    """Text: constructor arguments of its evaluation that differ from `kwargs`; `evaluation.env_kwargs` is for all."""
    evaluation_size: int | None = None
    """Text: held-out tasks of an evaluation; null: its part of `evaluation.size`, equally many for each."""
    instruction: str | None = None
    """Simulators: the words for it, as a Text entry `instruction` of the observation, if the environment has no words
    of its own."""


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and how many of it."""

    id: str = key("", example="rlinf_envs:rlinf/Math-v0")
    """Any gymnasium id, `module:Id` included (`CartPole-v1`, `rlinf_envs:rlinf/Math-v0`).

    Text: `module:Class` names a class too, which nothing needs to register."""
    kwargs: dict[str, object] = key({}, example={"path": "train.jsonl", "answer_format": "boxed"})
    """Keyword arguments of the environment's constructor."""
    num_workers: int = key(1, at_least=1)
    """Env workers: the processes that run environments; rows are split over them by whole groups."""
    num_envs: int = key(8, at_least=1, read_by=SIMULATOR)
    """Simulators: environments stepped side by side, over all workers."""
    vectorization: Vectorization = key("auto", read_by=SIMULATOR)
    """How environments are stepped together; `auto` measures what is fastest. The result does not depend on it."""
    wrappers: list[str | dict[str, dict[str, object]]] = key(
        [], example=["FlattenObservation", {"RescaleAction": {"min_action": -1, "max_action": 1}}], read_by=SIMULATOR
    )
    """Gymnasium wrappers by name, applied in order: `FlattenObservation`, `module:Class`, or with arguments:
    `{RescaleAction: {min_action: -1, max_action: 1}}`."""
    tasks: list[TaskConfig] = key(
        [], example=[{"kwargs": {"task": "touch"}}, {"kwargs": {"task": "push"}, "weight": 2}]
    )
    """Several tasks in one run. `env: [...]` is short for `env: {tasks: [...]}`.

    Simulators: each an entry of `name`, `kwargs`, `weight` and `instruction`. Their observations and actions must be
    alike. Every rollout has the share of each that its weight names, rounded up or down, and a group of equal starts
    is of one task; evaluations play all tasks equally often and report each (`eval/success_once/NAME`).

    Text: any environments, with rewards (`kwargs`), turns and evaluation of their own. After any number of groups each
    has had its share of them to within one group; metrics report each (`rollout/accuracy/NAME`,
    `eval/accuracy/NAME`)."""
    reset_state_ids: list[int] = key([], example=[0, 1, 2], read_by=SIMULATOR)
    """Simulators: start training episodes from these numbered states, picked by the episode's seed and passed as
    `reset(options={reset_state_id: N})` (Meta-World, LIBERO, Tabletop); empty: the seed alone picks the start."""
    isolation: Literal["none", "process"] = key("none", read_by=SIMULATOR)
    """`process` runs environments in an interpreter of their own, behind a socket: for pins that clash with ours."""
    python: str | None = key(None, example="venvs/robosuite/bin/python")
    """With `isolation: process`: the interpreter of their virtual environment (null: the one that trains).

    Of `env.id: verifiers:NAME`: an interpreter that has the package verifiers (`make venvs/verifiers`)."""
    max_episode_steps: int | None = key(None, at_least=1, example=500, read_by=SIMULATOR)
    """Truncate episodes after N steps; null keeps the environment's own limit. Whole episodes (of
    adv_type: grpo, of evaluations) are cut after 10,000 decisions in any case."""
    max_turns: int = key(1, at_least=1, example=4, read_by=TEXT)
    """Text: responses of the policy within one conversation; the environment answers all but the last of them."""
    num_tasks: int = key(10_000, at_least=1, example=500, read_by=TEXT)
    """Text: start seeds of an ordinary `gymnasium.Env` that does not declare how many tasks it has. Evaluation draws
    from other seeds."""
    auto_reset: bool = key(True, read_by=SIMULATOR)
    """Simulators: a finished env restarts at once, so that every step of a rollout counts."""
    ignore_terminations: bool = key(False, read_by=SIMULATOR)
    """true: termination does not end an episode, only truncation does."""
    num_action_chunks: int = key(1, at_least=1, example=8, read_by=SIMULATOR)
    """Actions per decision; a chunk stops at an episode's end."""
    normalize_observations: bool = key(False, read_by=SIMULATOR)
    """Subtract the running mean and divide by the running standard deviation (checkpointed)."""
    normalize_rewards: bool = key(False, read_by=SIMULATOR)
    """Divide rewards by the running standard deviation of the discounted return (checkpointed)."""
    normalize_from: str | None = key(None, example="vecnormalize.pkl", read_by=SIMULATOR)
    """Statistics that normalisation begins with: a file of Stable-Baselines3's VecNormalize. null: none."""
    frame_stack: int = key(1, at_least=1, example=4, read_by=SIMULATOR)
    """Give the policy the last N observations, stacked."""
    frame_padding: Literal["reset", "zero"] = key("reset", read_by=SIMULATOR)
    """With `frame_stack`: what stands for observations before an episode's first, the first one or zeros (as in
    Stable-Baselines3)."""
    action_mask: str | None = key(None, example="action_mask", read_by=SIMULATOR)
    """Name of the mask of legal discrete actions: an entry of a Dict observation or of `info`, or a method of the
    environment (`action_masks`, as sb3-contrib reads). Policies never take another action."""
    success_key: str = key("success", example="is_success")
    """Entry of the environment's `info` that is true once the task is solved (`is_success` in gymnasium-robotics).

    Text: of an ordinary `gymnasium.Env`; if the `info` has no such entry, a positive return is a success."""
    step_timeout_s: float = key(60.0, at_least=0)
    """A step or reset that takes longer is a hang: the env is restarted and its episode, or conversation, is dropped.

    0 sets no limit; on Ray, simulators then step in the env worker's own process, which spares cheap ones a message."""
    max_failures: int = key(100, at_least=0)
    """Training stops with a clear message when more episodes, or conversations, than this failed."""
    start_timeout_s: float = field(default=180.0, compare=False, metadata={"key": False})
    # No key of the file: `cluster.start_timeout_s`, which `facts.training_env` puts here for constructors.


@dataclass(frozen=True)
class PoolConfig:
    """Adaptive pools: tasks rest that the policy always solves, or never. Both null: all tasks are visited alike."""

    solved: float | None = key(None, at_least=0, at_most=1, example=1.0)
    """A task rests when at least this share of its group was solved; 1 rests those that every response solved."""
    unsolved: float | None = key(None, at_least=0, at_most=1, example=0.0)
    """A task rests when at most this share of its group was solved; 0 rests those that no response solved."""
    rest: int = key(0, at_least=0, example=4)
    """How many visits of the task order a resting task is passed over; 0: it is dropped, and comes back only when its
    environment has no other task left."""

    @property
    def adaptive(self) -> bool:
        """Whether any task can rest."""
        return self.solved is not None or self.unsolved is not None


@dataclass(frozen=True)
class CurriculumConfig:
    """Easy tasks first. A run begins with the easiest tasks alone and draws from ever harder ones as it goes on."""

    by: str | None = key(None, example="solution_lines")
    """What makes a task hard; null: no curriculum, all tasks are drawn alike.

    `solution_lines`, `solution_length` (characters of the worked solution) or `question_length`; otherwise a number
    that the rows of the dataset have (`level`; of reasoning-gym also what its metadata calls a difficulty). A minus
    sign before it turns the order round: `-pass_rate`."""
    start: float = key(0.25, above=0, at_most=1, example=0.4)
    """Share of the tasks, the easiest ones, that a run begins with."""
    steps: int = key(0, at_least=0, example=20)
    """Training iterations after which all tasks are drawn; until then the share grows fast at first, then slowly
    (arXiv:1903.09848)."""
    accuracy: float | None = key(None, at_least=0, at_most=1, example=0.6)
    """Instead of `steps`: the share grows by `start` after each iteration in which at least this share of all
    responses was correct."""
    warm_start: float = key(0.0, at_least=0, at_most=1, example=0.5)
    """Share of the warm start after which its demonstrations are of all tasks, too: 0.5 begins with easy ones and opens
    the last ones in the middle; 0 demonstrates all alike from the beginning. `sft.data` is read in its own order."""


@dataclass(frozen=True)
class DataConfig:
    """The prompts: how long they may be, in which order they come, and how they are rendered."""

    max_prompt_length: int = key(512, at_least=1)
    """Longest prompt in tokens. Longer rows of a dataset are dropped and counted, never cut."""
    shuffle: bool = True
    """Visit the tasks of the dataset in a fresh order each epoch (from the run's seed)."""
    pool: PoolConfig = section(PoolConfig)
    curriculum: CurriculumConfig = section(CurriculumConfig)
    chat_template: Literal["auto", "always", "never"] = "auto"
    """Render prompts with the tokenizer's chat template; `auto` does so where the tokenizer has one."""
    system_prompt: str | None = key(None, example="Think step by step.")
    """The system message of the chat template."""
    chat_template_kwargs: dict[str, object] = key({}, example={"enable_thinking": False})
    """Further variables of the chat template, such as `{enable_thinking: false}` for Qwen3."""
    instruction: Literal["auto", "always", "never"] = "auto"
    """Close the first prompt with what the environment requires of a response: the form of `answer_format`, its tools.

    A sentence is left out if the prompt, its examples or the system prompt show that form already. `auto` adds it
    if a chat template is applied: other models, small ones made here above all, don't follow instructions."""
