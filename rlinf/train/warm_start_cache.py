"""Finished warm starts that other runs take over: `sft.cache`.

A sweep over the algorithm's keys trains the same warm start once for each seed instead of once for each trial. An entry
is the learner's own checkpoint after the last supervised step, under a digest of everything that may have made it: the
configuration but for the keys below, the files of rows and of the model that it names, the package versions and the
commit. Taking it over equals a run that was stopped there and goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rlinf.base.durable import first_folder, remove_folder
from rlinf.config import Config
from rlinf.train.checkpoints import DamagedError, check_manifest, write_manifest
from rlinf.train.read_files import warm_start_states
from rlinf.train.run_dir import machine

# What supervised steps read nothing of. Everything else counts as having a part, rather too much than too little.
_NO_PART = (
    "algorithm.",
    "checkpoint.",
    "evaluation.",
    "learner.optimizer.critic_lr",
    "learner.optimizer.lr",
    "learner.optimizer.min_lr_ratio",
    "learner.optimizer.schedule",
    "learner.optimizer.warmup_steps",
    "logging.",
    "rollout.batch_size",
    "run.dir",
    "run.max_steps",
    "run.name",
    "run.resume",
    "sft.cache",
    "sft.eval_data",
    "sft.evaluate_every",
    "teacher.api_key_env",
    "teacher.average_decay",
    "teacher.base_url",
    "teacher.concurrency",
    "teacher.dtype",
    "teacher.model",
    "teacher.past_policy",
    "teacher.path",
    "teacher.timeout_s",
)


class WarmStartCache:
    """The entry of one run's warm start; without `sft.cache` nothing is found and nothing kept."""

    def __init__(self, config: Config) -> None:
        # A warm start that begins with another run's weights depends on more than the configuration.
        requested = config.sft.cache if config.run.init_from is None else None
        self.entry = Path(requested).absolute() / digest(config) if requested is not None else None

    def found(self) -> Path | None:
        """Return the folder that a learner loads, whole; one that is damaged is removed, and trained again."""
        if self.entry is None or not self.entry.exists():
            return None
        with suppress(DamagedError):
            if check_manifest(self.entry):
                return self.entry
        with suppress(OSError):  # another run that found the same may have been faster
            remove_folder(self.entry)
        return None

    def keep(self, save: Callable[[Path], None]) -> None:
        """Write to a temporary folder, then rename it.

        Of runs that finish the same warm start at once the first one's stays."""
        if self.entry is None or self.entry.exists():
            return
        self.entry.parent.mkdir(parents=True, exist_ok=True)
        with first_folder(self.entry) as aside:
            aside.mkdir()
            save(aside)
            write_manifest(aside)


def digest(config: Config) -> str:
    """Compute a digest of all that a warm start may depend on."""
    keys = {key: value for key, value in config.record.values.items() if not key.startswith(_NO_PART)}
    facts = machine()
    files = {key: states for key, states in warm_start_states(config).items() if not key.startswith(_NO_PART)}
    text = json.dumps([keys, files, facts["versions"], facts["commit"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
