"""A run that learns from a teacher: in the learner's ranks or behind HTTP, alone or with GRPO."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
import torch
import yaml
from tiny_runs import config, logged, mapping

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import ConfigErrors
from rlinf.train import run, run_sft

OPD = {"adv_type": "opd", "group_size": 2}


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported policy of a larger model that imitated demonstrations."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    larger = {"architecture": {**mapping(folder)["policy"]["architecture"], "hidden_size": 48}}
    run_sft(config(folder, policy=larger, sft={"steps": 30, "lr": 0.02}, evaluation={"size": 0, "env_kwargs": None}))
    return folder / "policy"


def student(folder: Path, taught: Path, **sections: Any) -> dict[str, Any]:
    """A run of a smaller model with the teacher's tokenizer, from random weights."""
    made = {
        "run": {"max_steps": 16},
        "policy": {"tokenizer": {"path": str(taught)}},
        "sft": {"steps": 0},
        "rollout": {"batch_size": 32},
        "learner": {"optimizer": {"lr": 0.03}},
        "evaluation": {"size": 0, "env_kwargs": None},
        "teacher": {"path": str(taught)},
        "algorithm": OPD,
    }
    return {**made, **sections}


def test_the_policy_comes_closer_to_its_teacher(taught: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "run", **student(tmp_path, taught)), report=False)
    gaps = [line["algorithm/teacher_kl"] for line in logged(tmp_path / "run") if "algorithm/teacher_kl" in line]
    assert len(gaps) == 16
    assert gaps[-1] < 0.6 * gaps[0], gaps
    samples = (tmp_path / "run" / "samples" / "step_000001.jsonl").read_text().splitlines()
    row = json.loads(samples[0])
    own, other = torch.tensor(row["logprobs"]), torch.tensor(row["teacher_logprobs"])
    torch.testing.assert_close(torch.tensor(row["advantages"]), other - own, rtol=1e-3, atol=2e-3)


@pytest.mark.usefixtures("ray_session")
@pytest.mark.slow
def test_two_ranks_on_ray_teach_what_one_process_does(taught: Path, tmp_path: Path) -> None:
    short = {"run": {"max_steps": 2}}
    run(config(tmp_path / "here", **student(tmp_path, taught, **short)), report=False)
    wide = {"cluster": {"backend": "ray"}, "learner": {"num_workers": 2, "optimizer": {"lr": 0.03}}}
    run(config(tmp_path / "ray", **student(tmp_path, taught, **short, **wide)), report=False)
    here, there = (logged(tmp_path / name)[1]["algorithm/teacher_kl"] for name in ("here", "ray"))
    assert here == pytest.approx(there, rel=1e-4)


def test_a_teacher_with_grpo(taught: Path, tmp_path: Path) -> None:
    mixed = {"run": {"max_steps": 1}, "algorithm": {"adv_type": "grpo", "group_size": 4, "opd_coef": 0.1}}
    run(config(tmp_path / "run", **student(tmp_path, taught, **mixed)), report=False)
    assert "algorithm/teacher_kl" in logged(tmp_path / "run")[-1]


@pytest.mark.slow
def test_the_average_of_its_own_weights_teaches_with_a_reward(tmp_path: Path) -> None:
    def made(folder: Path, steps: int) -> Any:
        sections = {
            "run": {"max_steps": steps},
            "teacher": {"past_policy": "average", "average_decay": 0.5},
            "algorithm": {"adv_type": "grpo", "group_size": 4, "opd_coef": 0.5},
            "learner": {"optimizer": {"lr": 0.03}},
            "evaluation": {"size": 0, "env_kwargs": None},
        }
        return config(folder, **sections)

    def gaps(folder: Path) -> list[float]:
        return [line["algorithm/teacher_kl"] for line in logged(folder) if "algorithm/teacher_kl" in line]

    run(made(tmp_path / "straight", 4), report=False)
    first, *later = gaps(tmp_path / "straight")
    assert first == pytest.approx(0.0, abs=1e-4)
    assert max(abs(gap) for gap in later) > 1e-3
    run(made(tmp_path / "resumed", 2), report=False)
    run(made(tmp_path / "resumed", 4), report=False)
    assert gaps(tmp_path / "resumed") == gaps(tmp_path / "straight")


HINT = "{prompt} It is {answer}."


