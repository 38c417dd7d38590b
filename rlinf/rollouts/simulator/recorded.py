"""Episodes of a dataset as demonstrations: what `sft.dataset` imitates, and what `rlinf record` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf.base.random_streams import numpy_generator, stream_seed
from rlinf.data.spaces import empty_leaves, observation_leaves, text_of, write_observation
from rlinf.datasets.robot_data.dataset import (
    ACTION,
    DEMONSTRATED,
    DONE,
    REWARD,
    SUCCESS,
    TERMINATED,
    DatasetError,
    RecordedEpisode,
)
from rlinf.datasets.robot_data.decisions import decisions
from rlinf.datasets.robot_data.leaves import column_of, environment_actions, observation_arrays
from rlinf.datasets.robot_data.lerobot_writer import LeRobotWriter
from rlinf.datasets.robot_data.outcomes import positive_frames
from rlinf.datasets.robot_data.reading import read_dataset
from rlinf.models.policy_requests import PolicyFacts, PolicyRequest, RolloutCoroutine
from rlinf.rollouts.isolation.env import make_env_anywhere
from rlinf.rollouts.simulator.demonstrations import Demonstrations
from rlinf.rollouts.simulator.experts import ExpertStep, MakeExpert, NoDemonstrationsError, expert_steps
from rlinf.rollouts.vec_env.env_contract import unreported_success
from rlinf.rollouts.vec_env.mixture import Mixture
from rlinf.rollouts.vec_env.vec_env import close_quietly
from rlinf.schema import EnvConfig

_TRIES = 4
"""Episodes that are played for one that succeeds, before a demonstrator is given up."""


@dataclass(frozen=True)
class RecordedDemonstrator:
    """Reads a dataset instead of a `demonstrations.Demonstrator`."""

    path: str
    chunk: int
    stride: int
    rename: Mapping[str, str] = field(default_factory=dict)
    labelled: bool = False
    """Decisions are marked as better than expected or not, by `outcomes.positive_frames`."""

    def play(
        self, policy: PolicyFacts, both: tuple[spaces.Space, spaces.Space], episodes: Sequence[int]
    ) -> RolloutCoroutine[Demonstrations]:
        """Read the decisions of some episodes, for an environment with these two spaces."""
        if not episodes:
            return Demonstrations({}, np.zeros((0, 0)), np.zeros((0, self.chunk), bool), policy.granularity, 0, 0)
        dataset = read_dataset(self.path, episodes)
        taken = decisions(dataset, chunk=self.chunk, stride=self.stride)
        actions = environment_actions(dataset, both[1], self.rename)[taken.chunks]
        own = yield PolicyRequest("own_actions", (actions if self.chunk > 1 else actions[:, 0],))
        leaves = observation_arrays(dataset, both[0], self.rename)
        count = len(dataset.lengths)
        positive = positive_frames(self.path, episodes, dataset.lengths) if self.labelled else None
        return Demonstrations(
            {name: leaf[taken.frames] for name, leaf in leaves.items()},
            own,
            taken.executed,
            policy.granularity,
            count,
            count,
            policy.imitation_noise,
            positive=None if positive is None else positive[taken.frames],
        )


@dataclass(frozen=True)
class Recording:
    """The options of a recording."""

    env: EnvConfig
    episodes: int
    seed: int
    perturbation: float = 0.0
    keep_failures: bool = False
    to_the_end: bool = False
    """Episodes go on after their success, until the environment ends them."""
    videos: bool = False
    fps: int | None = None
    """None: the environment's `render_fps`, or 10."""
    task: str | None = None
    """The instruction where the environment gives none; None: its id."""


@dataclass(frozen=True)
class Recorded:
    """The result of a recording."""

    episodes: int
    frames: int
    solved: int
    tried: int
    interrupted: bool = False


