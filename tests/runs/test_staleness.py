"""Bounded staleness: samplers go on while the learner trains, nothing is lost, and every run can be repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from rlinf.config.problems import ConfigErrors
from rlinf.errors import UserError
from rlinf.train.loop import Trainer

STALE = {
    "rollout": {"staleness": 2, "max_new_tokens": 48, "generation_batch_size": 24},
    "env": {"kwargs": tiny_runs.GRADED_BY_LENGTH},
    "algorithm": {"loss_type": "decoupled"},
    "run": {"max_steps": 5},
}


def settings(folder: Path, *, rollout: dict[str, Any] | None = None, **sections: Any) -> Any:
    return tiny_runs.config(folder, **{**STALE, **sections, "rollout": {**STALE["rollout"], **(rollout or {})}})


def logged(folder: Path, name: str) -> list[float]:
    return [line[name] for line in tiny_runs.logged(folder) if name in line]


def params(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stale") / "run"
    tiny_runs.run(settings(folder))
    return folder


def test_batches_are_begun_early_and_no_token_is_older_than_the_bound(finished: Path) -> None:
    oldest = logged(finished, "rollout/staleness_max")
    assert oldest[0] == 0
    assert max(oldest) == 2
    assert logged(finished, "rollout/batches_open") == [2.0, 2.0, 2.0, 1.0, 0.0]
    assert sum(logged(finished, "rollout/responses_continued")) > 0
    lines = [json.loads(line) for line in (finished / "arrivals.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    versions = {version for line in lines for spans in line["spans"] for version, _ in spans}
    assert versions <= {0, 1, 2, 3, 4}


def test_a_run_that_breaks_off_goes_on_bit_for_bit(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.update

    def breaking(trainer: Trainer, batch: Any, step: int) -> Any:
        if step == 3:
            raise KeyboardInterrupt
        return whole(trainer, batch, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", breaking)
        with pytest.raises(KeyboardInterrupt):
            tiny_runs.run(settings(tmp_path / "run"))
    tiny_runs.run(settings(tmp_path / "run"))
    assert params(tmp_path / "run") == params(finished)
    assert (tmp_path / "run" / "arrivals.jsonl").read_text() == (finished / "arrivals.jsonl").read_text()


def test_a_run_is_repeated_by_its_log(finished: Path, tmp_path: Path) -> None:
    tiny_runs.run(settings(tmp_path / "again", rollout={"replay_arrivals": str(finished)}))
    assert params(tmp_path / "again") == params(finished)
    assert (tmp_path / "again" / "arrivals.jsonl").read_text() == (finished / "arrivals.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_on_ray_the_log_repeats_what_happened(tmp_path: Path) -> None:
    long = {"max_new_tokens": 48, "num_samplers": 2}
    tiny_runs.run(settings(tmp_path / "ray", rollout=long, cluster={"backend": "ray"}))
    assert max(logged(tmp_path / "ray", "rollout/staleness_max")) in (1, 2)
    tiny_runs.run(settings(tmp_path / "local", rollout={**long, "replay_arrivals": str(tmp_path / "ray")}))
    assert params(tmp_path / "local") == params(tmp_path / "ray")


def test_dynamic_sampling_goes_on_within_the_bound_and_is_repeated(tmp_path: Path) -> None:
    # Nearly every response of this length has a letter in it, which is all that is rewarded: groups are constant.
    varied = {"loss_type": "decoupled", "dynamic_sampling": True, "max_resample": 2}
    sections = {"algorithm": varied, "env": {}, "run": {"max_steps": 3}}
    tiny_runs.run(settings(tmp_path / "run", **sections))
    lines = [json.loads(line) for line in (tmp_path / "run" / "arrivals.jsonl").read_text().splitlines()]
    assert any(line["round"] for line in lines)
    assert [line["step"] for line in lines if not line["round"]] == [0, 1, 2]
    assert max(logged(tmp_path / "run", "rollout/staleness_max")) <= 2
    assert logged(tmp_path / "run", "rollout/age/0")[0] == 1.0
    tiny_runs.run(settings(tmp_path / "again", rollout={"replay_arrivals": str(tmp_path / "run")}, **sections))
    assert params(tmp_path / "again") == params(tmp_path / "run")


def test_without_a_log_nothing_is_repeated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no arrivals\.jsonl"):
        tiny_runs.run(settings(tmp_path / "run", rollout={"replay_arrivals": str(tmp_path)}))


def test_no_staleness_is_the_synchronous_run(tmp_path: Path) -> None:
    tiny_runs.run(settings(tmp_path / "zero", rollout={"staleness": 0}))
    tiny_runs.run(tiny_runs.config(tmp_path / "plain", **{**STALE, "rollout": {**STALE["rollout"], "staleness": 0}}))
    assert params(tmp_path / "zero") == params(tmp_path / "plain")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"algorithm": {"adv_type": "remax"}}, "adv_type: remax needs further responses"),
        ({"rollout": {"ahead": 1}}, "more than one batch ahead"),
        ({"rollout": {"over_sampling": 0.5}}, "begins as many prompts as it may"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        settings(tmp_path / "run", **sections)
