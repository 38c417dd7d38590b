"""Recorded frames as decisions: chunks of K actions that begin at every N-th frame of an episode."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch

from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.spaces import Arrays
from rlinf.datasets.robot_data.dataset import (
    DEMONSTRATED,
    DONE,
    REWARD,
    SUCCESS,
    TERMINATED,
    TRUNCATED,
    DatasetError,
    RobotDataset,
)
from rlinf.datasets.robot_data.leaves import require_finite


@dataclass(frozen=True)
class Decisions:
    """n decisions of a dataset."""

    frames: np.ndarray
    """[n] int64: the frame that each is made at."""
    chunks: np.ndarray
    """[n, K] int64: the frames of its actions; after the episode's end the last one again."""
    executed: np.ndarray
    """[n, K] bool: actions of the episode, up to the first that is not to be imitated."""


def decisions(dataset: RobotDataset, *, chunk: int, stride: int) -> Decisions:
    """Decisions at every ``stride``-th frame of each episode that is not the random action of a perturbation."""
    demonstrated = None
    if DEMONSTRATED in dataset.columns:
        demonstrated = dataset.flags(DEMONSTRATED, "which marks what is to be imitated")
    frames, chunks, executed = [], [], []
    for episode in dataset.episodes():
        for first in range(episode.start, episode.stop, stride):
            count = min(chunk, episode.stop - first)
            if demonstrated is not None:
                random = np.nonzero(~demonstrated[first : first + count])[0]
                count = int(random[0]) if len(random) else count
            if count:
                frames.append(first)
                chunks.append(np.minimum(np.arange(first, first + chunk), first + count - 1))
                executed.append(np.arange(chunk) < count)
    if not frames:
        raise DatasetError(f"{dataset.path} has no frame to imitate")
    return Decisions(np.array(frames), np.stack(chunks), np.stack(executed))


def chunk_frames(dataset: RobotDataset, chunk: int) -> np.ndarray:
    """[T, K] int64: the frames of the actions of every transition; after an episode's end the last one again."""
    rows = [
        np.minimum(np.arange(first, first + chunk), episode.stop - 1)
        for episode in dataset.episodes()
        for first in range(episode.start, episode.stop, chunk)
    ]
    return np.stack(rows)


def terminal_frames(dataset: RobotDataset) -> tuple[np.ndarray, str | None]:
    """Whether a terminal state follows each frame [N] bool, and the column that decides; None: no column does.

    `next.done` marks an episode that is over, for whatever reason. So the first of these that the dataset has
    decides: `next.terminated`; `next.done` without `next.truncated`; with `next.success`; `next.done` alone,
    which does not distinguish a terminal state from a time limit.
    """
    over = np.zeros(dataset.num_frames, dtype=bool)
    over[np.cumsum(dataset.lengths) - 1] = True
    deciding = deciding_column({*dataset.columns, *dataset.unusable})
    if deciding is None:
        return np.zeros_like(over), None
    used_for = "which shows how episodes end"
    flags = dataset.flags(deciding, used_for)
    if deciding == TERMINATED:
        return over & flags, deciding
    done = over & dataset.flags(DONE, used_for) if DONE in dataset.columns else over
    return done & (~flags if deciding == TRUNCATED else flags), deciding


def deciding_column(names: Collection[str]) -> str | None:
    """Return which of a dataset's columns marks where terminal states are (:func:`terminal_frames`)."""
    return next((name for name in (TERMINATED, TRUNCATED, SUCCESS, DONE) if name in names), None)


def transitions_batch(
    dataset: RobotDataset, observations: Arrays, finals: Arrays, actions: np.ndarray, chunk: int
) -> Batch:
    """Every transition of a dataset in one row, as a replay buffer takes it; rewards are those of whole chunks.

    ``actions`` [T, ...] are the policy's own, of the decisions of :func:`chunk_frames`. What follows the last action of
    an episode is in ``finals`` [E, ...]; without them the last transition of an episode that did not terminate
    (:func:`terminal_frames`) is masked.
    """
    rewards, lengths = dataset.column(REWARD, "the rewards that transitions are learned from"), dataset.lengths
    require_finite(rewards, REWARD, dataset)
    frames = chunk_frames(dataset, chunk)
    first, last = frames[:, 0], frames[:, -1]
    edges = np.cumsum(lengths)
    episode = np.searchsorted(edges, first, side="right")
    over = last == edges[episode] - 1
    terminated = over & terminal_frames(dataset)[0][last]
    sums = np.concatenate([[0.0], np.cumsum(rewards, dtype=np.float64)])
    following = {name: leaf[np.minimum(last + 1, len(rewards) - 1)] for name, leaf in observations.items()}
    known = finals.keys() == observations.keys()
    for name in observations if known else ():
        following[name][over] = finals[name][episode[over]]
    count, mask = len(frames), ~over | terminated | known
    if not mask.any():
        raise DatasetError(
            f"{dataset.path} has no transition to learn from: all its episodes are one decision long, and none is "
            f"known to have terminated ({TERMINATED}, {SUCCESS}). What followed it was not recorded"
        )
    return Batch(
        inputs=ObservationInputs(
            {name: torch.from_numpy(leaf[first])[None] for name, leaf in observations.items()},
            {name: torch.from_numpy(leaf)[None] for name, leaf in following.items()},
        ),
        actions=torch.from_numpy(actions)[None],
        mask=torch.from_numpy(mask)[None],
        rollout_logprobs=torch.zeros(1, count),
        rewards=torch.from_numpy((sums[last + 1] - sums[first]).astype(np.float32))[None],
        group_ids=torch.zeros(1, dtype=torch.int64),
        policy_version=torch.zeros(1, count, dtype=torch.int32),
        terminated=torch.from_numpy(terminated)[None],
        truncated=torch.from_numpy(over & ~terminated)[None],
    )