def self_taught(folder: Path, **sections: Any) -> Any:
    """A run whose policy, shown the answer, is the teacher."""
    made: dict[str, Any] = {
        "run": {"max_steps": 1},
        "sft": {"steps": 3, "batch_size": 8, "hinted": 0.5},
        "algorithm": {"adv_type": "opd", "group_size": 4},
        "teacher": {"past_policy": "current", "hint": HINT},
        "evaluation": {"size": 0, "env_kwargs": None},
    }
    for section, keys in sections.items():
        made[section] = {**made.get(section, {}), **keys}
    return config(folder, **made)


@pytest.mark.parametrize("hint", [HINT, "{prompt} Worked out: {demonstration}."])
def test_the_policy_that_reads_the_answer_is_the_teacher(hint: str, tmp_path: Path) -> None:
    """Its log-probabilities are those of a plain forward pass behind the prompt with the answer."""
    from rlinf.models.loading import load_causal_lm, load_tokenizer

    made = self_taught(tmp_path / "run", learner={"optimizer": {"lr": 0.0}}, teacher={"hint": hint})
    run(made, report=False)
    tasks = gymnasium.make_vec(made.env.id, num_envs=1, **made.env.kwargs).unwrapped
    assert logged(tmp_path / "run")[1]["rollout/hinted"] == 1.0
    model, tokenizer = (load(str(tmp_path / "run" / "policy")) for load in (load_causal_lm, load_tokenizer))
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples" / "step_000001.jsonl").read_text().splitlines()]
    for row in rows[:4]:
        ((_, demonstration),) = tasks.demonstrations([row["task_id"]])
        text = hint.format(prompt=row["prompt"], answer=row["answer"], demonstration=demonstration)
        hinted = tokenizer.encode(text, add_special_tokens=False)
        with torch.no_grad():
            scores = model(torch.tensor([hinted + row["tokens"]])).logits[0, len(hinted) - 1 : -1].log_softmax(-1)
        expected = scores.gather(1, torch.tensor(row["tokens"])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(row["teacher_logprobs"]), expected, rtol=1e-4, atol=2e-5)
        gains = expected - torch.tensor(row["logprobs"])
        torch.testing.assert_close(torch.tensor(row["advantages"]), gains, rtol=1e-3, atol=5e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("past_policy", ["start", "average", "current"])
def test_self_distillation_is_the_same_on_ray(past_policy: str, tmp_path: Path) -> None:
    sections = {"run": {"max_steps": 2}, "teacher": {"past_policy": past_policy, "hint": HINT}}
    run(self_taught(tmp_path / "here", **sections), report=False)
    wide = {"cluster": {"backend": "ray"}, "learner": {"num_workers": 2}}
    run(self_taught(tmp_path / "ray", **sections, **wide), report=False)
    here, there = (logged(tmp_path / name)[2]["algorithm/teacher_kl"] for name in ("here", "ray"))
    assert here == pytest.approx(there, rel=1e-4)


def test_a_saved_batch_keeps_what_the_teacher_reads(tmp_path: Path) -> None:
    run(self_taught(tmp_path / "run"), report=False, save_batches=1)
    again = self_taught(tmp_path / "again")
    run(again, report=False, from_batches=tmp_path / "run" / "batches")
    first, second = (logged(tmp_path / name)[-1]["algorithm/teacher_kl"] for name in ("run", "again"))
    assert first == second != 0


class Echo(BaseHTTPRequestHandler):
    """Serves a model as `vllm serve` echoes prompts."""

    model: ClassVar[Any]
    tokenizer: ClassVar[Any]
    can_tokenize: ClassVar[bool] = True

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "taught"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            ids = self.tokenizer.encode(body["prompt"], add_special_tokens=False)
            self._answer({"tokens": ids}, 200 if self.can_tokenize else 404)
            return
        ids = torch.tensor([body["prompt"]])
        with torch.no_grad():
            scores = self.model(ids).logits[0].log_softmax(-1)
        output = scores[:-1].gather(1, ids[0, 1:, None])[:, 0].tolist()
        self._answer({"choices": [{"logprobs": {"token_logprobs": [None, *output, -0.5]}}]})

    def _answer(self, content: object, status: int = 200) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


class Waiting(ThreadingHTTPServer):
    """Takes as many connections at a time as a teacher is called over."""

    request_queue_size = 64


@pytest.fixture
def server(taught: Path) -> Iterator[str]:
    from rlinf.models.loading import load_causal_lm, load_tokenizer

    Echo.model, Echo.tokenizer, Echo.can_tokenize = load_causal_lm(str(taught)), load_tokenizer(str(taught)), True
    httpd = Waiting(("127.0.0.1", 0), Echo)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}/v1"
    httpd.shutdown()
    httpd.server_close()


