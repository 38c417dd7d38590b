"""Start states of evaluation episodes: which each begins in, and a name for it that other evaluations share."""

from __future__ import annotations

import json
from hashlib import blake2b

from rlinf.base.random_streams import numpy_generator, stream_seed
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.rollouts.vec_env.mixture import Mixture, task_options
from rlinf.schema import EnvConfig


def evaluation_tasks(seed: int, mixture: Mixture, episodes: int, states: int = 0) -> list[EpisodeTask]:
    """List the episodes of an evaluation: those of ``seed``, all tasks in turn.

    Of ``states`` numbered start states (`evaluation.reset_state_ids`; 0: there are none) every task plays each
    once before it plays one again, in an order of ``seed``'s own. More episodes begin with those of fewer.
    """
    starts = [stream_seed(seed, "evaluation", row) for row in range(episodes)]
    if states:
        tasks = max(1, len(mixture.names))
        passes = -(-episodes // (tasks * states))
        orders = [numpy_generator(seed, "evaluation states", number).permutation(states) for number in range(passes)]
        order = [int(state) for permuted in orders for state in permuted]
        # The wrapper `ResetStateIds` takes the remainder of a seed as the index of a state.
        starts = [start % (mixture.seeds // states) * states + order[row // tasks] for row, start in enumerate(starts)]
    return [EpisodeTask(row, row, start) for row, start in enumerate(mixture.in_turn(starts))]


def start_name(env: EnvConfig, mixture: Mixture, seed: int) -> str:
    """Compute a digest of the environment ``env``, its task and the start state that ``seed`` picks.

    It is equal in every evaluation that begins an episode there."""
    own, number = mixture.parted(seed)
    ids = env.reset_state_ids
    start = {"reset_state_id": ids[own % len(ids)]} if ids else {"seed": own}
    task = task_options(env, number) if env.tasks else env
    instruction = env.tasks[number].instruction if env.tasks else None
    text = json.dumps([env.id, task.kwargs, instruction, start], sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
