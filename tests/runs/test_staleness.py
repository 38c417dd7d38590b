"""Bounded staleness: samplers go on while the learner trains, nothing is lost, and every run can be repeated."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import text_envs
import tiny_runs
import yaml

from rlinf.base.errors import UserError
from rlinf.config import resolve
from rlinf.config.problems import ConfigErrors
from rlinf.config.stored import load_stored
from rlinf.train.loop import Trainer

STALE = {
    "rollout": {"staleness": 2, "max_new_tokens": 48, "generation_batch_size": 24},
    "env": {"kwargs": tiny_runs.GRADED_BY_LENGTH},
    "algorithm": {"loss_type": "decoupled"},
    "run": {"max_steps": 5},
}

STOPS = [" ", "e", "1", "="]
"""Some responses of an untrained model end early."""


def settings(folder: Path, *, rollout: dict[str, Any] | None = None, **sections: Any) -> Any:
    return tiny_runs.config(folder, **{**STALE, **sections, "rollout": {**STALE["rollout"], **(rollout or {})}})


def logged(folder: Path, name: str) -> list[float]:
    return [line[name] for line in tiny_runs.logged(folder) if name in line]


def params(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


def breaking_at(last: int) -> Any:
    """The learner's update, which breaks off in a step."""
    whole = Trainer.update

    def update(trainer: Trainer, batch: Any, step: int) -> Any:
        if step == last:
            raise KeyboardInterrupt
        return whole(trainer, batch, step)

    return update


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
    versions = {version for line in lines for row in line["spans"] for turn in row for version, _ in turn}
    assert versions <= {0, 1, 2, 3, 4}