@pytest.mark.slow
def test_a_server_teaches_what_the_folder_does(taught: Path, server: str, tmp_path: Path) -> None:
    short = {"run": {"max_steps": 2}}
    run(config(tmp_path / "folder", **student(tmp_path, taught, **short)), report=False)
    remote = student(tmp_path, taught, **short, teacher={"base_url": server})
    run(config(tmp_path / "server", **remote), report=False)
    ours, theirs = (
        [line["algorithm/teacher_kl"] for line in logged(tmp_path / name)[1:]] for name in ("folder", "server")
    )
    assert theirs == pytest.approx(ours, rel=1e-4, abs=1e-4)
    Echo.can_tokenize = False
    run(config(tmp_path / "mute", **{**remote, "run": {"max_steps": 1}}), report=False)
    notes = json.loads((tmp_path / "mute" / "summary.json").read_text())["notes"]
    assert "could not be compared" in notes["teacher"]


def test_another_tokenizer_is_refused(
    taught: Path, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlinf.models.tokenizer import train_tokenizer

    other = train_tokenizer(["3 + 4 = 7 and so on"], vocab_size=300)
    other.save_pretrained(str(tmp_path / "other"))
    made = student(tmp_path, taught, policy={"tokenizer": {"path": str(tmp_path / "other")}})
    file = tmp_path / "opd.yaml"
    file.write_text(yaml.safe_dump(mapping(tmp_path / "run", **made)))
    assert main(["check", str(file)]) == 2
    output = capsys.readouterr()
    assert "has another tokenizer than the policy" in output.out + output.err
    with pytest.raises(UserError, match=r"teacher\.path: .* has another tokenizer than the policy"):
        run(config(tmp_path / "run", **made), report=False)
    with pytest.raises(UserError, match=r"teacher\.base_url: .* has another tokenizer than the policy"):
        run(config(tmp_path / "remote", **{**made, "teacher": {"base_url": server}}), report=False)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"teacher": {}}, "learns from a teacher, and there is none"),
        ({"policy": {}}, r"train a tokenizer of its own.*Set policy\.tokenizer\.path"),
        ({"algorithm": {"adv_type": "grpo", "group_size": 4}}, r"teacher\.path is not read by this algorithm"),
        ({"rollout": {"top_p": 0.9}}, r"rollout\.top_p 0\.9 reshapes the policy's distribution"),
        ({"algorithm": {**OPD, "opd_coef": 0.1}}, "has it already"),
        ({"teacher": {"past_policy": "start"}}, "is the policy itself at first"),
        ({"teacher": {"past_policy": "current"}}, "is the policy itself, so that adv_type: opd moves nothing"),
        ({"teacher": {"past_policy": "current", "hint": "It is {answer}."}}, r"must have \{prompt\} once.*0 times"),
        ({"teacher": {"past_policy": "current", "hint": "{prompt} Think."}}, "no more than the policy"),
        (
            {
                "teacher": {"past_policy": "start", "hint": "{prompt} {solution}"},
                "algorithm": {"adv_type": "opd", "group_size": 1},
            },
            "another response of the group, and algorithm.group_size is 1",
        ),
        (
            {
                "sft": {"steps": 2, "hinted": 0.5},
                "teacher": {"past_policy": "start", "hint": "{prompt} {answer} {solution}"},
            },
            r"which must name {answer} or {demonstration}, and not {solution}",
        ),
        ({"sft": {"steps": 2, "hinted": 0.5}}, r"sft\.hinted writes prompts with teacher\.hint"),
        ({"teacher": {"past_policy": "average", "base_url": "http://x/v1"}}, "name several teachers"),
        (
            {
                "teacher": {"past_policy": "average"},
                "algorithm": {"adv_type": "grpo", "opd_coef": 0.1, "kl_beta": 0.1, "ref_update_every": 2},
            },
            "replaces the reference policy",
        ),
        ({"teacher": {"base_url": "http://x/v1"}, "rollout": {"temperature": 0.7}}, "at temperature 1, not 0.7"),
    ],
)
def test_a_teacher_that_can_not_teach_is_refused(
    sections: dict[str, Any], words: str, taught: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigErrors, match=words):
        config(tmp_path / "run", **student(tmp_path, taught, **sections))
