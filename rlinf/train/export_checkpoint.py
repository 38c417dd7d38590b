"""A checkpoint of a run as the folder that `RUN/policy` is at its end, without the workers and the data of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf.config import Config
from rlinf.config.facts import is_text, training_env
from rlinf.config.stored import load_stored
from rlinf.learners.stored_policy import load_policy
from rlinf.rollouts.robot_data.statistics import keep_statistics
from rlinf.train.stored_run import stored_run


def export_checkpoint(run: Path, step: int | None, out: Path) -> int:
    """Writes the policy of a step, or of the newest checkpoint, into ``out``; returns the step.

    Language models become a Hugging Face folder with their tokenizer, adapters merged; policies of simulators what
    their ``from_pretrained`` reads. Not for checkpoints of a megatron learner.

    Raises:
        RunDirectoryError: ``run`` is no run directory, or has no such checkpoint.
    """
    found = stored_run(run, step).latest()
    assert found is not None
    config = load_stored(run / "config.yaml")
    tokenizer = run / "tokenizer"
    if is_text(config):
        from rlinf.train.build.text_learner import text_policy

        policy = text_policy(config, str(tokenizer), "cpu")
    else:
        policy = _simulator_policy(config, tokenizer)
    load_policy(found.folder, policy)
    policy.save_pretrained(str(out))
    keep_statistics(run, out)
    if is_text(config):
        save_tokenizer(run, out)
    return found.step


def save_tokenizer(run: Path, out: Path) -> None:
    """The tokenizer of a text run, for whoever uses its policy."""
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.tokenizer_export import save_tokenizer as write

    write(load_tokenizer(str(run / "tokenizer")), out)


def _simulator_policy(config: Config, tokenizer: Path) -> Any:
    """The network for the spaces of the environment, of which one is made to see them."""
    from rlinf.rollouts.envs.vectorize import make_vec_env
    from rlinf.train.build.simulator_policy import make_policy

    env = make_vec_env(replace(training_env(config), vectorization="sync"), 1)
    try:
        return make_policy(config, env.observation_space, env.action_space, tokenizer=tokenizer)
    finally:
        env.close()