def test_a_run_that_breaks_off_goes_on_bit_for_bit(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", breaking_at(3))
        with pytest.raises(KeyboardInterrupt):
            tiny_runs.run(settings(tmp_path / "run"))
    tiny_runs.run(settings(tmp_path / "run"))
    assert params(tmp_path / "run") == params(finished)
    assert (tmp_path / "run" / "arrivals.jsonl").read_text() == (finished / "arrivals.jsonl").read_text()


@pytest.mark.slow
def test_keys_and_values_of_older_weights_may_be_kept(finished: Path, tmp_path: Path) -> None:
    for name in ("run", "twin"):
        tiny_runs.run(settings(tmp_path / name, rollout={"keep_cache": True}))
    assert params(tmp_path / "run") == params(tmp_path / "twin")
    assert sum(logged(tmp_path / "run", "rollout/responses_continued")) > 0
    assert params(tmp_path / "run") != params(finished)


@pytest.mark.slow
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


@pytest.mark.slow
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


def talking(folder: Path, tasks: Path, **rollout: Any) -> Any:
    """Conversations of up to three turns with tools that take their time."""
    kwargs = {**text_envs.lines(tasks), "max_turns": 3, "most_s": 0.02}
    sections = {
        "env": {"id": text_envs.SLOW_TOOLS, "kwargs": kwargs, "max_turns": 3},
        "evaluation": {"size": 4, "env_kwargs": {}},
        "sft": {"steps": 0},
        "policy": {"tokenizer": {"path": str(tasks)}},
        "run": {"max_steps": 4},
    }
    return settings(folder, **sections, rollout={"stop": STOPS, **rollout})


@pytest.fixture(scope="module")
def tasks(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tasks and a tokenizer."""
    folder = tmp_path_factory.mktemp("tasks") / "tokenizer"
    shutil.copytree(finished / "tokenizer", folder)
    return folder


@pytest.fixture(scope="module")
def talked(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk") / "run"
    tiny_runs.run(talking(folder, tasks))
    return folder


@pytest.mark.slow
def test_conversations_of_several_turns_go_on_during_updates(talked: Path) -> None:
    assert max(logged(talked, "rollout/staleness_max")) == 2
    assert sum(logged(talked, "rollout/responses_continued")) > 0
    lines = [json.loads(line) for line in (talked / "arrivals.jsonl").read_text().splitlines()]
    turns = [len(row) for line in lines for row in line["spans"]]
    assert (min(turns) >= 1, max(turns)) == (True, 3)


@pytest.mark.slow
def test_a_run_of_several_turns_breaks_off_and_goes_on(
    talked: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", breaking_at(2))
        with pytest.raises(KeyboardInterrupt):
            tiny_runs.run(talking(tmp_path / "run", tasks))
    tiny_runs.run(talking(tmp_path / "run", tasks))
    assert params(tmp_path / "run") == params(talked)
    assert (tmp_path / "run" / "arrivals.jsonl").read_text() == (talked / "arrivals.jsonl").read_text()


@pytest.mark.slow
def test_a_run_of_several_turns_is_repeated_by_its_log(talked: Path, tasks: Path, tmp_path: Path) -> None:
    tiny_runs.run(talking(tmp_path / "again", tasks, replay_arrivals=str(talked)))
    assert params(tmp_path / "again") == params(talked)


@pytest.mark.slow
def test_over_sampling_takes_what_is_complete_first_and_is_repeated(tmp_path: Path) -> None:
    options = {"over_sampling": 0.75, "stop": STOPS}
    tiny_runs.run(settings(tmp_path / "run", rollout=options))
    lines = [json.loads(line) for line in (tmp_path / "run" / "arrivals.jsonl").read_text().splitlines()]
    taken = [tuple(group) for line in lines for group in line["groups"]]
    assert len(taken) == len(set(taken)) == 20
    assert all(line["step"] - begun <= 2 for line in lines for begun, _ in line["groups"])
    tiny_runs.run(settings(tmp_path / "again", rollout={**options, "replay_arrivals": str(tmp_path / "run")}))
    assert params(tmp_path / "again") == params(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_on_ray_the_log_repeats_conversations_of_several_turns(tasks: Path, tmp_path: Path) -> None:
    ray = talking(tmp_path / "ray", tasks, num_samplers=2)
    ray = dataclasses.replace(ray, cluster=dataclasses.replace(ray.cluster, backend="ray"))
    tiny_runs.run(ray)
    assert max(logged(tmp_path / "ray", "rollout/staleness_max")) <= 2
    tiny_runs.run(talking(tmp_path / "local", tasks, num_samplers=2, replay_arrivals=str(tmp_path / "ray")))
    assert params(tmp_path / "local") == params(tmp_path / "ray")


def test_ahead_is_another_name_and_reported_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_runs.mapping(tmp_path, rollout={"ahead": 1})))
    found = resolve(path)
    assert found.config.rollout.staleness == 1
    (note,) = found.notes
    assert note.endswith("rollout.ahead: 1 is read as rollout.staleness.")


def test_a_run_from_before_that_goes_on_with_what_it_had(tmp_path: Path) -> None:
    for number, (ahead, staleness) in enumerate([(0, 2), (1, 0), (0, 0)]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(tiny_runs.mapping(tmp_path, rollout={"ahead": ahead, "staleness": staleness})))
        assert load_stored(path).rollout.staleness == max(ahead, staleness)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"rollout": {"over_sampling": 2.5}}, "at most 2 batches more than one may be begun"),
        (
            {"rollout": {"over_sampling": 0.5}, "algorithm": {"adv_type": "remax"}},
            "which whole batches that are collected ahead",
        ),
        (
            {"rollout": {"replay_arrivals": "runs/other"}, "algorithm": {"adv_type": "remax"}},
            "does not depend on time here",
        ),
        ({"rollout": {"keep_cache": True, "replay_arrivals": "runs/other"}}, "so no run is repeated"),
        ({"rollout": {"keep_cache": True, "staleness": 0}}, "no response is continued under newer weights here"),
        ({"rollout": {"keep_cache": True, "sampler": "vllm"}}, r"is not read by rollout\.sampler: vllm"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        settings(tmp_path / "run", **sections)
