"""The Python API: the same words as the YAML, callbacks that read, log, save, slow down and stop, a policy to use."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from run_callbacks import Halve, StopAt, Watch

import rlinf
from rlinf.base.errors import UserError
from rlinf.config import Config, ConfigErrors
from rlinf.train.run import RunResult

SMALL = (
    "cluster.backend=local",
    "env.num_envs=2",
    "rollout.num_steps=16",
    "evaluation.size=2",
    "logging.progress=none",
    "logging.tensorboard=false",
    "learner.optimizer.schedule=constant",
)


def cartpole(folder: Path, *more: str) -> Config:
    return rlinf.load("cartpole_ppo", f"run.dir={folder}", "run.max_steps=3", *SMALL, *more)


def train(config: Config, *callbacks: rlinf.Callback) -> RunResult:
    return rlinf.fit(config, callbacks=callbacks)


def test_a_mapping_and_overrides_make_a_checked_configuration() -> None:
    sections = {
        "env": {"id": "CartPole-v1"},
        "policy": {"name": "actor_critic"},
        "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
    }
    config = rlinf.load(sections, "run.seed=3", "algorithm.gamma=0.9")
    assert (config.run.seed, config.algorithm.gamma) == (3, 0.9)
    with pytest.raises(ConfigErrors, match=r"algorithm\.gama is not a key"):
        rlinf.load(sections, "algorithm.gama=0.9")


def test_an_update_learns_though_other_code_has_turned_gradients_off(tmp_path: Path) -> None:
    with torch.set_grad_enabled(False):
        assert train(cartpole(tmp_path / "run", "evaluation.size=0")).history[-1]["train/grad_norm"] > 0


def test_a_configuration_that_was_changed_after_it_was_loaded_is_checked_again(tmp_path: Path) -> None:
    config = cartpole(tmp_path / "run", "evaluation.size=0")
    wrong = replace(
        config,
        run=replace(config.run, max_steps=-1),
        rollout=replace(config.rollout, num_steps="many"),  # type: ignore[arg-type]
        algorithm=replace(config.algorithm, adv_type="gea"),
    )
    for call in (rlinf.fit, functools.partial(rlinf.check, build=False)):
        with pytest.raises(ConfigErrors) as raised:
            call(wrong)
        assert {problem.key for problem in raised.value.problems} >= {
            "run.max_steps",
            "rollout.num_steps",
            "algorithm.adv_type",
        }
        assert "the configuration given to rlinf." in str(raised.value)
    config.algorithm.options["no_such_option"] = 1  # type: ignore[index]
    with pytest.raises(ConfigErrors, match="no_such_option"):
        rlinf.check(config, build=False)
    assert not (tmp_path / "run").exists()


def test_a_configuration_that_was_changed_well_is_taken(tmp_path: Path) -> None:
    config = cartpole(tmp_path / "run", "evaluation.size=0")
    changed = replace(config, run=replace(config.run, dir=tmp_path / "other", seed=np.int64(7)))
    plan = rlinf.check(changed, build=False)
    assert str(plan) == str(rlinf.check(cartpole(tmp_path / "other", "evaluation.size=0", "run.seed=7"), build=False))


def test_check_gives_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    plan = rlinf.check(cartpole(tmp_path / "run"), build=False)
    assert "CartPole-v1" in str(plan)
    assert not (tmp_path / "run").exists()


class Misfit(rlinf.Callback):
    def on_step(self) -> None:  # type: ignore[override]
        """Without what it is called with."""


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [
        (rlinf.EarlyStopping("eval/return"), "callbacks must be a list, not an EarlyStopping"),
        ([rlinf.EarlyStopping], "callbacks: EarlyStopping is a class: give an object of it"),
        ([print], "callbacks: print has no method on_start: derive its class from rlinf.Callback"),
        ([Misfit()], "callbacks: Misfit.on_step takes no positional arguments, and is called with a Step"),
    ],
)
def test_callbacks_that_cannot_be_called_are_refused_before_anything_starts(
    tmp_path: Path, callbacks: Any, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        rlinf.fit(cartpole(tmp_path / "run"), callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_a_name_instead_of_a_configuration_is_refused_with_how_to_load_one() -> None:
    for function in (rlinf.fit, rlinf.check):
        with pytest.raises(UserError, match=r'is a str, and must be a configuration: rlinf\.load\("quickstart"\)'):
            function("quickstart")  # type: ignore[arg-type]


def test_a_run_with_callbacks(tmp_path: Path) -> None:
    """One run for all of these checks: they are the cheapest together."""
    watch = Watch()
    result = train(cartpole(tmp_path / "run"), watch, Halve())
    assert watch.calls == ["start after 0", "step 1", "step 2", "step 3", "end"]
    assert [line["step"] for line in result.history] == [0, 1, 2, 3]
    assert all("own/double_loss" in line for line in result.history[1:])
    rates = [line["train/lr"] for line in result.history[1:]]
    assert rates[1] == rates[2] == pytest.approx(rates[0] / 2)
    assert result.best("train/lr")["step"] == 1
    assert result.stopped is None

    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    policy = result.policy
    action = policy.act(observation)
    assert env.action_space.contains(action)
    assert policy.act(observation) == action
    env.close()
    with pytest.raises(UserError, match="use act"):
        policy.generate("What is 1 + 1?")

    again = rlinf.evaluate(result, "evaluation.size=3", "logging.progress=none")
    assert again.metrics["eval/return/n"] == 3


def test_a_second_thread_cannot_train_at_the_same_time(tmp_path: Path) -> None:
    """Both would draw from one random generator, and end with other weights than alone."""
    refusals: list[str] = []

    class InAThread(rlinf.Callback):
        def on_step(self, step: rlinf.Step) -> None:
            def other() -> None:
                with pytest.raises(UserError) as caught:
                    rlinf.fit(cartpole(tmp_path / "other"))
                refusals.append(str(caught.value))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    train(cartpole(tmp_path / "run", "run.max_steps=1"), InAThread())
    assert "in another thread of this process" in refusals[0]
    assert not (tmp_path / "other").exists()
    assert train(cartpole(tmp_path / "other", "run.max_steps=1")).metrics


def test_a_stop_evaluates_saves_exports_and_can_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped = train(cartpole(folder), Halve(), StopAt(2))
    assert stopped.stopped == "enough"
    assert stopped.history[-1]["step"] == 2
    assert "eval/return" in stopped.history[-1]
    assert (folder / "policy" / "policy.json").exists()
    assert json.loads((folder / "summary.json").read_text())["steps"] == 2
    watch = Watch()
    resumed = train(cartpole(folder), watch)
    assert watch.calls == ["start after 3", "step 3", "end"]
    # The changed rate is part of the checkpoint.
    straight = train(cartpole(tmp_path / "straight"), Halve())
    assert resumed.history[-1]["train/lr"] == straight.history[-1]["train/lr"]
    assert resumed.history[-1]["train/loss"] == straight.history[-1]["train/loss"]


def test_early_stopping_counts_what_an_earlier_part_of_the_run_saw(tmp_path: Path) -> None:
    config = cartpole(tmp_path)
    stopping = rlinf.EarlyStopping("eval/return", patience=2)
    lines = [{"step": 0, "eval/return": 5.0}, {"step": 1, "eval/return": 4.0}]
    stopping.on_start(rlinf.RunStart(config, Path(), lines))
    step = rlinf.Step(2, rlinf.Config(), Path(), {"eval/return": 3.0})
    stopping.on_step(step)
    assert step.stop_reason is not None
    assert "best 5" in step.stop_reason
    better = rlinf.Step(2, rlinf.Config(), Path(), {"eval/return": 6.0})
    stopping.on_step(better)
    assert better.stop_reason is None


def test_early_stopping_by_a_metric_that_never_comes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"eval/retrun is no metric of .*\. Did you mean eval/return"):
        rlinf.EarlyStopping("eval/retrun").on_start(rlinf.RunStart(cartpole(tmp_path), Path(), []))


def test_numbers_of_numpy_and_paths_are_values_of_a_mapping(tmp_path: Path) -> None:
    sections = {
        "run": {"max_steps": np.int64(3), "dir": tmp_path},
        "env": {"id": "CartPole-v1"},
        "policy": {"name": "actor_critic", "hidden_sizes": np.array([8, 16])},
        "algorithm": {"adv_type": "gae", "loss_type": "actor_critic", "gamma": np.float64(0.5)},
    }
    config = rlinf.load(sections)
    assert (config.run.max_steps, config.run.dir, config.algorithm.gamma) == (3, str(tmp_path), 0.5)
    assert config.policy.hidden_sizes == [8, 16]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None,), "takes a path, a recipe or a mapping, not None"),
        (("quickstart", ["run.seed=1"]), "an override is text, key=value, not a list"),
        (("quickstart", {"run.seed": 1}), "an override is text, key=value, not a dict"),
        (("run: {seed: 1}\nenv: {}\n",), "this is the text of a YAML file"),
        (({"env": {"kwargs": {"reward": {"custom": {"own": lambda response: 1.0}}}}},), "custom.own holds a function"),
        (({"policy": {"path": torch.nn.Linear(2, 2)}},), "policy.path holds a Linear, .* whose path stands here"),
        (({"sft": {"data": iter([{"prompt": "a"}])}},), "sft.data holds a list_iterator"),
    ],
)
def test_what_load_does_not_take_is_named(arguments: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        rlinf.load(*arguments)


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        ([{"role": "user", "content": "hi"}], {}, "a prompt is text, not a dict"),
        ("hi", {"max_new_tokens": 0}, "max_new_tokens 0 must be at least 1"),
        ("hi", {"temperature": -1.0}, "temperature -1.0 at least 0"),
    ],
)
def test_what_generate_does_not_take_is_named(prompts: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        rlinf.Policy(Path("model"), torch.nn.Identity(), tokenizer=object()).generate(prompts, **options)


@pytest.mark.parametrize("path", [".", "", "/"])
def test_a_folder_is_no_file(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigErrors, match=r"is a folder, not a YAML file. Name a file: There are no YAML files in"):
        rlinf.load(path)


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "my home"))
    (tmp_path / "my home").mkdir()
    (tmp_path / "my home" / "run.yaml").write_text("extends: sim/cartpole_ppo\nrun: {seed: 5}\n")
    assert rlinf.load("~/run.yaml").run.seed == 5


def test_a_result_outlives_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["rlinf.train.run"], "run", lambda config, **_: RunResult({}, Path(config.run.dir)))
    result = rlinf.fit(rlinf.load("cartpole_ppo", "run.dir=mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metrics.jsonl").write_text('{"step": 1, "train/loss": 0.5}\n')
    monkeypatch.chdir("/")
    assert result.history == [{"step": 1, "train/loss": 0.5}]
    with pytest.raises(KeyError, match=r"train/los was never logged in .*mine \(did you mean train/loss\?\)"):
        result.best("train/los")


def test_a_schedule_sets_the_rate_of_the_next_step() -> None:
    step = rlinf.Step(4, rlinf.Config(), Path(), {})
    rlinf.LearningRateSchedule(lambda number: 1e-6 / number).on_step(step)
    assert step.lr_scale == pytest.approx(0.25)
    with pytest.raises(ValueError, match="is a metric of the run"):
        rlinf.Step(1, rlinf.Config(), Path(), {"train/loss": 0.0}).log("train/loss", 1.0)


def test_importing_it_is_light() -> None:
    heavy = ("torch", "ray", "transformers", "numpy")
    probe = f"import sys, rlinf; rlinf.load; print(*[name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_everything_public_is_there() -> None:
    for name in dir(rlinf):
        assert getattr(rlinf, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = rlinf.nothing  # type: ignore[attr-defined]
