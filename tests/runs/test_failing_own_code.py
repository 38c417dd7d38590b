"""Code of a user's own that raises, wherever the library calls it: what the command shows, and that it goes on."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import GRADED_BY_LENGTH, TASK, config, mapping

from rlinf.base.own_errors import own_account
from rlinf.base.user_code import imported
from rlinf.cli import main
from rlinf.train import run
from rlinf.train.callbacks import Callback, Step

MODULE = '''
import torch
from pathlib import Path

from rlinf.algorithms.advantages.estimate import Advantages
from rlinf.algorithms.objective import TokenLoss
from rlinf.samplers.build import SAMPLERS

HERE = Path(__file__).parent


def fail(when):
    """Raise at call number `when` of all processes, once."""
    if (HERE / "mended").exists():
        return
    with (HERE / "calls").open("a") as calls:
        calls.write(".")
    if (HERE / "calls").stat().st_size == when:
        raise ValueError("a mistake of mine")


def centred(x):
    fail(2)
    advantages = (x.outcomes - x.outcomes.mean())[:, None] * x.mask
    return Advantages(advantages, advantages)


def strong(x):
    fail(2)
    return TokenLoss(-x.advantages * x.logprobs)


def evenly(shape):
    fail(2)
    return torch.ones_like(shape.mask, dtype=torch.float32) / 16


def distance(d):
    fail(3)
    return d * d


def reward(*, prompt, response, answer, row):
    fail(30)
    return len(response) / 10


def sampler(config, spec):
    made = SAMPLERS["hf"](config, spec)
    stream = made.stream

    def failing(*given, **named):
        fail(2)
        return stream(*given, **named)

    made.stream = failing
    return made
'''


@dataclasses.dataclass(frozen=True)
class Point:
    """A point at which a user's code is called, and the words about its failure."""

    sections: dict[str, Any]
    words: str
    step: str = "step 2 of 4"


POINTS = {
    "estimator": Point({"algorithm": {"adv_type": "own_failing:centred"}}, "centred"),
    "loss": Point({"algorithm": {"loss_type": "own_failing:strong"}}, "strong"),
    "aggregation": Point({"algorithm": {"loss_agg_func": "own_failing:evenly"}}, "evenly"),
    "kl": Point({"algorithm": {"kl_penalty_type": "own_failing:distance", "kl_beta": 0.1}}, "distance"),
    "sampler": Point({"rollout": {"sampler": "own_failing:sampler"}}, "sampler.<locals>.failing", "step 1 of 4"),
}
QUICK = ("estimator",)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, in a folder of this test."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "own_failing.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "own_failing", raising=False)
    imported.cache_clear()
    return folder / "own_failing.py"


def file_of(folder: Path, name: str, **sections: Any) -> str:
    file = folder / f"{name}.yaml"
    sections = {"sft": {"steps": 0}, "env": {"kwargs": GRADED_BY_LENGTH}, **sections}
    file.write_text(yaml.safe_dump(mapping(folder / name, **sections)))
    return str(file)


def require_own_lines_alone(output: str, module: Path, words: str, step: str) -> None:
    """Check that the output names function, file, lines and step, and has no line of another file."""
    assert re.search(rf"^{re.escape(words)} \({re.escape(str(module))}, line \d+\) raised ValueError", output, re.M)
    assert set(re.findall(r'File "(.*?)"', output)) == {str(module)}
    assert 'raise ValueError("a mistake of mine")' in output
    assert output.count("It happened in") == 1
    assert f"It happened in {step}. Checkpoints are kept: the same command" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("point", "backend"),
    [
        pytest.param(point, backend, marks=() if point in QUICK and backend == "local" else pytest.mark.slow)
        for point in POINTS
        for backend in ("local", "ray")
    ],
)
def test_the_command_names_the_function_its_lines_and_the_step_and_goes_on(
    point: str, backend: str, module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = POINTS[point]
    file = file_of(tmp_path, "run", **case.sections, cluster={"backend": backend})
    assert main(["train", file]) == 1
    require_own_lines_alone(capsys.readouterr().err, module, case.words, case.step)
    (module.parent / "mended").touch()
    assert main(["train", file]) == 0
    assert main(["train", file_of(tmp_path, "whole", **case.sections)]) == 0
    resumed, whole = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "whole"))
    assert resumed["params_sha256"] == whole["params_sha256"]


def test_a_reward_names_its_line_its_question_and_the_step(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {**TASK, "reward": {"custom": {"own_failing:reward": 1.0}}}
    assert main(["train", file_of(tmp_path, "run", env={"kwargs": own})]) != 0
    output = capsys.readouterr().err
    assert f"raised ValueError: a mistake of mine, at {module}:" in output
    assert "question: 'State the final answer" in output
    assert "It happened in step 2 of 4." in output


def test_a_callback_names_its_line_and_the_step(module: Path, tmp_path: Path) -> None:
    class Mine(Callback):
        def on_step(self, step: Step) -> None:
            if step.number == 2:
                raise KeyError("reward")

    wanted = config(tmp_path / "run", sft={"steps": 0}, env={"kwargs": GRADED_BY_LENGTH})
    with pytest.raises(KeyError) as raised:
        run(wanted, report=False, callbacks=[Mine()])
    account = str(own_account(raised.value))
    assert re.search(r"Mine.on_step \(.*test_failing_own_code.py, line \d+\) raised KeyError: 'reward'", account)
    assert raised.value.__notes__ == [
        "It happened in step 2 of 4. Checkpoints are kept: the same command continues from step 1."
    ]


@pytest.mark.parametrize(
    "sections",
    [
        {"algorithm": {"adv_type": "own_training:centred"}},
        {"env": {"kwargs": {**TASK, "reward": {"custom": {"own_training:reward": 1.0}}}}},
    ],
)
def test_a_module_that_trains_while_it_is_imported_is_refused(
    sections: dict[str, Any], module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = file_of(tmp_path, "other")
    (module.parent / "own_training.py").write_text(f"{MODULE}\n\nimport rlinf\n\nrlinf.fit(rlinf.load({other!r}))\n")
    assert main(["train", file_of(tmp_path, "run", **sections)]) == 2
    output = capsys.readouterr().err
    assert "training begins while own_training is imported" in output
    assert 'write the call under `if __name__ == "__main__":`' in output
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
