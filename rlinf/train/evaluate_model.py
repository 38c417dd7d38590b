"""Evaluates a bare model, or any checkpoint of a run, on data of one's choice: samplers and verifiers, no learner."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlinf.base.durable import naming_disk_errors, unless_read_only
from rlinf.base.errors import UserError
from rlinf.cluster import connect
from rlinf.config import Config
from rlinf.config.record import stored_yaml
from rlinf.config.stored import load_stored
from rlinf.models.checkpoint_files import without_weights
from rlinf.models.loading import PolicyError
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.text import build_text_evaluator
from rlinf.train.evaluation.chosen_data import Choice, evaluation_config
from rlinf.train.evaluation.responses import NO_FILES, ResponseFiles
from rlinf.train.evaluation.saved import save_evaluation
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.run import UNSAVED, RunResult, progress_display, require_extras, stopped_with
from rlinf.train.run_dir import RunDirectory, machine, write_atomically
from rlinf.train.stored_run import run_of_checkpoint, stored_run
from rlinf.train.tracking.summary import show


def evaluate_model(
    model: str,
    choice: Choice,
    overrides: Sequence[str] = (),
    *,
    step: int | None = None,
    out: str | None = None,
    files: ResponseFiles = NO_FILES,
) -> RunResult:
    """Evaluate ``model`` (a Hugging Face folder, a hub name, or a run) on ``choice``; print, save and return it.

    Of a run, the checkpoint of ``step`` or the newest; the result goes into the run's `evaluations`. That of a
    bare model goes into ``out`` (`runs/eval_NAME`), a folder that `rlinf report` and `rlinf compare` read like a
    run. ``files``: where the responses are written, too.

    Raises:
        UserError: there is no such model, checkpoint or data, or ``files`` cannot be written.
    """
    location = run_of_checkpoint(Path(model))
    if location is None:
        if step is not None:
            raise UserError(f"--step {step} is for a run directory, and {model} is none")
        wrong = without_weights(model)
        if wrong is not None:
            raise PolicyError(wrong.what)
        config = evaluation_config(model, choice, overrides, room=_positions(model))
        folder = Path(out or Path("runs") / f"eval_{Path(model).name}")
        evaluation = _evaluate(config, f"{model} on {choice.label}", files)
        path = _save_bare(folder, config, choice.label, evaluation)
        return _result(evaluation, folder, path, files)
    run, named = location
    if out is not None:
        raise UserError("--out is for bare models: evaluations of a run are kept in the run")
    with _exported(stored_run(run, step if named is None else named)) as (result, policy):
        trained = load_stored(run / "config.yaml")
        config = evaluation_config(policy, choice, overrides, trained=trained, room=_positions(policy))
        evaluation = _evaluate(config, f"step {result} of {run} on {choice.label}", files)
        _report_trained_questions(trained, config)
    saved: Path | None = None
    with naming_disk_errors(run), unless_read_only(run, print):
        saved = save_evaluation(run, result, config, [], evaluation, model=str(run), label=choice.label)
    return _result(evaluation, run, saved, files)


def _save_bare(folder: Path, config: Config, label: str, evaluation: Evaluation) -> Path:
    """Save the evaluation of a model without a run, in a folder that reports read; return the evaluation's file."""
    with naming_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        path = save_evaluation(folder, 0, config, [], evaluation, model=str(config.policy.path), label=label)
        write_atomically(folder / "config.yaml", stored_yaml(config))
        write_atomically(folder / "machine.json", json.dumps(machine(), indent=2))
        write_atomically(folder / "metrics.jsonl", json.dumps({"step": 0, **evaluation.metrics}) + "\n")
    return path


def _result(evaluation: Evaluation, folder: Path, path: Path | None, files: ResponseFiles) -> RunResult:
    if path is not None:
        print(f"Saved, with its settings and the outcome of each task, as {path}")
    for line in files.write(evaluation.responses):
        print(line)
    return RunResult(evaluation.metrics, folder)


def _evaluate(config: Config, title: str, files: ResponseFiles) -> Evaluation:
    require_extras(config)
    files.require(config)
    setup = ResolvedRun.of(config)
    with (
        stopped_with(UNSAVED),
        tempfile.TemporaryDirectory(prefix="rlinf_eval_") as scratch,
        progress_display(config) as display,
        connect(setup.cluster) as cluster,
    ):
        display.print_line(f"{title}: starting workers ({config.cluster.backend})")
        evaluator = build_text_evaluator(setup, cluster, Path(scratch))
        sampling = f"{config.evaluation.samples} each, temperature {config.evaluation.temperature:g}"
        display.print_line(
            f"{len(evaluator.task_ids)} tasks, {sampling}, at most {config.rollout.max_new_tokens} tokens"
        )
        evaluation = evaluator.evaluate()
        for note in evaluation.notes:
            display.warn(note)
    show(display.console, {title: evaluation.metrics}, evaluation.samples)
    return evaluation


def _report_trained_questions(trained: Config, config: Config) -> None:
    """Print how many of the evaluated questions stand in the run's training data, if that can still be read."""
    from rlinf.train.assemble.conversations import conversation_envs

    before, now = conversation_envs(trained), conversation_envs(config)
    try:
        evaluated = now.questions("eval")
        shared = len(evaluated & before.questions("train"))
    except (Exception, SystemExit) as error:  # a constructor of the user's environment may raise anything
        print(f"The training data of the run could not be compared: {error}")
    else:
        if shared:
            print(f"{shared:,} of the {len(evaluated):,} questions are also among the run's training data")
    finally:
        before.close()
        now.close()


@contextlib.contextmanager
def _exported(directory: RunDirectory) -> Iterator[tuple[int, str]]:
    """(step, folder) of the policy in the checkpoint that ``directory`` shows, for as long as it is used."""
    result = directory.latest()
    assert result is not None
    if load_stored(directory.path / "config.yaml").policy.name != "causal_lm":
        raise UserError(f"--data and --suite are for language models, and {directory.path} trained another policy")
    from rlinf.train.export_checkpoint import export_checkpoint

    with tempfile.TemporaryDirectory(prefix="rlinf_policy_") as scratch:
        policy = Path(scratch) / directory.path.name
        export_checkpoint(result.folder, None, policy)
        yield result.step, str(policy)


def _positions(model: str) -> int | None:
    """Return the tokens that a model has positions for; None if its configuration does not state it."""
    from rlinf.models.loading import checkpoint_config

    result = getattr(checkpoint_config(model).get_text_config(), "max_position_embeddings", None)
    return int(result) if result else None
