"""`rlinf check` for functions and classes of a user's own: one step of training at the smallest sizes, with them in it.

Their names and options are checked before; whether they return what they must is seen when they are called.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rlinf.commands.finding import Caveat
from rlinf.commands.policy_check import local_files
from rlinf.config import Config
from rlinf.rollouts.env_errors import account_of
from rlinf.schema import EvaluationConfig, LearnerConfig, LoggingConfig, SftConfig
from rlinf.schema.policy import LoraConfig

_ROWS, _TOKENS, _DECISIONS = 2, 8, 8
_WIDTHS = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
_TINY: Mapping[str, object] = {"model_type": "qwen2", **_WIDTHS, "num_attention_heads": 1, "num_key_value_heads": 1}


def trial_findings(config: Config) -> list[Caveat]:
    """Run one step with the parts of the user's own and return its finding; none for a run without any.

    Nothing is written outside of a temporary folder. A step that fails elsewhere, which its small sizes may be
    the reason for, is a remark alone.
    """
    names = dict(_own_names(config))
    if not names or not _can_be_small(config):
        return []
    from rlinf.train.run import run

    with tempfile.TemporaryDirectory(prefix="rlinf_check_") as folder, contextlib.redirect_stdout(io.StringIO()):
        try:
            run(_smallest(config, Path(folder) / "run"), report=False)
        except (Exception, SystemExit) as error:  # a user's own code raises what it likes
            return [_failed(error, names)]
    return []


def _failed(error: BaseException, names: Mapping[str, str]) -> Caveat:
    reported = "".join(traceback.format_exception(error))
    for key, name in names.items():
        module = sys.modules.get(name.partition(":")[0])
        file = getattr(module, "__file__", None)
        if name in reported or (file is not None and file in reported):
            return Caveat(True, f"{name}: {account_of(error)}", "Training would stop in its first step.", key)
    meaning = "This may be due to its small sizes; `rlinf train` shows more."
    return Caveat(False, f"a step that tries {', '.join(names.values())} failed: {account_of(error)}", meaning, "trial")


def _own_names(config: Config) -> Iterator[tuple[str, str]]:
    """(key, `module:name`) of every part of the user's own that a step calls."""
    algorithm = config.algorithm
    named = {
        "algorithm.adv_type": algorithm.adv_type,
        "algorithm.loss_type": algorithm.loss_type,
        "algorithm.loss_agg_func": algorithm.loss_agg_func,
        "algorithm.kl_penalty_type": algorithm.kl_penalty_type,
        "rollout.sampler": config.rollout.sampler,
        "policy.name": config.policy.name,
        "policy.distribution": config.policy.distribution,
    }
    yield from ((key, name) for key, name in named.items() if ":" in name)
    for env in config.facts.text_envs if config.facts.run_kind == "text" else ():
        kwargs = env.splits["train"]
        reward, steps = kwargs.get("reward"), kwargs.get("steps")
        custom = reward.get("custom") if isinstance(reward, Mapping) else None
        yield from (("env.kwargs.reward.custom", str(name)) for name in (custom if isinstance(custom, Mapping) else ()))
        scorer = steps.get("scorer") if isinstance(steps, Mapping) else None
        if isinstance(scorer, str) and ":" in scorer:
            yield "env.kwargs.steps.scorer", scorer


def _can_be_small(config: Config) -> bool:
    """Whether a step needs nothing but what is here: no other model, no dataset, no simulator in another process."""
    teacher, path = config.teacher, config.policy.path
    if teacher.path or teacher.base_url or config.reward_model.supervision != "none":
        return False
    if any(not extra.installed for extra in config.extras) or config.facts.run_kind == "supervised":
        return False
    if config.facts.run_kind == "text":
        return path is None or local_files(config.policy.tokenizer.path or path) is not None
    return not config.facts.vla and config.env.isolation == "none" and config.algorithm.prior_data is None


def _smallest(config: Config, folder: Path) -> Config:
    """Build the same run with one step, few rows, and a small model in case of a language model."""
    policy, algorithm = config.policy, config.algorithm
    text = config.facts.run_kind == "text"
    if text:
        tokenizer = replace(policy.tokenizer, path=policy.tokenizer.path or policy.path)
        policy = replace(policy, path=None, architecture=dict(_TINY), tokenizer=tokenizer, dtype="float32")
    size = min(algorithm.group_size, _ROWS * 2)
    return replace(
        config,
        run=replace(config.run, dir=str(folder), max_steps=1, resume="auto", init_from=None, init_optimizer=False),
        policy=replace(policy, lora=LoraConfig(), gradient_checkpointing=False, attention="sdpa"),
        env=replace(config.env, num_workers=1, num_envs=min(config.env.num_envs, _ROWS), vectorization="sync"),
        rollout=replace(
            config.rollout,
            sampler=config.rollout.sampler if ":" in config.rollout.sampler else "hf",
            num_samplers=1,
            batch_size=_ROWS,
            over_sampling=0.0,
            max_new_tokens=min(config.rollout.max_new_tokens, _TOKENS),
            max_conversation_tokens=None,
            staleness=0,
            replay_arrivals=None,
            keep_cache=False,
            num_steps=min(config.rollout.num_steps, _DECISIONS),
            act_in="auto" if text else "worker",
            pipeline_stages=1,
            merge_requests=False,
        ),
        algorithm=replace(
            algorithm,
            group_size=size,
            num_minibatches=1,
            update_epochs=1,
            dynamic_sampling=False,
            replay_start=min(algorithm.replay_start, _DECISIONS),
            offline_updates=1,
            replay_batch_size=min(algorithm.replay_batch_size, _DECISIONS),
        ),
        learner=LearnerConfig(optimizer=config.learner.optimizer),
        sft=SftConfig(),
        evaluation=EvaluationConfig(size=0),
        checkpoint=replace(config.checkpoint, every=0, best_metric=None, export=False),
        cluster=replace(config.cluster, backend="local"),
        logging=LoggingConfig(
            progress="none", tensorboard=False, wandb_project="", mlflow_experiment="", samples_every=0
        ),
    )
