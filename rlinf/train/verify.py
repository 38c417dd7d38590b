"""A step of a finished run, trained again from the checkpoint before it, and compared bit for bit."""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file, read_json_lines
from rlinf.config.dump import diff
from rlinf.config.stored import load_stored
from rlinf.data.batch import Batch
from rlinf.models.architecture import in_one_line
from rlinf.train.callbacks import StopAfter
from rlinf.train.checkpoints import DamagedError, examine, folder_name
from rlinf.train.plain_state import load_plain
from rlinf.train.run import run
from rlinf.train.saved_batches import FOLDER
from rlinf.train.stored_run import run_folder, stored_run

PHASES: Mapping[str, tuple[str, ...]] = {
    "rollout": ("rollout/", "reward/", "reward_terms/", "reward_steps/", "verdict/", "curriculum/", "pool/"),
    "preparation": ("reward_model/", "algorithm/"),
    "update": ("train/",),
    "evaluation": ("eval/",),
}
"""The phases of a step in their order, and the metrics of each. Times, speeds and failures belong to none."""


@dataclass(frozen=True)
class _Difference:
    """The first thing that is not equal."""

    step: int
    phase: str
    name: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"step {self.step}, {self.phase}: {self.name} was {self.before} and is {self.now}"


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`."""

    first: int
    """The first step that was trained again."""
    last: int
    numbers: int
    """Metrics, columns of batches and weights that were compared."""
    weights: str
    """What the weights were compared with: the run's ``checkpoint``, a ``digest`` of them, or ``nothing``."""
    difference: _Difference | None
    """None: all bits are equal."""


def verify(folder: Path, step: int | None = None, overrides: Sequence[str] = ()) -> Verification:
    """Train ``step`` of the run in ``folder`` again, from the newest checkpoint before it, and compare.

    ``step`` is by default the last one that was logged. ``overrides`` change where and how it is computed, such
    as ``cluster.backend=local`` or ``learner.backend=fsdp``. The run's folder is only read.

    :raises UserError: it is no run directory, or did not log that step, or ``overrides`` would train another step.
    """
    folder = run_folder(folder)
    directory = stored_run(folder)
    _require_same_training(folder, overrides)
    logged = _logged(folder)
    last = max(logged, default=0) if step is None else step
    if last not in logged or last < 1:
        known = f"steps 1 to {max(logged)}" if logged and max(logged) > 0 else "no step"
        raise UserError(f"{folder} logged {known}" + (f", not step {last}" if step is not None else ""))
    earlier = [known for known in directory.steps() if known < last]
    with tempfile.TemporaryDirectory(prefix="rlinf_verify_") as temporary:
        again = Path(temporary) / "again"
        again.mkdir()
        config = load_stored(
            folder / "config.yaml",
            [*overrides, f"run.dir={again}", "run.resume=auto", *_QUIET],
        )
        first = _copy_start(folder, again, earlier[-1] if earlier else None)
        kept = max(0, last - max(first, 0))
        with contextlib.redirect_stdout(io.StringIO()):  # tables of results, which the run printed itself
            callbacks = [StopAfter(last, "the step to verify is done")]
            run(config, report=False, callbacks=callbacks, save_batches=kept if (folder / FOLDER).is_dir() else 0)
        return _compared(folder, again, max(first, 0) + 1, last)


_QUIET = (
    *("logging.tensorboard=false", "logging.progress=none"),
    *("checkpoint.export=false", "checkpoint.every=0", "evaluation.background=false"),
)


_WHERE = (
    *("cluster.", "logging.", "learner.backend", "learner.megatron.", "learner.micro_batch_tokens"),
    *("learner.offload", "env.num_workers", "env.vectorization", "rollout.generation_batch_size", "rollout.vllm."),
)
"""What `rlinf verify` may change: where a step is computed, and in which portions. Its numbers stay."""


def _require_same_training(folder: Path, overrides: Sequence[str]) -> None:
    """Raise UserError if ``overrides`` change what the step computes: another step would be compared."""
    if not overrides:
        return
    changed = diff(load_stored(folder / "config.yaml"), load_stored(folder / "config.yaml", overrides))
    other = [line for line in changed if not line.startswith(_WHERE)]
    if other:
        raise UserError(
            f"rlinf verify {folder}: {'; '.join(other)} would train another step than the run's. What may change is "
            f"where it is computed: {', '.join(key.rstrip('.') for key in _WHERE)}"
        )


def _copy_start(folder: Path, again: Path, checkpoint: int | None) -> int:
    """Copy the checkpoint of that step, and what belongs to it; return the step, 0 without one."""
    for name in ("tokenizer", "init_from.json"):
        result = folder / name
        if result.is_dir():
            shutil.copytree(result, again / name)
        elif result.exists():
            shutil.copy2(result, again / name)
    if checkpoint is None:
        return 0
    source = folder / "checkpoints" / folder_name(checkpoint)
    try:
        examine(source)
    except DamagedError as error:
        raise UserError(f"{source}: {error}, and the step is trained from there: name another --step") from error
    shutil.copytree(source, again / "checkpoints" / source.name)
    return checkpoint


def _compared(folder: Path, again: Path, first: int, last: int) -> Verification:
    """Compare phase by phase, step by step, and return the first difference."""
    before, now = _logged(folder), _logged(again)
    count, difference = 0, None
    for step in range(first, last + 1):
        for result in (_columns(folder, again, step), _metrics(before.get(step, {}), now.get(step, {}), step)):
            for equal in result:
                count += 1
                difference = difference or equal
        if difference is not None:
            return Verification(first, last, count, "nothing", difference)
    known, found_weights = _weights(folder, last), _weights(again, last)
    if isinstance(known, str) or known is None:
        ours = read_json_file(again / "summary.json") or {}
        if known is not None and known != ours.get("params_sha256"):
            difference = _Difference(last, "update", "params_sha256", known[:12], str(ours.get("params_sha256"))[:12])
        return Verification(first, last, count + (known is not None), "digest" if known else "nothing", difference)
    assert isinstance(found_weights, dict)
    for name, tensor in known.items():
        count += 1
        other = found_weights.get(name)
        if other is None or not torch.equal(tensor, other):
            distance = "absent" if other is None else f"up to {float((tensor - other).abs().max()):.3g} away"
            difference = _Difference(last, "update", f"weight {name}", "itself", distance)
            break
    return Verification(first, last, count, "checkpoint", difference)


def _logged(folder: Path) -> dict[int, dict[str, float]]:
    """Read the lines of metrics by their steps."""
    return {int(line["step"]): line for line in read_json_lines(folder / "metrics.jsonl", number="step").rows}


def _columns(folder: Path, again: Path, step: int) -> Iterator[_Difference | None]:
    """Compare the kept batches of a step, column by column, if both runs kept them."""
    name = Path(FOLDER) / f"batch_{step - 1:06d}.pt"
    if not ((folder / name).exists() and (again / name).exists()):
        return
    before, now = (_tensors(load_plain(path / name)["rows"]) for path in (folder, again))
    for column, tensor in before.items():
        other = now.get(column)
        same = other is not None and torch.equal(tensor.nan_to_num(), other.nan_to_num())
        yield None if same else _Difference(step, "rollout", f"column {column}", tuple(tensor.shape), "other values")


def _tensors(batch: Batch) -> dict[str, Tensor]:
    return {**{f"inputs.{name}": value for name, value in batch.inputs.named().items()}, **batch.tensors()}


def _metrics(before: Mapping[str, float], now: Mapping[str, float], step: int) -> Iterator[_Difference | None]:
    """Compare the metrics of a step, in the order of the phases; an evaluation only if both were made."""
    for phase, prefixes in PHASES.items():
        for name in sorted(name for name in before if name.startswith(prefixes)):
            if name not in now:
                if phase != "evaluation":
                    yield _Difference(step, phase, name, before[name], "absent")
                continue
            old, new = before[name], now[name]
            same = old == new or (math.isnan(old) and math.isnan(new))
            yield None if same else _Difference(step, phase, name, old, new)


def _weights(folder: Path, step: int) -> dict[str, Tensor] | str | None:
    """Read the weights of the checkpoint of ``step``, or the sha256 of a run that ended there.

    None if neither exists.

    Raises:
        UserError: the checkpoint can't be read.
    """
    digests = read_json_file(folder / FOLDER / "weights.json") or {}
    learner = folder / "checkpoints" / f"step_{step:06d}" / "learner.pt"
    if learner.exists():
        try:
            state = torch.load(learner, map_location="cpu", weights_only=True)["policy"]
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, KeyError) as error:
            message = (
                f"{learner} is damaged ({in_one_line(error)}): compare an earlier step, --step {step - 1} for example"
            )
            raise UserError(message) from error
        return {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if str(step) in digests:
        return str(digests[str(step)])
    summary = read_json_file(folder / "summary.json") or {}
    if summary.get("steps") == step and "params_sha256" in summary:
        return str(summary["params_sha256"])
    return None
