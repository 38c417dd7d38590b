"""`run.init_from`: a run that begins with what another one has learned, under settings of its own."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from rlinf.base.durable import write_atomically
from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.config.stored import load_stored
from rlinf.train.checkpoints import Checkpoint
from rlinf.train.run_dir import MAY_CHANGE
from rlinf.train.stored_run import run_folder, stored_run

RECORD = "init_from.json"
"""In the run directory: what the run began with."""
_KEY = "run.init_from"
# Keys of `policy` that another run may have otherwise: what the weights mean does not depend on them.
_NOT_THE_NETWORK = (
    "policy.dtype",
    "policy.attention",
    "policy.gradient_checkpointing",
    "policy.init_log_std",
    "policy.flow.advantage_dropout",
    "policy.flow.guidance",
    "policy.lora.dropout",
    "policy.vla.language.freeze",
    "policy.vla.max_instruction_tokens",
    "policy.vla.task",
    "policy.vla.vision.freeze",
)


@dataclass(frozen=True)
class Source:
    """The checkpoint that a run begins with, and the configuration of the run that wrote it."""

    run: Path
    config: Config
    checkpoint: Checkpoint

    @property
    def name(self) -> str:
        """`runs/a@40`."""
        return f"{self.run}@{self.checkpoint.step}"

    def changed(self, config: Config) -> list[str]:
        """List each setting that is another one now, one line each, without the paths and the length of the run."""
        hidden = {*self.config.record.expressions, *config.record.expressions}
        kept_quiet = (*MAY_CHANGE, "run.name", _KEY, "run.init_optimizer")
        lines = [line for line in self.config.record.changes(config.record) if not line.startswith(kept_quiet)]
        return [line for line in lines if line.partition(":")[0] not in hidden]

    def lines(self, config: Config) -> list[str]:
        """List the parts that are carried over and those that begin afresh, for people."""
        carried = ["weights and running statistics of the policy"]
        carried += ["tokenizer"] if self.tokenizer.exists() else []
        afresh = ["step count", "learning-rate schedule", "random streams", "states of environments and algorithm"]
        (carried if config.run.init_optimizer else afresh).append("optimiser state")
        afresh += ["reward model"] if config.reward_model.supervision != "none" else []
        afresh += ["replay buffer"] if config.facts.off_policy else []
        afresh += [f"a warm start of {config.sft.steps} steps"] if config.sft.steps else []
        changed = self.changed(config)
        return [
            f"begins with {self.name}",
            f"  carried over: {', '.join(carried)}",
            f"  new: {', '.join(afresh)}",
            f"  other settings: {'; '.join(changed) if changed else 'none'}",
        ]

    @property
    def tokenizer(self) -> Path:
        """The tokenizer of the earlier run; simulators have none."""
        return self.run / "tokenizer"

    def record(self, folder: Path, config: Config) -> None:
        """Write into a run directory what the run began with."""
        results = {
            "run": str(self.run),
            "step": self.checkpoint.step,
            "optimizer": config.run.init_optimizer,
            "changed": self.changed(config),
        }
        write_atomically(folder / RECORD, json.dumps(results, indent=2))


def named(config: Config) -> tuple[Path, int | None] | None:
    """Return (run directory, step) of `run.init_from`; None if the run begins from nothing.

    >>> from rlinf.schema import RunConfig
    >>> named(Config(run=RunConfig(init_from="runs/a@40")))
    (PosixPath('runs/a'), 40)
    """
    text = config.run.init_from
    if text is None:
        return None
    path, at, step = text.rpartition("@")
    if at and step.removeprefix("-").isdecimal():
        return run_folder(Path(path).expanduser()), int(step)
    return run_folder(Path(text).expanduser()), None


def carried_tokenizer(config: Config) -> Path | None:
    """Return the tokenizer that the weights of `run.init_from` were trained with."""
    result = named(config)
    return None if result is None or not (result[0] / "tokenizer").exists() else result[0] / "tokenizer"


def source_of(config: Config, folder: Path) -> Source | None:
    """Find the checkpoint of `run.init_from`, whole and of the same network; None if the run begins from nothing.

    ``folder``: this run's own directory.

    Raises:
        UserError: there is no such run or checkpoint, or it is of another network; the message has the fix.
    """
    result = named(config)
    if result is None:
        return None
    run, step = result
    if run.resolve() == folder.resolve():
        raise UserError(f"{_KEY}: {run} is this run's own directory: choose another run.dir")
    try:
        checkpoint = stored_run(run, step).latest()
    except UserError as error:
        raise UserError(f"{_KEY}: {error}") from error
    assert checkpoint is not None
    source = Source(run, load_stored(run / "config.yaml"), checkpoint)
    _require_the_same_network(source, config)
    return source


def _require_the_same_network(source: Source, config: Config) -> None:
    before, now = source.config.record.values, config.record.values
    keys = [key for key in dict.fromkeys([*before, *now]) if key.startswith("policy.")]
    changed = [key for key in keys if not key.startswith(_NOT_THE_NETWORK) and before.get(key, "") != now.get(key, "")]
    if changed:
        listed = "\n  ".join(f"{key}: {before.get(key, '(absent)')} -> {now.get(key, '(absent)')}" for key in changed)
        back = shlex.join(f"{key}={before[key]}" for key in changed if key in before)
        raise UserError(
            f"{_KEY}: {source.run} has another network than this configuration:\n  {listed}\n"
            f"Take these changes back (add to the command: {back}). For another network around the same language model "
            f"(a value head, adapters), take {_KEY} out and write policy.path: {source.run / 'policy'}."
        )
    losses = source.config.algorithm.loss_type, config.algorithm.loss_type
    if (source.config.facts.off_policy or config.facts.off_policy) and len(set(losses)) == 2:
        raise UserError(
            f"{_KEY}: {source.run} was trained with loss_type {losses[0]}, this run with {losses[1]}: off-policy "
            "losses have networks of their own. Keep the loss."
        )
    backends = source.config.learner.backend, config.learner.backend
    optimizers = source.config.learner.optimizer.name, config.learner.optimizer.name
    if len(set(backends)) == 2 and "megatron" in backends:
        raise UserError(
            f"{_KEY}: {source.run} was trained with learner.backend {backends[0]}, this run with {backends[1]}: write "
            f"`rlinf export {source.run} OUT --step {source.checkpoint.step}`, then policy.path: OUT instead."
        )
    if len(set(backends)) == 2 and config.run.init_optimizer:
        raise UserError(
            f"run.init_optimizer: the optimiser state of learner.backend {backends[0]} fits that backend only: set it "
            "to false."
        )
    if len(set(optimizers)) == 2 and config.run.init_optimizer:
        raise UserError(
            f"run.init_optimizer: the optimiser state of {optimizers[0]} is none of {optimizers[1]}: set it to false."
        )
