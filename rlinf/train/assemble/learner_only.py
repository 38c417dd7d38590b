"""The processes of a run on saved batches: the ranks of the learner alone."""

from __future__ import annotations

from pathlib import Path

from rlinf.algorithms.prepare import OnPolicy, Preparation
from rlinf.base.errors import UserError
from rlinf.cluster import Cluster
from rlinf.config import Config
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.graph import Graph
from rlinf.train.saved_batches import BatchFolder, NoRollout
from rlinf.train.workers.learner_pool import LearnerPool


def build_learner_graph(batches: BatchFolder, setup: ResolvedRun, cluster: Cluster, folder: Path) -> Graph:
    """Start the learner of a run of ``setup`` in ``folder``, which has the tokenizer; nothing collects or evaluates.

    :raises UserError: the run trains a reward on fresh responses, which it cannot collect.
    """
    config = setup.config
    if config.reward_model.supervision != "none":
        raise UserError("--from-batches: reward_model trains on fresh responses, and nothing collects them here")
    if config.facts.run_kind == "text":
        from rlinf.train.assemble.text_learner import start_learner

        learner = start_learner(setup, cluster, str(folder / "tokenizer"))
    else:
        from rlinf.models.actor_critic.export import load_spaces
        from rlinf.train.assemble import simulator

        learner = simulator.start_learner(setup, cluster, load_spaces(batches.policy), folder)
    preparation = Preparation() if config.facts.off_policy else _on_policy(config, learner, folder)
    return Graph(
        rollout=NoRollout(),
        learner=learner,
        preparation=preparation,
        send_weights=lambda _version: {},
        evaluate=None,
        gap_limit=config.facts.gap_limits[setup.devices.learner > 0],
        overlaps=config.facts.overlaps,
        notes={**setup.notes, **batches.notes(config)},
    )


def _on_policy(config: Config, learner: LearnerPool, folder: Path) -> OnPolicy:
    """Make the preparation of the run's own kind; rows of text are prepared by the ranks that have them."""
    staleness = config.rollout.staleness
    if config.facts.run_kind != "text":
        return OnPolicy(config.algorithm, config.facts, learner, staleness=staleness)
    from rlinf.models.loading import load_tokenizer
    from rlinf.train.assemble.text import oldest_tokens
    from rlinf.train.teacher import connect_teacher

    teacher, _ = connect_teacher(config, learner, load_tokenizer(str(folder / "tokenizer")))
    oldest, seed = oldest_tokens(config), config.run.seed
    return OnPolicy(config.algorithm, config.facts, learner, teacher, ranks=learner, staleness=oldest, seed=seed)
