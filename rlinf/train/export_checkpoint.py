"""A checkpoint of a run as the folder that `RUN/policy` is at its end, without the workers and the data of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.config.derived import is_text, training_env
from rlinf.config.stored import load_stored
from rlinf.datasets.robot_data.statistics import keep_statistics
from rlinf.learners.convert import convert_folder, is_first_rank, is_megatron, require_empty
from rlinf.learners.stored_policy import load_policy
from rlinf.models.finite_weights import require_finite
from rlinf.models.own import is_own, keep_class
from rlinf.schema import MegatronConfig
from rlinf.train.stored_run import run_of_checkpoint, stored_run

_ONE_PROCESS = MegatronConfig()


def export_checkpoint(folder: Path, step: int | None, out: Path, layout: MegatronConfig = _ONE_PROCESS) -> int:
    """Write the policy of a checkpoint into ``out``; return its step.

    ``folder`` is a run, of which ``step`` or the newest checkpoint is taken, or `RUN/checkpoints/step_N` itself.
    Language models become a Hugging Face folder with their tokenizer, adapters merged; policies of simulators
    what their ``from_pretrained`` reads. ``layout``: how the processes of ``torchrun`` share a checkpoint of
    megatron. Nothing is printed: what becomes of ``out`` is the caller's.

    Raises:
        UserError: there is no such run or checkpoint, ``out`` is not empty, or weights are NaN or infinite.
    """
    run, named = run_of_checkpoint(folder) or (folder, None)
    if named is not None and step not in (None, named):
        raise UserError(f"{folder} is the checkpoint of step {named}: leave --step {step} out")
    result = stored_run(run, named if step is None else step).latest()
    assert result is not None
    config = load_stored(run / "config.yaml")
    if is_megatron(result.folder):
        convert_folder(result.folder, out, layout)
        if is_first_rank():
            _save_tokenizer(config, run, out)
        return result.step
    require_empty(out)
    tokenizer = run / "tokenizer"
    if is_text(config):
        from rlinf.train.assemble.text_learner import text_policy

        policy: Any = text_policy(config, str(tokenizer), "cpu")
    else:
        policy, both_spaces = _simulator_policy(config, tokenizer)
    load_policy(result.folder, policy)
    require_finite(policy.named_parameters(), f"the policy of step {result.step} in {result.folder}")
    policy.save_pretrained(str(out))
    keep_statistics(run, out)
    if is_text(config):
        _save_tokenizer(config, run, out)
    elif is_own(config.policy.name):
        keep_class(config.policy.name, both_spaces, str(out))
    return result.step


def _save_tokenizer(config: Config, run: Path, out: Path) -> None:
    """Save the tokenizer of a text run and the ends of its responses, as at the end of a run."""
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.tokenizer_export import export_tokenizer
    from rlinf.train.assemble.conversations import response_ends

    tokenizer = load_tokenizer(str(run / "tokenizer"))
    export_tokenizer(tokenizer, response_ends(config, tokenizer), out)


def _simulator_policy(config: Config, tokenizer: Path) -> tuple[Any, tuple[Any, Any]]:
    """Build the network for the spaces of the environment; return it and the spaces.

    One environment is made to see them."""
    from rlinf.rollouts.vec_env.vectorize import make_vec_env
    from rlinf.train.assemble.simulator_policy import make_trained_policy

    env = make_vec_env(replace(training_env(config), vectorization="sync"), 1)
    try:
        both = env.observation_space, env.action_space
        return make_trained_policy(config, *both, tokenizer), both
    finally:
        env.close()
