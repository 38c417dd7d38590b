"""From a configuration to a finished run."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from rlinf.base.durable import naming_disk_errors, unless_read_only
from rlinf.base.errors import OtherPolicy, UserError, is_user_error
from rlinf.base.json_files import read_json_lines
from rlinf.base.own_errors import own_account
from rlinf.base.signals import Stopped, stop_signals
from rlinf.base.user_code import did_you_mean, refuse_while_importing
from rlinf.cluster import Cluster, ClusterError, connect
from rlinf.config import Config
from rlinf.config.derived import has_warm_start
from rlinf.config.setting_origins import with_origin
from rlinf.config.stored import load_stored
from rlinf.data.messages import Metrics
from rlinf.datasets.robot_data.statistics import keep_statistics
from rlinf.planning.room import require_room
from rlinf.train.assemble.learner_only import build_learner_graph
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.callbacks import Callback, StopAfter, require_callbacks
from rlinf.train.evaluation.in_training import FirstEvaluations
from rlinf.train.evaluation.responses import NO_FILES, ResponseFiles
from rlinf.train.evaluation.saved import changed_settings, save_evaluation
from rlinf.train.graph import Graph
from rlinf.train.init_from import source_of
from rlinf.train.loop import Trainer
from rlinf.train.progress import Progress
from rlinf.train.run_dir import RunDirectory
from rlinf.train.saved_batches import BatchFolder, BatchRecorder, ReplayedBatches
from rlinf.train.stored_run import stored_run
from rlinf.train.tracking.progress import ProgressDisplay
from rlinf.train.tracking.summary import contents, fingerprint, show

if TYPE_CHECKING:
    from rlinf.api.policy import Policy
    from rlinf.report.health import Finding

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    metrics: Metrics
    """The last evaluation."""
    run_dir: Path
    stopped: str | None = None
    """Why a callback ended the run before run.max_steps."""
    findings: Sequence[Finding] = ()
    """What the run's numbers show about its health, the worst first; those of level "bad" were printed too."""

    @property
    def history(self) -> list[dict[str, float]]:
        """The lines of metrics.jsonl, each with its ``step``; those of a warm start have negative ones."""
        return list(read_json_lines(self.run_dir / "metrics.jsonl", number="step").rows)

    def best(self, metric: str, *, mode: str = "max") -> dict[str, float]:
        """Return the line of the history with the highest value of a metric (``min``: lowest).

        KeyError if no line has it."""
        history = self.history
        lines = [line for line in history if metric in line]
        if not lines:
            logged = sorted({name for line in history for name in line})
            raise KeyError(f"{metric} was never logged in {self.run_dir}{did_you_mean(metric, logged)}")
        return (min if mode == "min" else max)(lines, key=lambda line: line[metric])

    @property
    def policy(self) -> Policy:
        """The exported policy, loaded."""
        from rlinf.api.policy import Policy

        return Policy.load(self.run_dir)


