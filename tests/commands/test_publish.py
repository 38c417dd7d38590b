"""`rlinf publish`: a folder that others can use and judge, without secrets, and nothing sent without --push."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import simulator_runs
import yaml
from tiny_runs import config

from rlinf.cli import main
from rlinf.report.card import card
from rlinf.report.runs import read_run
from rlinf.train import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "run"
    keep = {"every": 1, "keep": 9}
    secret = {"env": {"MY_TOKEN": "hf_secret"}}
    run(config(folder, run={"max_steps": 2}, evaluation={"every": 1}, checkpoint=keep, cluster=secret), report=False)
    return folder


def front_matter(card: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_a_text_policy_with_its_card(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert main(["publish", str(finished), "--license", "apache-2.0"]) == 0
    assert "Nothing was sent" in capsys.readouterr().out
    out = finished / "publish"
    card = (out / "README.md").read_text()
    facts = front_matter(card)
    assert (facts["license"], facts["library_name"], facts["pipeline_tag"]) == (
        "apache-2.0",
        "transformers",
        "text-generation",
    )
    summary = json.loads((finished / "summary.json").read_text())
    (result,) = facts["model-index"][0]["results"]
    assert {one["type"]: one["value"] for one in result["metrics"]}["accuracy"] == summary["metrics"]["eval/accuracy"]
    assert "(chain_sum): 2 training iterations" in card.replace("\n", " ")
    assert "| `learner.optimizer.lr` | `0.001` |" in card
    assert summary["params_sha256"] in card
    for picture in out.glob("curves/*.svg"):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")
        assert f"(curves/{picture.name})" in card
    assert len(list(out.glob("curves/*.svg"))) >= 2
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.generate(**tokenizer("1 + 1 =", return_tensors="pt"), max_new_tokens=1).shape[0] == 1
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"hf_secret" not in written
    assert (out / "training" / "config.yaml").is_file()


def test_the_usage_example_runs_on_a_prompt_of_the_training(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["publish", str(finished), "--out", str(finished / "usage")])
    monkeypatch.chdir(finished / "usage")
    card = Path("README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", card, re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    newest = sorted((finished / "samples").glob("*.jsonl"))[-1]
    read = [json.loads(line)["rendered"] for line in newest.read_text().splitlines()]
    assert names["prompt"] in read
    assert "pypi.org" not in card
    command = re.search(r"`rlinf (train .*?)`", card)
    assert command is not None
    capsys.readouterr()
    assert main(["check", "--no-build", *command[1].split()[1:]]) == 0


def test_the_command_names_what_came_from_elsewhere(finished: Path) -> None:
    record = read_run(finished)
    values = {**record.config, "run": {**record.config["run"], "init_from": "../first@4"}}
    text = card(dataclasses.replace(record, config=values), step=2, license=None, curves=[])
    assert "run.dir=runs/again run.init_from=PATH`" in text
    assert "`run.init_from` was `../first@4`" in text
    assert "init_from=PATH" not in card(record, step=2, license=None, curves=[])


def test_an_older_step_of_a_simulators_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import rlinf

    simulator_runs.summary(tmp_path / "run", "ppo", 4)
    assert main(["publish", str(tmp_path / "run"), "--step", "2", "--out", str(tmp_path / "out")]) == 0
    assert "No licence is stated" in capsys.readouterr().out
    card = (tmp_path / "out" / "README.md").read_text()
    assert "2 training iterations" in card
    assert front_matter(card)["pipeline_tag"] == "reinforcement-learning"
    assert main(["publish", str(tmp_path / "run"), "--step", "9", "--out", str(tmp_path / "out")]) == 2
    assert "there are those of" in capsys.readouterr().err
    assert (tmp_path / "out" / "README.md").read_text() == card
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []
    assert rlinf.Policy.load(tmp_path / "out").act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    assert main(["publish", str(tmp_path / "run"), "--out", str(tmp_path / "mine")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_push_sends_the_folder_and_prints_the_answer_of_the_hub(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    calls: list[tuple[str, dict[str, Any]]] = []

    class Api:
        def create_repo(self, name: str, **options: Any) -> str:
            if name == "owner/refused":
                raise OSError("no account")
            calls.append((name, options))
            return f"https://hub/{name}"

        def upload_folder(self, **options: Any) -> None:
            calls.append((options["repo_id"], options))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert main(["publish", str(finished), "--push", "me/model"]) == 0
    assert "Sent to https://hub/me/model" in capsys.readouterr().out
    assert calls[0][1] == {"private": True, "exist_ok": True}
    assert calls[1][1]["folder_path"] == finished / "publish"
    assert main(["publish", str(finished), "--push", "owner/refused"]) == 2
    assert "no account" in capsys.readouterr().err
