"""Recorded frames as decisions: chunks of K actions that begin at every N-th frame of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlinf.rollouts.robot_data.dataset import DEMONSTRATED, DONE, REWARD, TERMINATED, DatasetError, RobotDataset
from rlinf.spaces import Arrays
from rlinf.types import Batch, ObservationInputs


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
    demonstrated = dataset.columns.get(DEMONSTRATED)
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


def transitions_batch(
    dataset: RobotDataset, observations: Arrays, finals: Arrays, actions: np.ndarray, chunk: int
) -> Batch:
    """Every transition of a dataset in one row, as a replay buffer takes it; rewards are those of whole chunks.

    ``actions`` [T, ...] are the policy's own, of the decisions of :func:`chunk_frames`. What follows the last action of
    an episode is in ``finals`` [E, ...]; without them the last transition of an episode that did not terminate is
    masked.
    """
    if REWARD not in dataset.columns:
        raise DatasetError(f"{dataset.path} has no rewards ({REWARD}), from which transitions are learned")
    rewards, lengths = dataset.columns[REWARD], dataset.lengths
    frames = chunk_frames(dataset, chunk)
    first, last = frames[:, 0], frames[:, -1]
    edges = np.cumsum(lengths)
    episode = np.searchsorted(edges, first, side="right")
    over = last == edges[episode] - 1
    ends = dataset.columns.get(TERMINATED, dataset.columns.get(DONE))
    terminated = over & ends[last] if ends is not None else np.zeros_like(over)
    sums = np.concatenate([[0.0], np.cumsum(rewards, dtype=np.float64)])
    following = {name: leaf[np.minimum(last + 1, len(rewards) - 1)] for name, leaf in observations.items()}
    known = finals.keys() == observations.keys()
    for name in observations if known else ():
        following[name][over] = finals[name][episode[over]]
    count = len(frames)
    return Batch(
        inputs=ObservationInputs(
            {name: torch.from_numpy(leaf[first])[None] for name, leaf in observations.items()},
            {name: torch.from_numpy(leaf)[None] for name, leaf in following.items()},
        ),
        actions=torch.from_numpy(actions)[None],
        mask=torch.from_numpy(~over | terminated | known)[None],
        rollout_logprobs=torch.zeros(1, count),
        rewards=torch.from_numpy((sums[last + 1] - sums[first]).astype(np.float32))[None],
        group_ids=torch.zeros(1, dtype=torch.int64),
        policy_version=torch.zeros(1, count, dtype=torch.int32),
        terminated=torch.from_numpy(terminated)[None],
        truncated=torch.from_numpy(over & ~terminated)[None],
    )