def record(
    root: Path,
    recording: Recording,
    make_expert: Callable[[gymnasium.Env], MakeExpert],
    report_progress: Callable[[int, int], None] = lambda done, tried: None,
) -> Recorded:
    """Write episodes of a demonstrator or policy to a LeRobot dataset; ``report_progress`` gets (recorded,
    played) after each.

    Episodes start as the demonstrations of a warm start do: from the run's seed and their number. Failed ones are
    left out without ``keep_failures``. An interrupt while an episode is played keeps those before it, if there are any.
    Raises NoDemonstrationsError if too few succeed.
    """
    env, mixture = make_env_anywhere(recording.env), Mixture.of(recording.env)
    recorded = frames = solved = tried = 0
    interrupted = False
    info_keys: set[str] = set()
    try:
        fps = float(recording.fps or (env.metadata or {}).get("render_fps") or 10)
        with LeRobotWriter(root, fps=fps, videos=recording.videos, robot_type=recording.env.id) as writer:
            chosen = make_expert(env)
            while recorded < recording.episodes:
                if tried >= _TRIES * recording.episodes + _TRIES:
                    key = recording.env.success_key
                    why = unreported_success(key, info_keys) or f"info[{key!r}] is too seldom true"
                    raise NoDemonstrationsError(
                        f"{solved} of {tried} episodes succeeded, too few for {recording.episodes}: {why}. "
                        "--keep-failures records all"
                    )
                played = expert_steps(
                    env,
                    chosen,
                    recording.env,
                    start_seed=mixture.nth(stream_seed(recording.seed, "demonstration", tried), tried),
                    perturbation=recording.perturbation,
                    generator=numpy_generator(recording.seed, "demonstration", tried),
                    to_the_end=recording.to_the_end,
                )
                try:
                    steps = [step for step in played if isinstance(step, ExpertStep)]  # all: no policy decides
                except KeyboardInterrupt:
                    if not recorded:
                        raise
                    interrupted = True
                    break
                tried += 1
                info_keys.update(*(step.info_keys for step in steps))
                # A whole episode may have succeeded on its way; one that was stopped there, at its last step.
                success = any(step.success for step in (steps if recording.to_the_end else steps[-1:]))
                solved += success
                if success or recording.keep_failures:
                    writer.add(_episode(steps, env, recording))
                    recorded, frames = recorded + 1, frames + len(steps)
                report_progress(recorded, tried)
    finally:
        close_quietly(env)
    return Recorded(recorded, frames, solved, tried, interrupted)


def _episode(steps: Sequence[ExpertStep], env: gymnasium.Env, recording: Recording) -> RecordedEpisode:
    """Build the columns of an episode."""
    leaves = empty_leaves(env.observation_space, (len(steps),))
    for row, step in enumerate(steps):
        write_observation(leaves, row, step.observation)
    instruction, columns = recording.task, {}
    for leaf, space in observation_leaves(env.observation_space).items():
        name = column_of(leaf, space)
        if name is None:
            if instruction is None:
                instruction = text_of(leaves[leaf][0])
            continue
        values = leaves[leaf]
        if isinstance(space, spaces.Box) and len(space.shape) == 3 and space.shape[0] == 3 != space.shape[2]:
            values = np.moveaxis(values, 1, -1)  # channels last, as pictures are kept
        if name in columns:
            raise DatasetError(f"two parts of the observation would be the column {name}: rename one by a wrapper")
        columns[name] = values
    last = np.arange(len(steps)) == len(steps) - 1
    columns |= {
        ACTION: np.stack([step.action for step in steps]),
        REWARD: np.array([step.reward for step in steps], dtype=np.float32),
        DONE: last,
        TERMINATED: np.array([step.terminated for step in steps]),
        SUCCESS: np.array([step.success for step in steps]),
    }
    if recording.perturbation:
        columns[DEMONSTRATED] = np.array([step.demonstrated for step in steps])
    return RecordedEpisode(columns, recording.env.id if instruction is None else instruction)


def policy_as_expert(policy: Any, *, deterministic: bool, generator: np.random.Generator) -> MakeExpert:
    """Wrap a trained policy (`rlinf.Policy`) as a demonstrator; of a chunk, one action after the other."""

    def begin(env: gymnasium.Env) -> Callable[[Any], Any]:
        policy.reset()
        waiting: list[Any] = []

        def act(observation: Any) -> Any:
            if not waiting:
                decided = policy.act(observation, deterministic=deterministic, rng=generator)
                chunked = np.ndim(decided) > len(env.action_space.shape or ())
                waiting.extend(decided if chunked else [decided])
            return waiting.pop(0)

        return act

    return begin