def run(
    config: Config,
    *,
    report: bool = True,
    after_step: Callable[[int], None] | None = None,
    callbacks: Sequence[Callback] = (),
    save_batches: int = 0,
    from_batches: Path | None = None,
    first_evaluations: FirstEvaluations | None = None,
) -> RunResult:
    """Train, or continue what is in the run directory. A finished run is reported as such and left alone.

    ``report``: write `report.html` at the end. ``after_step`` is called
    with each finished step of training but the last, when its metrics and its checkpoint are written; training
    waits for it. ``callbacks`` are called with what was measured, and may change what comes next.
    ``save_batches``: how many batches are kept in the run directory; ``from_batches``: such a folder, whose
    batches are trained on without samplers or environments. ``first_evaluations``: evaluations before the first
    step that runs of this process share.

    :raises Stopped: Ctrl-C, SIGTERM or SIGHUP, once a checkpoint is written; the same call continues the run.
    """
    refuse_while_importing("training")
    require_callbacks(callbacks)
    require_extras(config)
    require_room(config)
    saved = None if from_batches is None else BatchFolder.open(from_batches)
    config = counted(config) if saved is None else saved.adapted(config)
    with RunDirectory.open(config) as folder, naming_disk_errors(folder.path):
        recorder = BatchRecorder(folder.path, save_batches) if save_batches else None
        began = time.perf_counter()
        with progress_display(config) as display:
            done = folder.summary()
            if done is not None and done["steps"] >= config.run.max_steps:
                results = ", ".join(f"{name} {value:.4g}" for name, value in done["metrics"].items())
                display.print_line(f"{folder.path} holds a run that finished {done['steps']} steps: {results}")
                return RunResult(done["metrics"], folder.path, findings=_diagnosis(folder, display))
            setup = ResolvedRun.of(config)
            if saved is not None:
                saved.begin(config, folder.path)
                used_up = f"the {len(saved.steps)} saved batches are used up"
                callbacks = [*callbacks, StopAfter(saved.steps[-1] + 1, used_up)]
            source = source_of(config, folder.path) if not folder.steps() else None
            display.print_line(f"{config.run.name}: starting workers ({config.cluster.backend})")
            with _resumable(folder), connect(setup.cluster) as cluster:
                if saved is None:
                    graph, batches = build_graph(setup, cluster, folder.path), None
                else:
                    graph, batches = build_learner_graph(saved, setup, cluster, folder.path), ReplayedBatches(saved)
                trainer = Trainer(
                    config,
                    graph,
                    folder,
                    display,
                    after_step,
                    callbacks,
                    source,
                    batches=batches,
                    recorder=recorder,
                    spans=cluster.record_spans,
                    first_evaluations=first_evaluations,
                )
                if saved is not None:
                    trainer.run.progress.step = saved.steps[0]
                state = trainer.train()
                finish(config, graph, folder, state, wall_s=trainer.run.wall_s)
            display.print_line("")
        wall = time.perf_counter() - began
        if saved is None:
            # A warm start that an earlier version began was not evaluated before: nothing to compare the result with.
            columns = (
                {"before": state.before, "after": state.evaluation} if state.before else {"result": state.evaluation}
            )
            show(display.console, columns, trainer.evaluation.samples)
        display.console.print(Text(f"\n{wall:.0f} s in all. Everything is in {contents(folder.path)}"), soft_wrap=True)
        if saved is not None:
            digest = (folder.summary() or {}).get("params_sha256", "")
            display.console.print(Text(saved.verdict(state.step, digest)), soft_wrap=True)
        findings = _diagnosis(folder, display)
        if report:
            with stopped_with(f"the run is complete, and `rlinf report {folder.path}` writes its page"):
                _write_page(folder, display)
        for callback in callbacks:
            callback.on_end(state.evaluation)
        return RunResult(state.evaluation, folder.path, trainer.stopped, findings)


@contextmanager
def _resumable(folder: RunDirectory) -> Iterator[None]:
    """End the block in good order on stop signals; for those and lost workers, report what the same command does."""
    try:
        with stop_signals():
            yield
    except Stopped as stop:
        stop.outlook = stop.outlook or folder.outlook
        raise
    except Exception as error:
        failed = not is_user_error(error) and (isinstance(error, ClusterError) or own_account(error) is not None)
        noted = getattr(error, "__notes__", ())  # those of the training have the step and this
        if (failed or isinstance(error, OtherPolicy)) and not noted:
            error.add_note(f"Checkpoints are kept: {folder.outlook}.")
        raise


@contextmanager
def stopped_with(outlook: str) -> Iterator[None]:
    """End the block at once on stop signals, and report ``outlook``, what became of its work, if nothing else did."""
    try:
        with stop_signals():
            yield
    except Stopped as stop:
        stop.outlook = stop.outlook or outlook
        raise


UNSAVED = "nothing of this evaluation is saved, and the same command begins it again"


def require_extras(config: Config) -> None:
    """Raise UserError that names every missing extra, before anything starts."""
    missing = [extra for extra in config.extras if not extra.installed]
    if missing:
        listed = "\n  ".join(f"{extra.reason} needs {extra.fix}" for extra in missing)
        raise UserError(f"this run needs what is not installed:\n  {listed}")


def _diagnosis(folder: RunDirectory, display: ProgressDisplay) -> Sequence[Finding]:
    """Return the findings about the run, and print each bad one in a line; none of a run without numbers."""
    from rlinf.report.health import examine
    from rlinf.report.runs import ReportError, read_run

    try:
        findings = examine(read_run(folder.path))
    except ReportError:
        return ()
    for finding in findings:
        if finding.level == "bad":
            display.warn(f"BAD  {finding.title}: {finding.words}")
    return findings


def _write_page(folder: RunDirectory, display: ProgressDisplay) -> None:
    """`report.html`; a page that fails is reported, and does not fail the run that it is about."""
    from rlinf.report.write import write_run_report

    _log.info("report")
    try:
        display.print_line(f"Report: {write_run_report(folder.path, display.print_line)}")
    except Exception as error:
        display.print_line(f"no report could be written: {type(error).__name__}: {error}", style="yellow")


