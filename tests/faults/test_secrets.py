"""No secret is written into a run directory, a page or a sweep's records, or sent to a tracker."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import mapping

from rlinf.base.redaction import hide, public_url, redact_warnings, redacted
from rlinf.cli import main
from rlinf.config import load, load_stored
from rlinf.config.record import MASK, stored, written
from rlinf.config.stored import StoredConfigError
from rlinf.sweep.load import read_sweep_file
from rlinf.sweep.records import open_sweep
from rlinf.sweep.settings import TrialPlan
from rlinf.train.run_dir import RunDirectory, RunDirectoryError

FROM_ENVIRONMENT, LITERAL, AS_OPTION = "s3cret-of-the-shell", "s3cret-in-the-file", "s3cret-for-the-env"


def experiment(folder: Path, **sections: Any) -> Path:
    env = {"API_KEY": "${oc.env:MY_SECRET}", "OTHER_KEY": LITERAL, "PADDED": "Bearer ${oc.env:MY_SECRET}"}
    content = mapping(
        folder,
        run={"max_steps": 1},
        sft={"steps": 0},
        rollout={"batch_size": 2},
        evaluation={"size": 2},
        cluster={"env": env},
        logging={"progress": "plain", "tensorboard": True},
        **sections,
    )
    # Through another key, too: its value is as secret.
    content["env"]["kwargs"]["seed"] = "${oc.env:MY_SEED}"
    path = folder.with_name(f"{folder.name}.yaml")
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", FROM_ENVIRONMENT)
    monkeypatch.setenv("MY_SEED", "7321987")


@pytest.mark.parametrize(
    "overrides",
    [
        ["run.max_steps=${oc.env:MY_SECRET}"],
        ["algorithm.adv_type=${oc.env:MY_SECRET}"],
        ["env.kwargs.reward={custom: {'${oc.env:MY_SECRET}': 1}}"],
        ["env.kwargs.reward={http: {weight: 1, url: '${oc.env:MY_SECRET}'}}"],
        ["env.kwargs.task=${oc.env:MY_SECRET}"],
    ],
)
def test_no_message_about_a_configuration_shows_a_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], overrides: list[str]
) -> None:
    assert main(["check", str(experiment(tmp_path / "run")), *overrides]) == 2
    output = "".join(capfd.readouterr())
    assert FROM_ENVIRONMENT not in output
    assert "${oc.env:MY_SECRET}" in output


def test_hidden_values_are_hidden_in_whatever_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_HIDDEN", "")
    for name, value in {"LONG": "abcd-efgh", "PART": "abcd", "SHORT": "yes", "FOLDER": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
        hide(name)
    text = f"abcd-efgh, abcd: yes in {tmp_path}"
    assert redacted(text) == f"${{oc.env:LONG}}, ${{oc.env:PART}}: yes in {tmp_path}"
    redact_warnings()
    assert "abcd" not in warnings.formatwarning("abcd", RuntimeWarning, "file.py", 1, "")
    assert public_url("http://me:pw@host:8000/v1?key=k#f") == "http://host:8000/v1"


def leaks(folder: Path, *secrets: str) -> list[str]:
    """The files under ``folder`` that hold one of ``secrets``."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets):
            found.append(str(path.relative_to(folder)))
    return found


def test_a_run_keeps_no_secret_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    file = experiment(folder)
    assert main(["train", str(file)]) == 0
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").exists()
    assert leaks(folder, FROM_ENVIRONMENT, LITERAL, "7321987") == []
    kept = yaml.safe_load((folder / "config.yaml").read_text())
    assert kept["cluster"]["env"] == {"API_KEY": "${oc.env:MY_SECRET}", "OTHER_KEY": MASK, "PADDED": MASK}
    assert kept["env"]["kwargs"]["seed"] == "${oc.env:MY_SEED}"
    assert main(["train", str(file), "run.max_steps=2"]) == 0
    assert main(["eval", str(folder)]) == 0
    output = capsys.readouterr()
    assert not any(secret in output.out + output.err for secret in (FROM_ENVIRONMENT, LITERAL))
    # A variable of `cluster.env` that is gone is not missed; one that the run depends on is, by name.
    monkeypatch.delenv("MY_SECRET")
    assert load_stored(folder / "config.yaml").cluster.env == {}
    monkeypatch.delenv("MY_SEED")
    with pytest.raises(StoredConfigError, match=r"own copy of its configuration.*env.kwargs.seed"):
        load_stored(folder / "config.yaml")


