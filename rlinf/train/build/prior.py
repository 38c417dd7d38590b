"""The recorded transitions of `algorithm.prior_data`, as the policy of a run takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlinf.config import Config
from rlinf.config.facts import prior_transitions
from rlinf.rollouts.robot_data.decisions import chunk_frames, transitions_batch
from rlinf.rollouts.robot_data.leaves import environment_actions, observation_arrays
from rlinf.rollouts.robot_data.reading import read_dataset

if TYPE_CHECKING:
    from rlinf.learners.off_policy.prior import PriorTransitions


def make_prior(config: Config, policy: Any, spaces: tuple[Any, Any]) -> PriorTransitions | None:
    """All transitions of the dataset; None without one. The policy's running statistics begin with theirs.

    Raises DatasetError for a dataset that does not fit the environment, or has no rewards.
    """
    from rlinf.learners.off_policy.prior import PriorTransitions

    algorithm, chunk = config.algorithm, config.env.num_action_chunks
    if algorithm.prior_data is None:
        return None
    found = read_dataset(algorithm.prior_data)
    chunks = environment_actions(found, spaces[1], algorithm.prior_rename)[chunk_frames(found, chunk)]
    observations, finals = (
        observation_arrays(found, spaces[0], algorithm.prior_rename, finals=after) for after in (False, True)
    )
    actions = policy.own_actions(chunks if chunk > 1 else chunks[:, 0])
    batch = transitions_batch(found, observations, finals, actions, chunk)
    policy.observe(batch.inputs, batch.mask)
    return PriorTransitions(batch, algorithm, prior_transitions(config))