def finish(config: Config, graph: Graph, folder: RunDirectory, state: Progress, *, wall_s: float) -> None:
    """Export the policy and write `summary.json`."""
    if config.checkpoint.export:
        graph.learner.export(folder.path / "policy")
        keep_statistics(folder.path, folder.path / "policy")
        if graph.write_policy_extras is not None:
            graph.write_policy_extras(str(folder.path / "policy"))
    folder.write_summary(
        {
            "status": "completed",
            "steps": state.step,
            "metrics": state.evaluation,
            "initial_metrics": state.before,
            "params_sha256": fingerprint(graph.learner.weights_in_parts(version=state.step)),
            "wall_s": wall_s,
            "notes": dict(graph.notes),
        }
    )
    folder.share_modes()


def build_graph(setup: ResolvedRun, cluster: Cluster, folder: Path) -> Graph:
    """Start the processes for this kind of run."""
    match setup.config.facts.run_kind:
        case "supervised":
            from rlinf.train.assemble.supervised import build_supervised_graph as build
        case "text":
            from rlinf.train.assemble.text import build_text_graph as build
        case "simulator":
            from rlinf.train.assemble.simulator import build_simulator_graph as build
    try:
        return build(setup, cluster, folder)
    except Exception as error:
        named = with_origin(setup.config, error)
        if named is error:
            raise
        raise named from error


def counted(config: Config) -> Config:
    """Set the length of a warm start in steps, which needs its data if it is given in epochs."""
    if config.sft.epochs is None:
        return config
    from rlinf.train.assemble.supervised import with_counted_steps

    return with_counted_steps(config)


def run_sft(config: Config) -> RunResult:
    """Run the supervised warm start alone; the run directory then holds its policy."""
    if not has_warm_start(config):
        raise UserError("sft.steps is 0: there is nothing to train")
    run_config = dataclasses.replace(config.run, max_steps=0)
    return run(dataclasses.replace(config, run=run_config))


def evaluate_run(
    folder: str, overrides: Sequence[str] = (), *, step: int | None = None, files: ResponseFiles = NO_FILES
) -> RunResult:
    """Evaluate a checkpoint of a run directory again, the newest or that of ``step``; print, save and return it.

    The evaluation before training is shown next to it only if both have the same settings. ``files``: where responses
    of a language model are written, too.

    Raises:
        RunDirectoryError: the folder is no run directory, or has no such checkpoint.
        UserError: ``files`` cannot be written.
    """
    refuse_while_importing("evaluation")
    path = Path(folder)
    directory = stored_run(path, step)
    config = load_stored(path / "config.yaml", overrides)
    files.require(config)
    changed = changed_settings(load_stored(path / "config.yaml"), config)
    setup = ResolvedRun.of(config)
    with (
        stopped_with(UNSAVED),
        naming_disk_errors(path),
        progress_display(config) as display,
        connect(setup.cluster) as cluster,
    ):
        trainer = Trainer(config, build_graph(setup, cluster, path), directory, display)
        trainer.run.resume(verb="evaluating")
        trainer.graph.send_weights(trainer.run.order)
        if trainer.graph.evaluate is None:
            raise UserError("evaluation.size is 0: there is nothing to evaluate")
        # Not the trainer's own method, which records episodes and the best step as the run's.
        evaluation = trainer.graph.evaluate()
        for note in evaluation.notes:
            display.warn(note)
    before = {} if changed else trainer.run.progress.before
    columns = {"before training": before} if before else {}
    order = trainer.run.order
    show(display.console, {**columns, f"after {trainer.run.where}": evaluation.metrics}, evaluation.samples)
    if changed:
        display.print_line("Other settings than those of the run's own evaluations: " + "; ".join(changed))
    with naming_disk_errors(path), unless_read_only(path, display.print_line):
        display.print_line(f"Saved, with its settings, as {save_evaluation(path, order, config, changed, evaluation)}")
    for line in files.write(evaluation.responses):
        display.print_line(line)
    return RunResult(evaluation.metrics, path)


def progress_display(config: Config) -> ProgressDisplay:
    """Build the display of a run, or an evaluation, from `logging`."""
    return ProgressDisplay(
        name=config.run.name,
        mode=config.logging.progress,
        total=config.run.max_steps,
        done=0,
        plain_every=config.logging.plain_every,
    )