def test_another_value_of_a_variable_is_another_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = experiment(tmp_path / "run")
    with RunDirectory.open(load(file)) as directory:
        (directory.path / "metrics.jsonl").write_text('{"step": 0}\n')
    with RunDirectory.open(load(file)):
        pass
    monkeypatch.setenv("MY_SECRET", "rotated")  # cluster.env may change
    with RunDirectory.open(load(file)):
        pass
    monkeypatch.setenv("MY_SEED", "8")
    with pytest.raises(RunDirectoryError, match=r"env\.kwargs\.seed: .* has another value"):
        RunDirectory.open(load(file))


def test_what_an_expression_comes_to_through_another_key_is_kept_out(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(
        "env: {id: CartPole-v1, kwargs: {a: '${oc.env:MY_SECRET}', b: '${env.kwargs.a}', c: 'x${cluster.env.K}', "
        "d: ['${oc.env:MY_SECRET}', 2], e: '${run.seed}'}}\n"
        f"policy: {{name: actor_critic}}\ncluster: {{backend: local, env: {{K: {LITERAL}}}}}\n"
        "algorithm: {adv_type: gae, loss_type: actor_critic}\n"
    )
    config = load(file)
    assert config.env.kwargs["b"] == FROM_ENVIRONMENT
    assert config.env.kwargs["c"] == f"x{LITERAL}"
    shown = stored(config)
    assert shown["env"]["kwargs"] == {
        "a": "${oc.env:MY_SECRET}",
        "b": "${env.kwargs.a}",
        "c": "x${cluster.env.K}",
        "d": ["${oc.env:MY_SECRET}", 2],
        "e": 0,
    }
    assert written(config)["cluster"]["env"] == {"K": LITERAL}
    digests = config.record.environment_digests()
    assert config.record.environment_digests(digests) == digests
    assert FROM_ENVIRONMENT not in json.dumps(digests)


def test_the_records_of_a_sweep_hold_no_secret(tmp_path: Path) -> None:
    from rlinf.sweep.process import RunProcess
    from rlinf.sweep.records import TrialRecord
    from rlinf.sweep.validate import trial_config

    base = experiment(tmp_path / "unused")
    file = tmp_path / "sweep.yaml"
    content = {
        "base": base.name,
        "dir": str(tmp_path / "sweep"),
        "metric": "eval/accuracy",
        "mode": "max",
        "set": {"cluster.env.MORE": AS_OPTION},
        "space": {
            "learner.optimizer.lr": {"grid": [1e-3]},
            "cluster.env.VARIED": {"grid": ["Bearer ${oc.env:MY_SECRET}"]},
        },
    }
    file.write_text(yaml.safe_dump(content))
    sweep, problems = read_sweep_file(file)
    assert problems == []
    open_sweep(sweep)
    open_sweep(sweep)
    setting = {"learner.optimizer.lr": 1e-3, "cluster.env.VARIED": "Bearer ${oc.env:MY_SECRET}"}
    plan = TrialPlan(0, setting, 0)
    trial = sweep.folder / "trials" / "0"
    trial.mkdir(parents=True)
    config = trial_config(sweep, plan.setting, seed=0, run_dir=trial / "run")
    process = RunProcess(trial, config, threads=1)
    try:
        process._process.wait(120)
        assert process.ended()
    finally:
        process.stop()
    assert (trial / "run" / "summary.json").exists()
    TrialRecord(0, plan.setting, 0, "finished", folder=trial).write()
    assert leaks(sweep.folder, FROM_ENVIRONMENT, LITERAL, AS_OPTION, "7321987") == []


@pytest.mark.slow
def test_the_record_of_a_failed_trial_holds_no_secret(tmp_path: Path) -> None:
    from rlinf.sweep.process import RunProcess, TrialFailed
    from rlinf.sweep.records import TrialRecord
    from rlinf.sweep.validate import trial_config

    base = experiment(tmp_path / "unused")
    file = tmp_path / "sweep.yaml"
    content = {
        "base": base.name,
        "dir": str(tmp_path / "sweep"),
        "metric": "eval/accuracy",
        "set": {"env.kwargs.task": "${oc.env:MY_SECRET}"},
        "space": {"learner.optimizer.lr": {"grid": [1e-3]}},
    }
    file.write_text(yaml.safe_dump(content))
    sweep, problems = read_sweep_file(file)
    assert problems == []
    open_sweep(sweep)
    trial = sweep.folder / "trials" / "0"
    trial.mkdir(parents=True)
    config = trial_config(sweep, {"learner.optimizer.lr": 1e-3}, seed=0, run_dir=trial / "run")
    process = RunProcess(trial, config, threads=1)
    try:
        process._process.wait(120)
        with pytest.raises(TrialFailed, match=r"\$\{oc\.env:MY_SECRET\}") as failed:
            process.ended()
    finally:
        process.stop()
    assert FROM_ENVIRONMENT not in str(failed.value)
    assert "${oc.env:MY_SECRET}" in (trial / "log.txt").read_text()
    assert FROM_ENVIRONMENT not in (trial / "log.txt").read_text()
    TrialRecord(0, {"learner.optimizer.lr": 1e-3}, 0, "failed", 1, str(failed.value), folder=trial).write()
    assert leaks(sweep.folder, FROM_ENVIRONMENT, LITERAL, "7321987") == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_secret_in_the_space_of_a_sweep_is_written_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By the whole command: not in records, logs, the table, the best file or the page."""
    base = experiment(tmp_path / "unused")
    file = tmp_path / "sweep.yaml"
    content = {
        "base": base.name,
        "dir": str(tmp_path / "sweep"),
        "metric": "eval/accuracy",
        "set": {"cluster.env.MORE": "${oc.env:MY_SECRET}", "run.max_steps": 1},
        "space": {"cluster.env.VARIED": {"grid": ["Bearer ${oc.env:MY_SECRET}"]}},
        "seeds": [0],
        "resources": {"max_parallel": 1},
    }
    file.write_text(yaml.safe_dump(content))
    assert main(["sweep", str(file)]) == 0
    assert FROM_ENVIRONMENT not in "".join(capfd.readouterr())
    (settings, *_) = (
        json.loads(path.read_text())["setting"] for path in (tmp_path / "sweep").glob("trials/*/trial.json")
    )
    assert settings == {"cluster.env.VARIED": "Bearer ${oc.env:MY_SECRET}"}
    assert (tmp_path / "sweep" / "best.yaml").exists()
    assert leaks(tmp_path / "sweep", FROM_ENVIRONMENT, LITERAL, "7321987") == []


@pytest.mark.slow
def test_what_native_code_wrote_into_the_log_of_a_trial_is_hidden_in_its_record(tmp_path: Path) -> None:
    from rlinf.sweep.process import RunProcess, TrialFailed

    hide("MY_SECRET")
    config = load(experiment(tmp_path / "run"), ["run.dir=/dev/null/no_folder"])
    process = RunProcess(tmp_path, config, threads=1)
    try:
        process._process.wait(120)
        with process.log.open("a") as log:
            log.write(f"Traceback of a library\nno access with {FROM_ENVIRONMENT}\n")
        with pytest.raises(TrialFailed, match="no access with") as failed:
            process.ended()
    finally:
        process.stop()
    assert FROM_ENVIRONMENT not in str(failed.value)


def test_a_page_about_an_old_run_shows_no_values_of_cluster_env(tmp_path: Path) -> None:
    from rlinf.report.runs import read_run

    (tmp_path / "config.yaml").write_text(f"run: {{name: old}}\ncluster: {{env: {{KEY: {LITERAL}}}}}\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    assert read_run(tmp_path).config["cluster"]["env"] == {"KEY": MASK}


def test_variables_of_the_sampler_do_not_outlive_a_local_run(tmp_path: Path) -> None:
    probe = (
        "import os, sys; sys.path[:0] = ['.', 'envs']; before = dict(os.environ); from rlinf.config import load; "
        "from rlinf.train.assemble.setup import ResolvedRun; from rlinf.cluster import connect\n"
        f"config = load({str(experiment(tmp_path / 'run'))!r})\n"
        "with connect(ResolvedRun.of(config).cluster): assert os.environ['OTHER_KEY']\n"
        "added = {k for k in os.environ if os.environ[k] != before.get(k)}; print(sorted(added))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "OTHER_KEY" not in done.stdout
    assert "VLLM" not in done.stdout
