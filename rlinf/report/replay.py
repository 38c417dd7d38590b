"""`rlinf replay RUN --step 121 --group 7`: the same weights, the same random streams, the same responses?

The batch of step S was collected with the weights after step S - 1. Every draw is keyed by the run's seed, the step and
the sample, so the checkpoint of step S - 1 is all that is needed to collect it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines
from rlinf.base.run_folders import no_run
from rlinf.base.terminal import printable
from rlinf.config import Config
from rlinf.config.stored import load_stored
from rlinf.report.runs import is_run

# Other kernels or batch sizes round differently; another token would be another response.
LOGPROB_TOLERANCE = 1e-4
_EXACT = ("tokens", "response", "reward", "verdict", "slots", "task_id")


class ReplayError(UserError):
    """The requested replay is impossible; the message lists what can be replayed."""


def main(arguments: Sequence[str]) -> int:
    """Return 0: equal (or shown, if nothing was recorded), 1: different. Raises :class:`ReplayError`."""
    parser = Parser(prog="rlinf replay", description="Generate a recorded group of a run again.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("--step", type=int, required=True, help="the step whose batch is collected again")
    parser.add_argument("--group", type=int, default=0, help="the group of that batch")
    options = parser.parse_args(arguments)
    from rlinf.train.tracking.transcript import transcript

    rows = read_json_lines(options.run / "samples" / f"step_{options.step:06d}.jsonl").rows
    recorded = [row for row in rows if row["group"] == options.group]
    again = replay(options.run, options.step, options.group)
    for index, row in enumerate(again):
        shown = transcript(row) if "response" in row else f"{row['slots']} decisions"
        print(f"[{index}] reward {row['reward']:.4g}  {printable(row.get('verdict', ''))}\n{shown}")
    if not recorded:
        print(f"Step {options.step} recorded no samples of group {options.group}: nothing to compare with.")
        return 0
    result = differences(recorded, again)
    print(printable("\n".join(result)) if result else f"Equal: all {len(recorded)} rows are what the run recorded.")
    return 1 if result else 0


def _available_steps(folder: Path, config: Config) -> list[int]:
    """List the steps whose starting weights are there: one after each checkpoint, and the first if it restarts."""
    from rlinf.train.run_dir import RunDirectory

    steps = {step + 1 for step in RunDirectory(folder).steps()}
    if not config.sft.steps:
        steps.add(1)
    return sorted(step for step in steps if 1 <= step <= config.run.max_steps)


def replay(folder: Path, step: int, group: int) -> list[dict[str, Any]]:
    """Generate the rows of a group again; raise :class:`ReplayError` if the weights are not there."""
    if not is_run(folder):
        raise ReplayError(no_run(folder))
    config = load_stored(folder / "config.yaml", ["cluster.backend=local"])
    steps = _available_steps(folder, config)
    if step not in steps:
        listed = ", ".join(str(one) for one in steps) or "none"
        raise ReplayError(
            f"step {step} needs the checkpoint of step {step - 1}, which is not there. Steps to replay: {listed}. "
            "(checkpoint.every and checkpoint.keep decide which checkpoints stay.)"
        )
    from rlinf.cluster import connect
    from rlinf.train.assemble.setup import ResolvedRun
    from rlinf.train.loop import Trainer
    from rlinf.train.run import build_graph
    from rlinf.train.run_dir import RunDirectory
    from rlinf.train.tracking.progress import ProgressDisplay
    from rlinf.train.tracking.samples import sample_lines

    display = ProgressDisplay(name=config.run.name, mode="none", total=config.run.max_steps, done=0)
    setup = ResolvedRun.of(config)
    with connect(setup.cluster) as cluster:
        graph = build_graph(setup, cluster, folder)
        trainer = Trainer(config, graph, RunDirectory(folder, only=step - 1), display)
        trainer.run.resume(verb="replaying")
        graph.send_weights(step - 1)
        batch, _ = trainer.collect(step - 1)
        rows = (batch.group_ids == group).nonzero()[:, 0]
        if not len(rows):
            raise ReplayError(f"step {step} has no group {group}: groups are {batch.group_ids.unique().tolist()}")
        return sample_lines(batch.select(rows).fetch())


def differences(recorded: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the differences, in words; empty if there are none."""
    if len(recorded) != len(again):
        return [f"Different: the run recorded {len(recorded)} rows, and there are {len(again)} now."]
    results = []
    for index, (before, whole) in enumerate(zip(recorded, again, strict=True)):
        after = whole if "turns" in before else _of_the_policy(whole)
        for name in _EXACT:
            if name in before and before[name] != after.get(name):
                results.append(f"Different: row {index}: {name} was {before[name]!r} and is {after.get(name)!r}.")
        both = zip(before.get("logprobs", []), after.get("logprobs", []), strict=False)
        gaps = [abs(a - b) for a, b in both if a is not None and b is not None]
        if max(gaps, default=0.0) > LOGPROB_TOLERANCE:
            results.append(f"Different: row {index}: log-probabilities differ by up to {max(gaps):.2g}.")
    return results


def _of_the_policy(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row as earlier versions wrote it: without the environment's tokens."""
    if "mask" not in row:
        return row
    kept = {
        name: [value for value, acted in zip(row[name], row["mask"], strict=True) if acted]
        for name in ("tokens", "logprobs")
    }
    return {**row, **kept}
