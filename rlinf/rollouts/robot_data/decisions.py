"""Recorded frames as decisions: chunks of K actions that begin at every N-th frame of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlinf.granularity import Granularity
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


def transitions_batch(
    dataset: RobotDataset, observations: Arrays, finals: Arrays, actions: np.ndarray, granularity: Granularity
) -> Batch:
    """Every decision of a dataset in one row, as a replay buffer takes it: T decisions, rewards of whole chunks.

    ``actions`` [T, ...] are the policy's own, of the decisions at every K-th frame. What follows the last action of an
    episode is in ``finals`` [E, ...]; without them the last transition of an episode that did not terminate is masked.
    """
    if REWARD not in dataset.columns:
        raise DatasetError(f"{dataset.path} has no rewards ({REWARD}), from which transitions are learned")
    chunk = granularity.actions
    ends = dataset.columns.get(TERMINATED, dataset.columns.get(DONE))
    rows: list[tuple[int, int, float, bool, bool, int]] = []
    for number, episode in enumerate(dataset.episodes()):
        for first in range(episode.start, episode.stop, chunk):
            last = min(first + chunk, episode.stop) - 1
            over = last == episode.stop - 1
            terminated = bool(over and ends is not None and ends[last])
            reward = float(dataset.columns[REWARD][first : last + 1].sum())
            rows.append((first, min(last + 1, dataset.num_frames - 1), reward, terminated, over, number))
    first, after, reward, terminated, over, number = (np.array(column) for column in zip(*rows, strict=True))
    following = {name: leaf[after] for name, leaf in observations.items()}
    known = bool(finals) and finals.keys() == observations.keys()
    for name in observations if known else ():
        following[name][over] = finals[name][number[over]]
    mask = ~over | terminated | known
    count = len(rows)
    return Batch(
        inputs=ObservationInputs(
            {name: torch.from_numpy(leaf[first])[None] for name, leaf in observations.items()},
            {name: torch.from_numpy(leaf)[None] for name, leaf in following.items()},
        ),
        actions=torch.from_numpy(actions)[None],
        mask=torch.from_numpy(mask)[None],
        rollout_logprobs=torch.zeros(1, count),
        rewards=torch.from_numpy(reward.astype(np.float32))[None],
        group_ids=torch.zeros(1, dtype=torch.int64),
        policy_version=torch.zeros(1, count, dtype=torch.int32),
        terminated=torch.from_numpy(terminated)[None],
        truncated=torch.from_numpy(over & ~terminated)[None],
    )
