"""What follows from a configuration and is read by its checks, the plan and the run alike."""

from __future__ import annotations

from rlinf.algorithms.catalog import OFF_POLICY_LOSS, columns_of, estimator
from rlinf.config.placeholders import expand
from rlinf.config.schema import Config

RUN_DIR_PLACEHOLDERS = ("name", "seed")


def run_directory(config: Config) -> str:
    """``run.dir`` with its placeholders filled in; raises PlaceholderError for one that does not exist."""
    return expand(config.run.dir, {"name": config.run.name, "seed": config.run.seed})


def collects_episodes(config: Config) -> bool:
    """Whether a step of a simulator run is a number of whole episodes (else of decisions of every env)."""
    algorithm = config.algorithm
    return "values" not in columns_of(algorithm.adv_type) and algorithm.loss_type != OFF_POLICY_LOSS


def compares_groups(config: Config) -> bool:
    """Whether the advantage estimator compares the members of a group with one another."""
    try:
        compares = estimator(config.algorithm.adv_type).compares_groups
    except ValueError:  # a name that the configuration's check has yet to refuse
        return False
    return compares and config.algorithm.loss_type != OFF_POLICY_LOSS


def trains_on_files_alone(config: Config) -> bool:
    """Whether a run is supervised training on `sft.data` and nothing else, so that it needs no environment."""
    alone = config.policy.name == "causal_lm" and config.run.max_steps == 0
    return alone and not config.env.id and config.sft.data is not None


def is_pretrained(config: Config) -> bool:
    """Whether training begins from a pretrained language model, alone or inside of a `vla` policy."""
    policy = config.policy
    if policy.name == "vla":
        return policy.path is not None or policy.vla.language.path is not None
    return policy.name == "causal_lm" and policy.path is not None
