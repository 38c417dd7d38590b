"""Whole runs: what they leave behind, that they repeat, and that they go on where they stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_runs import config, logged, mapping, run

import rlinf.train
from rlinf.config import ConfigErrors
from rlinf.train import evaluate_run
from rlinf.train.run_dir import RunDirectoryError


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def steps(folder: Path) -> list[int]:
    return [line["step"] for line in logged(folder)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(config(folder))
    return folder


def test_a_run_leaves_everything_behind(finished: Path) -> None:
    assert steps(finished) == [0, 1, 2, 3, 4]
    output = summary(finished)
    assert output["status"] == "completed"
    for name in ("eval/accuracy", "eval/accuracy/ci_low", "eval/accuracy/ci_high", "eval/accuracy/n"):
        assert name in output["metrics"]
        assert name in output["initial_metrics"]
    lines = logged(finished)
    for name in ("reward/mean", "rollout/accuracy", "rollout/response_length", "train/grad_norm", "train/loss"):
        assert name in lines[-1]
    for name in ("reward/constant_groups", "train/sampler_logprob_gap", "time/step_s", "speed/tokens_per_s"):
        assert name in lines[-1]
    samples = [json.loads(line) for line in (finished / "samples" / "step_000001.jsonl").read_text().splitlines()]
    assert len(samples) == 8
    assert {"prompt", "response", "verdict", "reward", "advantage"} <= set(samples[0])


def test_changed_inputs_are_measured_and_the_first_evaluation_can_be_left_out(finished: Path, tmp_path: Path) -> None:
    changed = {"questions": ["blank", "swapped"], "wrong_tools": True, "at_start": False}
    run(config(tmp_path / "run", evaluation=changed, algorithm={"reward_noise": 1.0}))
    lines = logged(tmp_path / "run")
    measured = {"eval/accuracy", "eval/blank_questions", "eval/swapped_questions", "eval/wrong_tools"}
    assert not measured & lines[0].keys()
    assert measured <= lines[-1].keys()
    # The first responses are those of the other run, and exchanged rewards have the same mean.
    noisy, usual = lines[1], logged(finished)[1]
    assert noisy["reward/mean"] == usual["reward/mean"]
    assert noisy["train/grad_norm"] != usual["train/grad_norm"]


def test_every_step_of_the_tiny_run_moves_the_weights(finished: Path) -> None:
    """Without a gradient, the tests below that compare parameters would prove nothing about training."""
    lines = logged(finished)
    assert all(line["train/grad_norm"] > 0 for line in lines[1:])


def test_sampler_and_learner_agree_on_log_probabilities(finished: Path) -> None:
    for line in logged(finished)[1:]:
        assert line["train/sampler_logprob_gap_max"] < 1e-4


def test_the_exported_policy_loads(finished: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(finished / "policy")
    tokens = AutoTokenizer.from_pretrained(finished / "policy")("1 + 1 =", return_tensors="pt")
    assert model(tokens["input_ids"]).logits.isfinite().all()


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others(finished: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "again"))
    run(config(tmp_path / "other", run={"seed": 1}))
    assert summary(tmp_path / "again")["params_sha256"] == summary(finished)["params_sha256"]
    assert summary(tmp_path / "other")["params_sha256"] != summary(finished)["params_sha256"]


@pytest.mark.usefixtures("ray_session")
def test_ray_gives_what_one_process_gives(finished: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "ray", cluster={"backend": "ray"}))
    assert summary(tmp_path / "ray")["params_sha256"] == summary(finished)["params_sha256"]


def test_the_number_of_workers_does_not_change_what_is_sampled(finished: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "wide", env={"num_workers": 2}, rollout={"num_samplers": 2}))

    def responses(folder: Path) -> list[str]:
        return [
            json.loads(line)["response"] for line in (folder / "samples/step_000001.jsonl").read_text().splitlines()
        ]

    assert responses(tmp_path / "wide") == responses(finished)


def test_a_finished_run_is_reported_and_left_alone(finished: Path) -> None:
    before = (finished / "metrics.jsonl").read_text()
    result = run(config(finished))
    assert result.metrics == summary(finished)["metrics"]
    assert (finished / "metrics.jsonl").read_text() == before


def test_a_longer_run_continues_the_shorter_one_exactly(tmp_path: Path) -> None:
    run(config(tmp_path / "straight", run={"max_steps": 5}))
    run(config(tmp_path / "stopped", run={"max_steps": 2}))
    run(config(tmp_path / "stopped", run={"max_steps": 5}))
    assert summary(tmp_path / "stopped")["params_sha256"] == summary(tmp_path / "straight")["params_sha256"]
    assert steps(tmp_path / "stopped") == [0, 1, 2, 3, 4, 5]


def test_a_run_continued_where_its_checkpoint_stands_is_evaluated_there(tmp_path: Path) -> None:
    """Its metrics would otherwise be those of the evaluation before training, under the name of the last step."""

    class Killed(Exception):
        pass

    def kill(step: int) -> None:
        if step == 3:
            raise Killed

    sections: dict[str, Any] = {"learner": {"optimizer": {"lr": 0.3}}}
    with pytest.raises(Killed):
        rlinf.train.run(config(tmp_path, **sections), report=False, after_step=kill)
    shorter = config(tmp_path, run={"max_steps": 3}, **sections)
    result = run(shorter)
    output = summary(tmp_path)
    assert output["steps"] == 3
    assert output["metrics"] == result.metrics == evaluate_run(tmp_path).metrics
    assert output["metrics"] != output["initial_metrics"]


@pytest.mark.slow  # with every commit: tests/faults/test_kill_and_resume.py, on Ray, and test_simulator_runs.py
@pytest.mark.parametrize("pause_s", [0.0, 0.06])
def test_a_killed_run_ends_with_the_parameters_of_an_uninterrupted_one(tmp_path: Path, pause_s: float) -> None:
    """Killed once in the warm start and once in training, between steps or inside one."""
    sections: dict[str, Any] = {"run": {"max_steps": 12}, "sft": {"steps": 12}, "checkpoint": {"every": 3}}
    run(config(tmp_path / "straight", **sections))
    cut = tmp_path / "cut"
    file = tmp_path / "cut.yaml"
    file.write_text(yaml.safe_dump(mapping(cut, **sections)))
    command = [sys.executable, "-m", "rlinf.cli", "train", str(file)]
    for reached in (lambda: any((cut / "checkpoints").glob("step_*")), lambda: len(steps(cut)) > 4):
        process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if cut.exists() and (cut / "config.yaml").exists() and _holds(reached):
                time.sleep(pause_s)
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert subprocess.run(command, timeout=120, check=False).returncode == 0
    assert summary(cut)["params_sha256"] == summary(tmp_path / "straight")["params_sha256"]
    assert steps(cut) == list(range(13))


def _holds(reached: Any) -> bool:
    try:
        return bool(reached())
    except (OSError, ValueError, KeyError):
        return False


def test_a_checkpoint_cut_short_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config(tmp_path / "straight", run={"max_steps": 4}))
    run(config(tmp_path / "hurt", run={"max_steps": 3}))
    newest = sorted((tmp_path / "hurt" / "checkpoints").glob("step_*"))[-1] / "learner.pt"
    newest.write_bytes(newest.read_bytes()[:100])
    run(config(tmp_path / "hurt", run={"max_steps": 4}, logging={"progress": "plain"}))
    assert "cut short" in capsys.readouterr().out
    assert summary(tmp_path / "hurt")["params_sha256"] == summary(tmp_path / "straight")["params_sha256"]


def test_another_configuration_in_the_same_directory_is_refused(finished: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"learner\.optimizer\.lr"):
        run(config(finished, learner={"optimizer": {"lr": 5e-4}}))


def test_resume_never_and_must(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"run\.resume is never"):
        run(config(finished, run={"resume": "never"}))
    with pytest.raises(RunDirectoryError, match="no checkpoint"):
        run(config(tmp_path / "empty", run={"resume": "must"}))


def test_a_run_directory_can_be_evaluated_again(finished: Path) -> None:
    again = evaluate_run(str(finished)).metrics
    assert again["eval/accuracy"] == summary(finished)["metrics"]["eval/accuracy"]


def test_an_evaluation_is_saved_with_its_settings_and_compared_only_with_equal_ones(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("evaluations"))
    logged = (folder / "metrics.jsonl").read_bytes()
    loud = "logging.progress=plain"
    evaluate_run(str(folder), [loud, "evaluation.every=7"])
    equal = capsys.readouterr().out
    assert "before training" in equal
    assert f"Saved, with its settings, as {folder}/evaluations/step_000004.json" in equal
    evaluate_run(str(folder), [loud, "evaluation.samples=2", "evaluation.temperature=0.6"])
    unlike = capsys.readouterr().out
    assert "before training" not in unlike
    assert "evaluation.samples: 1 -> 2" in unlike
    saved = json.loads((folder / "evaluations" / "step_000004_2.json").read_text())
    assert set(saved["changed"]) == {"evaluation.samples: 1 -> 2", "evaluation.temperature: 0.0 -> 0.6"}
    assert saved["settings"]["evaluation"]["samples"] == 2
    assert "eval/pass@2" in saved["metrics"]
    assert (folder / "metrics.jsonl").read_bytes() == logged


def test_a_batch_with_nan_is_saved_and_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlinf.train import loop
    from rlinf.train.quarantine import BadBatch

    collect = loop.Trainer.collect

    def poisoned(self: loop.Trainer, step: int) -> Any:
        batch, metrics = collect(self, step)
        return (batch.replace(rewards=batch.rewards * torch.nan) if step == 1 else batch), metrics

    monkeypatch.setattr(loop.Trainer, "collect", poisoned)
    with pytest.raises(BadBatch, match=r"rewards is NaN.*step_000001\.pt"):
        run(config(tmp_path / "bad"))
    assert (tmp_path / "bad" / "quarantine" / "step_000001.pt").exists()
    assert steps(tmp_path / "bad") == [0, 1]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"adv_type": "rloo"},
        {"adv_type": "reinforce_pp", "kl_coef": 0.01, "add_token_level_kl": True},
        {"loss_type": "gspo", "loss_agg_func": "seq-mean-token-mean", "num_minibatches": 2},
        {"kl_beta": 0.1, "ref_update_every": 2, "entropy_bonus": 0.01},
        {"dynamic_sampling": True, "max_resample": 2},
        {"rollout_correction": {"level": "token"}},
        {"adv_type": "remax"},
        {"adv_type": "gigpo", "step_weight": 0.5, "dynamic_sampling": True},
        {"max_len_mask": True, "overlong_penalty": {"safe_length": 2, "max_length": 4, "coef": 0.5}},
    ],
    ids=lambda algorithm: "-".join(algorithm),
)
def test_options_of_the_algorithm_layer_run(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    run(config(tmp_path / "run", run={"max_steps": 2}, sft={"steps": 0}, algorithm=algorithm))
    assert summary(tmp_path / "run")["status"] == "completed"


def test_ppo_with_a_critic_runs(tmp_path: Path) -> None:
    ppo = {"adv_type": "gae", "loss_type": "actor_critic", "group_size": 1, "update_epochs": 2}
    run(config(tmp_path / "run", policy={"value_head": True}, algorithm=ppo, sft={"steps": 0}))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert "train/value_loss" in last


def test_a_run_goes_on_from_an_exported_policy(finished: Path, tmp_path: Path) -> None:
    """The same weights and the same token ids; the folder's own kind of model must not bring other splitting rules."""
    from rlinf.models.loading import load_tokenizer

    start = {"path": str(finished / "policy"), "architecture": {}, "tokenizer": {}}
    run(config(tmp_path / "run", run={"max_steps": 1}, policy=start, sft={"steps": 0}))
    before, after = summary(tmp_path / "run")["initial_metrics"], summary(finished)["metrics"]
    assert {name: before[name] for name in after} == after
    text = "State the final answer: 17 + 28 =\n#### 45"
    trained, exported, copied = (
        load_tokenizer(str(folder))
        for folder in (finished / "tokenizer", finished / "policy", tmp_path / "run/tokenizer")
    )
    assert exported.encode(text) == copied.encode(text) == trained.encode(text)
    assert len(exported) == len(trained)


