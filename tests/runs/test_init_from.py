"""`run.init_from`: what a run carries over from another one, what is new, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import simulator_runs
import torch
from tiny_runs import config, logged
from tiny_runs import run as train

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import Config
from rlinf.config.record import stored_yaml
from rlinf.train.run_dir import RunDirectoryError
from rlinf.train.run_state import RunState

KEEP_ALL = {"every": 1, "keep": 9}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "run"
    train(config(folder, run={"max_steps": 2}, checkpoint=KEEP_ALL))
    return folder


def later(folder: Path, source: object, **sections: dict[str, Any]) -> Config:
    """A run with another learning rate and without a warm start that begins with ``source``."""
    run = {"max_steps": 2, "init_from": str(source), **sections.pop("run", {})}
    fixed = {"sft": {"steps": 0}, "learner": {"optimizer": {"lr": 1e-4}}, "checkpoint": KEEP_ALL}
    return config(folder, run=run, **{**fixed, **sections})


def learner(folder: Path, step: int) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / "checkpoints" / f"step_{step:06d}" / "learner.pt", weights_only=True)
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def digest(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


def test_weights_tokenizer_and_nothing_else_are_carried_over(
    earlier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    train(later(folder, f"{earlier}@1", logging={"progress": "plain"}))
    output = capsys.readouterr().out
    assert f"begins with {earlier}@1" in output
    assert "carried over: weights and running statistics of the policy, tokenizer" in output
    assert "learner.optimizer.lr: 0.001 -> 0.0001" in " ".join(output.split())
    begun = learner(folder, 0)
    assert same(begun["policy"], learner(earlier, 1)["policy"])
    assert begun["optimizer"]["state"] == {}
    assert begun["optimizer_steps"] == 0
    assert (folder / "tokenizer" / "tokenizer.json").read_bytes() == (earlier / "tokenizer/tokenizer.json").read_bytes()
    assert [line["step"] for line in logged(folder)] == [0, 1, 2]
    assert logged(folder)[1]["train/lr"] == pytest.approx(1e-4)
    # The policy that is evaluated first is the one that was carried over.
    at_the_time = {name: value for name, value in logged(earlier)[1].items() if name == "eval/reward"}
    assert all(logged(folder)[0][name] == value for name, value in at_the_time.items())
    record = json.loads((folder / "init_from.json").read_text())
    assert (record["run"], record["step"], record["optimizer"]) == (str(earlier), 1, False)


def test_the_optimisers_state_comes_along_if_configured(earlier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(later(folder, earlier, run={"init_optimizer": True}))
    before, begun = learner(earlier, 2)["optimizer"], learner(folder, 0)["optimizer"]
    assert begun["state"].keys() == before["state"].keys()
    assert all(same(begun["state"][index], before["state"][index]) for index in begun["state"])
    assert begun["param_groups"][0]["peak_lr"] == 1e-4
    plain = tmp_path / "plain"
    train(later(plain, earlier))
    assert digest(plain) != digest(folder)


class Stop(Exception):
    """Raised instead of a kill."""


def test_the_new_run_resumes_bit_for_bit_and_without_the_earlier_one(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(earlier, copy)
    train(later(tmp_path / "straight", copy))
    save = RunState.save

    def stopping(self: RunState) -> None:
        save(self)
        if self.progress.step == 0:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "save", stopping)
        with pytest.raises(Stop):
            train(later(tmp_path / "cut", copy))
    shutil.rmtree(copy)
    train(later(tmp_path / "cut", copy))
    assert digest(tmp_path / "cut") == digest(tmp_path / "straight")


def test_the_reference_policy_is_the_one_that_the_run_began_with(earlier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(later(folder, earlier, run={"max_steps": 1}, algorithm={"kl_beta": 0.1}))
    assert same(learner(folder, 1)["reference"], learner(earlier, 2)["policy"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": {"value_head": True}, "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"}}, "value_head"),
        ({"run": {"init_from": "{}@7"}}, "there are those of"),
        ({"run": {"init_from": "nowhere"}}, "nowhere is no run directory"),
        ({"learner": {"backend": "fsdp"}, "run": {"init_optimizer": True}}, "fits that backend only"),
        (
            {"learner": {"optimizer": {"name": "rmsprop"}}, "run": {"init_optimizer": True}},
            "the optimiser state of adamw is none of rmsprop",
        ),
    ],
)
def test_what_cannot_be_carried_over_is_refused_with_the_fix(
    earlier: Path, tmp_path: Path, change: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {
        name: str(value).format(earlier) if name == "init_from" else value
        for name, value in change.get("run", {}).items()
    }
    wanted = later(tmp_path / "run", earlier, **{**change, "run": run})
    with pytest.raises(UserError, match=words):
        train(wanted)
    file = tmp_path / "later.yaml"
    file.write_text(stored_yaml(later(tmp_path / "other", earlier, **{**change, "run": run})))
    assert main(["check", str(file)]) == 2
    output = " ".join(capsys.readouterr().out.split())
    assert words in output
    assert "run.init_from: run.init_from:" not in output


def test_weights_of_other_shapes_are_refused_by_name(tmp_path: Path) -> None:
    simulator_runs.summary(tmp_path / "cartpole", "ppo", 2)
    with pytest.raises(UserError, match=r"is of another network: .*\[16, 4\] in the checkpoint and \[16, 3\] here"):
        simulator_runs.summary(tmp_path / "pendulum", "ppo_normalised", 2, [f"run.init_from={tmp_path / 'cartpole'}"])


@pytest.mark.parametrize("kind", ["ppo_normalised", pytest.param("sac", marks=pytest.mark.slow)])
def test_simulator_policies_are_carried_over(tmp_path: Path, kind: str) -> None:
    simulator_runs.summary(tmp_path / "a", kind, 4)
    changed = [f"run.init_from={tmp_path / 'a'}", "learner.optimizer.lr=0.0001", "run.init_optimizer=true"]
    simulator_runs.summary(tmp_path / "b", kind, 2, [*changed, "checkpoint.keep=9"])
    before, begun = learner(tmp_path / "a", 4), learner(tmp_path / "b", 0)
    assert same(before["policy"], begun["policy"])
    if kind == "sac":
        assert same(before["target"], begun["target"])
        assert begun["updates"] == 0
        assert begun["actor_optimizer"]["state"].keys() == before["actor_optimizer"]["state"].keys()


@pytest.mark.parametrize(
    ("first", "second"),
    [("fsdp", "fsdp"), *(pytest.param(*two, marks=pytest.mark.slow) for two in (("fsdp", "torch"), ("torch", "fsdp")))],
)
def test_sharded_learners_read_and_write_them_too(tmp_path: Path, first: str, second: str) -> None:
    short = {"max_steps": 1}
    train(config(tmp_path / "a", run=short, learner={"backend": first}, sft={"steps": 0}))
    sections = {"learner": {"backend": second, "optimizer": {"lr": 0.0}}}
    wanted = {**short, "init_optimizer": first == second}
    train(later(tmp_path / "b", tmp_path / "a", run=wanted, **sections))
    assert digest(tmp_path / "b") == digest(tmp_path / "a")


@pytest.mark.slow
@pytest.mark.megatron
@pytest.mark.parametrize("carries_optimizer", [False, True])
def test_megatron_learners_begin_with_the_weights_of_one_another(tmp_path: Path, carries_optimizer: bool) -> None:
    if importlib.util.find_spec("megatron") is None:  # importing it here would come before our preparation of it
        pytest.skip("needs megatron-core")
    train(config(tmp_path / "a", run={"max_steps": 1}, learner={"backend": "megatron"}, sft={"steps": 0}))
    sections = {"learner": {"backend": "megatron", "optimizer": {"lr": 0.0}}}
    wanted = {"max_steps": 1, "init_optimizer": carries_optimizer}
    train(later(tmp_path / "b", tmp_path / "a", run=wanted, **sections))
    assert digest(tmp_path / "b") == digest(tmp_path / "a")
    with pytest.raises(UserError, match=r"rlinf export .* OUT --step 1"):
        train(later(tmp_path / "c", tmp_path / "a"))


def test_other_settings_in_the_same_directory_name_the_way_on(earlier: Path) -> None:
    with pytest.raises(RunDirectoryError, match=rf"add run\.init_from={earlier} to it"):
        train(config(earlier, run={"max_steps": 2}, learner={"optimizer": {"lr": 0.5}}, checkpoint=KEEP_ALL))
