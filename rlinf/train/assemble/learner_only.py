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
    learner = (
        _text_learner(setup, cluster, folder) if _is_text(config) else _acting_learner(batches, setup, cluster, folder)
    )
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


def _is_text(config: Config) -> bool:
    return config.facts.run_kind == "text"


def _text_learner(setup: ResolvedRun, cluster: Cluster, folder: Path) -> LearnerPool:
    from rlinf.train.assemble.text_learner import start_learner

    return start_learner(setup, cluster, str(folder / "tokenizer"))


def _acting_learner(batches: BatchFolder, setup: ResolvedRun, cluster: Cluster, folder: Path) -> LearnerPool:
    from rlinf.models.actor_critic.export import load_spaces
    from rlinf.train.assemble.simulator import start_learner

    return start_learner(setup, cluster, load_spaces(batches.policy), folder)


def _on_policy(config: Config, learner: LearnerPool, folder: Path) -> OnPolicy:
    """Make the preparation of the run's own kind; rows of text are prepared by the ranks that have them."""
    staleness = config.rollout.staleness
    if not _is_text(config):
        return OnPolicy(config.algorithm, config.facts, learner, staleness=staleness)
    from rlinf.models.loading import load_tokenizer
    from rlinf.train.assemble.text import oldest_tokens
    from rlinf.train.teacher import connect_teacher

    teacher, _ = connect_teacher(config, learner, load_tokenizer(str(folder / "tokenizer")))
    oldest, seed = oldest_tokens(config), config.run.seed
    return OnPolicy(config.algorithm, config.facts, learner, teacher, ranks=learner, staleness=oldest, seed=seed)