def test_a_conversation_with_a_tool_runs(tmp_path: Path) -> None:
    sums = tmp_path / "sums.jsonl"
    sums.write_text("".join(json.dumps({"question": f"{n} + 3 =", "answer": str(n + 3)}) + "\n" for n in range(40)))
    env = {"id": "rlinf_envs:rlinf/MathToolLoop-v0", "kwargs": {"path": str(sums)}, "max_turns": 3}
    sections: dict[str, Any] = {"run": {"max_steps": 2}, "sft": {"steps": 0}, "rollout": {"max_new_tokens": 8}}
    # Both are of the conversation as a whole.
    algorithm = {"reward_norm": "group", "overlong_penalty": {"safe_length": 2, "max_length": 8, "coef": 0.5}}
    run(config(tmp_path / "run", env=env, algorithm=algorithm, **sections))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["train/sampler_logprob_gap_max"] < 1e-4


def test_lora_with_a_reference_runs(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    run(config(tmp_path / "run", policy={"lora": {"rank": 2}}, algorithm={"kl_beta": 0.1}, sft={"steps": 0}))
    assert summary(tmp_path / "run")["status"] == "completed"


def test_a_wrong_configuration_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match="group_size"):
        config(tmp_path / "run", algorithm={"group_sise": 4})
    assert not (tmp_path / "run").exists()
