"""`evaluation.background`: the learner trains on while its weights of before are evaluated, and every number stays."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import text_envs
import tiny_runs
from disturbed_runs import RayRun, await_nothing_left, family, params_sha256, write_config

from rlinf.config.problems import ConfigErrors
from rlinf.train import run
from rlinf.train.callbacks import Callback, Step
from rlinf.train.evaluation.text import TextEvaluator
from rlinf.train.loop import Trainer

AHEAD: dict[str, Any] = {
    "rollout": {"staleness": 1},
    "algorithm": {"adv_type": "remax", "loss_type": "decoupled"},
    "run": {"max_steps": 5},
    "evaluation": {"every": 2, "background": True, "samples": 2, "temperature": 1.0},
    "checkpoint": {"every": 1, "keep": 1, "best_metric": "eval/reward"},
}
CONTINUOUS = {**AHEAD, "rollout": {"staleness": 2}, "algorithm": {"loss_type": "decoupled"}}


def settings(folder: Path, *, base: Any = AHEAD, background: bool = True, **sections: Any) -> Any:
    evaluation = {**base["evaluation"], "background": background}
    return tiny_runs.config(folder, **{**base, "evaluation": evaluation, **sections})


def evaluated(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """The numbers of each evaluation with its step, in the order of their lines."""
    lines = [
        (line["step"], {k: v for k, v in line.items() if k.startswith("eval/")}) for line in tiny_runs.logged(folder)
    ]
    return [(step, numbers) for step, numbers in lines if numbers]


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


@pytest.fixture(scope="module")
def blocking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation") / "run"
    run(settings(folder, background=False), report=False)
    return folder


def assert_same(folder: Path, blocking: Path) -> None:
    assert evaluated(folder) == evaluated(blocking)
    assert [line["step"] for line in tiny_runs.logged(folder)] == [line["step"] for line in tiny_runs.logged(blocking)]
    assert summary(folder)["params_sha256"] == summary(blocking)["params_sha256"]
    kept = [sorted(path.name for path in (one / "checkpoints").iterdir()) for one in (folder, blocking)]
    assert kept[0] == kept[1]


def test_numbers_steps_and_best_checkpoint_are_those_of_waiting(blocking: Path, tmp_path: Path) -> None:
    run(settings(tmp_path / "run"), report=False)
    assert [step for step, _ in evaluated(blocking)] == [0, 2, 4, 5]
    assert len({numbers["eval/reward"] for _, numbers in evaluated(blocking)}) > 1
    assert_same(tmp_path / "run", blocking)
    hidden = [line["time/evaluation_hidden_s"] for line in tiny_runs.logged(tmp_path / "run")[2:5:2]]
    assert hidden == [0.0, 0.0]  # in one process nothing runs in parallel


@pytest.mark.slow
def test_continuous_generation_begins_after_the_evaluation(tmp_path: Path) -> None:
    for name, background in (("later", True), ("blocking", False)):
        run(settings(tmp_path / name, base=CONTINUOUS, background=background), report=False)
    assert_same(tmp_path / "later", tmp_path / "blocking")


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_run_that_breaks_off_around_an_evaluation_goes_on_bit_for_bit(
    blocking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """In step 2 the evaluation after step 2 is done and not yet written; in step 3 it is written."""
    whole = Trainer.update

    def breaking(trainer: Trainer, batch: Any, number: int) -> Any:
        if number == step:
            raise KeyboardInterrupt
        return whole(trainer, batch, number)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", breaking)
        with pytest.raises(KeyboardInterrupt):
            run(settings(tmp_path / "run"), report=False)
    assert [number for number, _ in evaluated(tmp_path / "run")] == [0, 2][: step - 1]
    run(settings(tmp_path / "run"), report=False)
    assert_same(tmp_path / "run", blocking)


def test_an_evaluation_that_fails_ends_the_run_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = TextEvaluator.evaluate, iter((False, True))

    def failing(evaluator: TextEvaluator) -> Any:
        if next(calls):
            raise OSError("the grader is gone")
        return whole(evaluator)

    monkeypatch.setattr(TextEvaluator, "evaluate", failing)
    with pytest.raises(OSError, match="the grader is gone"):
        run(settings(tmp_path / "run"), report=False)


class Watching(Callback):
    """Keeps what it is called with, and requests an end after a step."""

    def __init__(self, last: int) -> None:
        self.last, self.seen = last, dict[int, bool]()

    def on_step(self, step: Step) -> None:
        self.seen[step.number] = "eval/reward" in step.metrics
        if step.number == self.last:
            step.stop("enough")


def test_callbacks_see_each_step_once_with_its_evaluation_and_stop_one_step_later(tmp_path: Path) -> None:
    watching = Watching(2)
    result = run(settings(tmp_path / "run"), report=False, callbacks=[watching])
    assert watching.seen == {1: False, 2: True, 3: False}
    assert result.stopped == "enough"
    assert [step for step, _ in evaluated(tmp_path / "run")] == [0, 2, 3]


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"rollout": {"staleness": 0}, "algorithm": {}}, "samplers and learner wait for each other"),
        ({"evaluation": {"every": 0, "background": True}}, "no evaluation falls between two steps"),
        ({"sft": {"steps": 2, "data": "rows.jsonl", "eval_fraction": 0.1}}, "measures sft.eval_fraction"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, sections: Any, reason: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1=", "response": "2"}\n' * 20)
    sections = {**AHEAD, **sections}
    if "data" in sections.get("sft", {}):
        sections["sft"]["data"] = str(tmp_path / "rows.jsonl")
    with pytest.raises(ConfigErrors, match=reason):
        tiny_runs.config(tmp_path / "run", **sections)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_on_ray_part_of_an_evaluation_is_hidden_and_its_numbers_are_the_same(blocking: Path, tmp_path: Path) -> None:
    run(settings(tmp_path / "run", cluster={"backend": "ray"}), report=False)
    assert_same(tmp_path / "run", blocking)
    hidden = [line["time/evaluation_hidden_s"] for line in tiny_runs.logged(tmp_path / "run")[2:5:2]]
    assert all(seconds > 0 for seconds in hidden)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("staleness", [1, 2])
def test_on_ray_conversations_with_tools_are_evaluated_while_sessions_are_open(tmp_path: Path, staleness: int) -> None:
    """Two samplers and two env workers: with staleness 2 conversations of training begin and end around it."""
    kwargs = {**text_envs.lines(tmp_path), "max_turns": 3, "most_s": 0.02}
    base: dict[str, Any] = {
        **(AHEAD if staleness == 1 else CONTINUOUS),
        "run": {"max_steps": 3},
        "env": {"id": text_envs.SLOW_TOOLS, "kwargs": kwargs, "max_turns": 3},
        "policy": {"tokenizer": {"vocab_size": 300}},
        "rollout": {"staleness": staleness, "num_samplers": 2, "batch_size": 4, "max_new_tokens": 8},
        "sft": {"steps": 0},
    }
    base["evaluation"] = {**base["evaluation"], "env_kwargs": {}, "size": 4}
    env = {**base["env"], "num_workers": 2}
    run(settings(tmp_path / "later", base=base, env=env, cluster={"backend": "ray"}), report=False)
    assert tiny_runs.logged(tmp_path / "later")[2]["time/evaluation_hidden_s"] > 0
    if staleness > 1:  # what is collected then depends on arrivals, which the log repeats
        base["rollout"]["replay_arrivals"] = str(tmp_path / "later")
    run(settings(tmp_path / "waiting", base=base, background=False), report=False)
    assert [step for step, _ in evaluated(tmp_path / "later")] == [0, 2, 3]
    assert_same(tmp_path / "later", tmp_path / "waiting")


@pytest.mark.slow
def test_a_driver_killed_in_a_background_evaluation_goes_on_bit_for_bit(blocking: Path, tmp_path: Path) -> None:
    file = write_config(tmp_path, **{**AHEAD, "sft": {}, "cluster": {"backend": "ray"}})
    with RayRun(file) as disturbed:
        disturbed.await_line(r"step 2: evaluate in the background")
        processes, folder = family(disturbed.pid), disturbed.folder()
        assert folder is not None
        disturbed.send("driver", signal.SIGKILL)
        assert disturbed.wait() == -signal.SIGKILL
        await_nothing_left(processes, folder)
    assert [step for step, _ in evaluated(tmp_path / "run")] == [0]
    with RayRun(file) as resumed:
        assert resumed.wait() == 0, resumed.output
    assert params_sha256(tmp_path) == summary(blocking)["params_sha256"]
    assert evaluated(tmp_path / "run") == evaluated(blocking)
