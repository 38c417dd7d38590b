"""Supervised training on files: what is imitated, to the token, and runs without an environment."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_runs import mapping

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import Config, ConfigErrors, load_mapping
from rlinf.datasets.conversation_files import ConversationError, read_conversations
from rlinf.models.tokenizer import train_tokenizer
from rlinf.rollouts.text.imitation import ConversationEncoder, ImitationData
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.train import run
from rlinf.train.run_dir import RunDirectoryError
from rlinf.train.run_state import RunState

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = "{% for m in messages %}{% if m.role != 'assistant' or loop.last %}{{ m.content }}|{% endif %}{% endfor %}"
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": " Four. "},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "Yes\n"},
    {"role": "user", "content": "Thanks"},
]


def tokenizer(template: str | None = CHATML) -> Any:
    made = train_tokenizer(["2 + 2? Four. Sure? Yes Be brief. assistant user system"] * 3, vocab_size=300)
    if template is not None:
        made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        made.chat_template = template
    return made


def written(folder: Path, *rows: object) -> str:
    path = folder / "talks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def received(made: Any, one: Any) -> list[str]:
    """The imitated stretches of a conversation, as text."""
    stretches: list[list[int]] = []
    before = False
    for token, imitated in zip(one.tokens, one.mask, strict=True):
        if imitated and not before:
            stretches.append([])
        if imitated:
            stretches[-1].append(token)
        before = imitated
    return [made.decode(stretch) for stretch in stretches]


def test_only_the_assistants_turns_are_imitated_to_the_last_space(tmp_path: Path) -> None:
    made = tokenizer()
    (talk,) = read_conversations(written(tmp_path, {"messages": TALK}))
    one = ConversationEncoder(made).encode(talk)
    assert received(made, one) == [" Four. <|im_end|>", "Yes\n<|im_end|>"]
    assert made.decode(one.prompt).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?")
    # As a sampler would have gone on: the template's own words stand between the answers, and none behind the last.
    assert made.decode([*one.prompt, *one.tokens]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n Four. "
        "<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\nYes\n<|im_end|>"
    )


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2 + 2?", "response": " Four. "},
        {"instruction": "2 + 2?", "output": " Four. "},
        {
            "prompt": [{"role": "user", "content": "2 + 2?"}],
            "completion": [{"role": "assistant", "content": " Four. "}],
        },
        {"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": " Four. "}]},
    ],
    ids=["pairs", "alpaca", "lists", "sharegpt"],
)
def test_layouts_give_the_same_conversation(row: dict[str, Any], tmp_path: Path) -> None:
    (talk,) = read_conversations(written(tmp_path, row))
    assert [(m.role, m.content, m.imitated) for m in talk.messages] == [
        ("user", "2 + 2?", False),
        ("assistant", " Four. ", True),
    ]


def test_a_weight_of_0_takes_an_answer_out_of_the_loss(tmp_path: Path) -> None:
    made = tokenizer()
    weighed = [{**m, "weight": 0} if m["content"] == " Four. " else m for m in TALK]
    (talk,) = read_conversations(written(tmp_path, {"messages": weighed}))
    assert received(made, ConversationEncoder(made).encode(talk)) == ["Yes\n<|im_end|>"]


def test_without_a_template_turns_stand_on_lines_and_end_with_the_end_token(tmp_path: Path) -> None:
    made = tokenizer(None)
    (talk,) = read_conversations(written(tmp_path, {"messages": TALK}))
    one = ConversationEncoder(made).encode(talk)
    assert made.decode(one.prompt) == "Be brief.\n\n2 + 2?"
    assert received(made, one) == [" Four. <eos>", "Yes\n<eos>"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "no roles"}, r"talks\.jsonl:1: neither messages nor conversations.*the row has text"),
        ({"messages": TALK[:2]}, "no answer of the assistant"),
        ({"messages": [TALK[1], {"role": "assistent", "content": "4"}]}, r"assistent \(did you mean assistant\?\)"),
        ({"messages": [{"rol": "user", "content": "4"}]}, r"message 1 has no role: it has rol \(did you mean role\?\)"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "must be text that is not empty"),
        (
            {"messages": [{"role": "user", "contents": "4"}]},
            r"message 1 has no content: .* contents \(did you mean content",
        ),
        ({"prompt": "2?", "chosen": "2", "rejected": "3"}, r"has a chosen and a rejected answer: set sft\.loss: dpo"),
        ({"mesages": TALK}, r"the row has mesages \(did you mean messages\?\)"),
        ({"messages": TALK[2:]}, "the assistant speaks first"),
        ({"prompt": "2 + 2?", "response": "  "}, "response holds nothing"),
        ({"messages": [{"role": "user", "content": 4.5}]}, "the content of the user must be text"),
    ],
)
def test_a_row_that_is_no_conversation_is_named_with_its_line(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConversationError, match=words):
        read_conversations(written(tmp_path, row))


def test_variables_of_the_template_are_given_and_its_day_stands_still(tmp_path: Path) -> None:
    """As in the prompts of reinforcement learning, which the same file may go on with."""
    made = tokenizer("{{ strftime_now('%Y-%m-%d') }} {{ 'thinks' if thinking else 'answers' }} " + CHATML)
    (talk,) = read_conversations(written(tmp_path, {"messages": TALK}))
    one = ConversationEncoder(made, template_kwargs={"thinking": True}).encode(talk)
    assert made.decode(one.prompt).startswith("2025-01-01 thinks ")
    assert made.decode(ConversationEncoder(made).encode(talk).prompt).startswith("2025-01-01 answers ")
    renderer = PromptRenderer(made, template_kwargs={"thinking": True})
    assert renderer.opening("2 + 2?").startswith("2025-01-01 thinks ")


def test_a_template_that_forgets_earlier_answers_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (talk,) = read_conversations(written(tmp_path, {"messages": TALK}))
    with pytest.raises(ConversationError, match=r"leaves this answer out|one row for each answer"):
        ConversationEncoder(tokenizer(FORGETFUL)).encode(talk)


def test_an_epoch_sees_every_conversation_once(tmp_path: Path) -> None:
    made = tokenizer()
    rows = [{"prompt": str(n), "response": f"{n}!"} for n in range(6)]
    encoder = ConversationEncoder(made)
    encoded = [encoder.encode(one) for one in read_conversations(written(tmp_path, *rows))]
    data = ImitationData([[one] for one in encoded], batch_size=4, pad_token_id=made.pad_token_id, seed=3)
    seen = [task for step in range(3) for task in data.batch(step).metadata["task_id"]]
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6))
    assert seen[:6] != seen[6:]


def sft_alone(folder: Path, data: str, **sections: dict[str, Any]) -> dict[str, Any]:
    """A run of supervised training without an environment."""
    made = mapping(folder, **sections)
    made["sft"] = {"steps": 4, "batch_size": 4, "lr": 0.01, "warmup_steps": 0, "data": data, **sections.get("sft", {})}
    made["run"]["max_steps"] = 0
    for section in ("env", "evaluation", "rollout", "algorithm", "data"):
        made.pop(section)
    return made


def sums(folder: Path) -> str:
    return written(folder, *({"prompt": f"{n} + 1 =", "response": f" {n + 1}"} for n in range(24)))


def finished(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def loaded(made: dict[str, Any]) -> Config:
    return load_mapping(made, source="test")


def test_rlinf_sft_needs_no_environment_and_measures_held_out_loss(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    file = tmp_path / "sft.yaml"
    made = sft_alone(folder, sums(tmp_path), sft={"eval_fraction": 0.25})
    del made["run"]["max_steps"]  # as a file that reinforcement learning will go on with
    file.write_text(yaml.safe_dump(made))
    assert main(["sft", str(file)]) == 0
    output = finished(folder)
    assert output["metrics"]["eval/sft_loss"] < output["initial_metrics"]["eval/sft_loss"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [-4, -3, -2, -1, 0]
    assert all("sft/loss" in line for line in lines[:-1])
    assert "epochs" in output["notes"]["sft.data"]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, split = (kind.from_pretrained(folder / "policy") for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert model.generate(**split("3 + 1 =", return_tensors="pt"), max_new_tokens=2).shape[1] > 0


def test_packing_and_micro_batches_change_nothing(tmp_path: Path) -> None:
    data = sums(tmp_path)
    cuts = {"packed": {}, "padded": {"pack": False}, "small": {"micro_batch_tokens": 32}}
    losses = {}
    for name, learner in cuts.items():
        made = sft_alone(tmp_path / name, data, learner=learner)
        made |= {"data": {"max_prompt_length": 16}, "rollout": {"max_new_tokens": 16}}
        run(loaded(made), report=False)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses[name] = torch.tensor([json.loads(line).get("sft/loss", 0.0) for line in lines])
    torch.testing.assert_close(losses["padded"], losses["packed"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses["small"], losses["packed"], rtol=1e-4, atol=1e-5)


class Stop(Exception):
    """Raised instead of a kill."""


def test_supervised_training_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, every = sums(tmp_path), {"checkpoint": {"every": 1}, "sft": {"steps": 8}}
    run(loaded(sft_alone(tmp_path / "straight", data, **every)), report=False)
    save = RunState.save

    def stopping(self: RunState) -> None:
        save(self)
        if self.order == -5:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "save", stopping)
        with pytest.raises(Stop):
            run(loaded(sft_alone(tmp_path / "cut", data, **every)), report=False)
    run(loaded(sft_alone(tmp_path / "cut", data, **every)), report=False)
    assert finished(tmp_path / "cut")["params_sha256"] == finished(tmp_path / "straight")["params_sha256"]


def test_a_run_does_not_go_on_with_other_rows(tmp_path: Path) -> None:
    made = sft_alone(tmp_path / "run", sums(tmp_path))
    rows = Path(made["sft"]["data"])
    before = rows.read_text()
    run(loaded(made))
    rows.write_text(before.replace("1 + 1 =", "1+1="))
    with pytest.raises(RunDirectoryError, match=r"began with other rows: sft\.data \(.*\) has changed since"):
        run(loaded(made))
    made["run"]["dir"] = str(tmp_path / "other")
    run(loaded(made))
    rows.write_text(before)
    made["run"]["dir"] = str(tmp_path / "run")
    run(loaded(made))
    assert finished(tmp_path / "run")["params_sha256"] != finished(tmp_path / "other")["params_sha256"]


def test_sft_then_rl_in_one_file(tmp_path: Path) -> None:
    made = mapping(tmp_path / "run", run={"max_steps": 1}, evaluation={"size": 4})
    made["sft"] = {"steps": 2, "batch_size": 4, "data": sums(tmp_path), "eval_fraction": 0.25}
    run(loaded(made), report=False)
    metrics = finished(tmp_path / "run")["metrics"]
    assert {"eval/accuracy", "eval/sft_loss"} <= metrics.keys()


def test_without_an_environment_and_with_steps_of_training_the_file_is_refused(tmp_path: Path) -> None:
    made = sft_alone(tmp_path / "run", sums(tmp_path))
    made["run"]["max_steps"] = 5
    with pytest.raises(ConfigErrors, match="Supervised training alone needs none: rlinf sft"):
        loaded(made)
    made = sft_alone(tmp_path / "run", str(tmp_path / "talk.jsonl"))
    with pytest.raises(ConfigErrors, match=r"Did you mean .*talks\.jsonl"):
        loaded(made)


def test_conversations_that_the_model_does_not_see_whole_are_refused_before_training(tmp_path: Path) -> None:
    rows = [{"prompt": "1 + 1 =", "response": f" {2:0{digits}}"} for digits in (1, 2, 40)]
    made = sft_alone(tmp_path / "run", written(tmp_path, *rows))
    made["policy"]["architecture"]["max_position_embeddings"] = 30  # fewer than prompts and responses may have here
    with pytest.raises(
        UserError, match=r"1 of 3 conversations .* sees \(30\), the first in .*:3: write sft.max_tokens"
    ):
        run(loaded(made))
    tokens = (tmp_path / "run" / "tokenizer" / "tokenizer.json").read_text()
    made["sft"]["max_tokens"] = 30  # as the message has it: nothing was trained, so the same directory takes it
    made["policy"]["tokenizer"]["vocab_size"] = 258
    run(loaded(made))
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").read_text() != tokens


def test_check_shows_what_is_imitated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sft_alone(tmp_path / "run", sums(tmp_path))
    tokenizer(None).save_pretrained(str(tmp_path / "tokenizer"))
    made["policy"]["tokenizer"] = {"path": str(tmp_path / "tokenizer")}
    file = tmp_path / "sft.yaml"
    del made["run"]["max_steps"]  # 0 where there is no environment
    file.write_text(yaml.safe_dump(made))
    assert main(["check", str(file)]) == 0
    output = capsys.readouterr().out
    assert "4 of 4 conversations of at most 2048 tokens" in output
    assert "24 conversations of" in output
    assert "|  1<eos>" in output


def test_epochs_are_counted_in_steps_and_kept_so(tmp_path: Path) -> None:
    data = sums(tmp_path)
    rows = len(Path(data).read_text().splitlines())
    made = sft_alone(tmp_path / "run", data, sft={"epochs": 0.5, "steps": 0})
    run(loaded(made), report=False)
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["sft"]
    assert (kept["steps"], kept["epochs"]) == (-(-rows // 8), None)
    run(loaded(made), report=False)  # the same file is the same run
    made["sft"]["steps"] = 3
    with pytest.raises(ConfigErrors, match="both set the length"):
        loaded(made)
    made["sft"] = {"epochs": 1}
    with pytest.raises(ConfigErrors, match="counts passes over"):
        loaded(made)


def test_the_templates_end_mark_is_exported_with_what_was_taught(tmp_path: Path) -> None:
    """The tokenizer ends texts with another token, as those of base models do that have a chat template."""
    made = tokenizer()
    made.save_pretrained(tmp_path / "tokenizer")
    settings = sft_alone(tmp_path / "run", sums(tmp_path))
    settings["policy"]["tokenizer"] = {"path": str(tmp_path / "tokenizer")}
    run(loaded(settings), report=False)
    found = json.loads((tmp_path / "run" / "policy" / "generation_config.json").read_text())["eos_token_id"]
    assert found == sorted([made.eos_token_id, made.convert_tokens_to_ids("<|im_end|>")])


def test_rows_whose_prompts_are_held_out_are_not_trained_on(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} + 1 =", "response": str(n + 1), "source": "x"} for n in range(6)]
    data = written(tmp_path, *rows)
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("".join(json.dumps(row) + "\n" for row in rows[4:]))
    output = run(loaded(sft_alone(tmp_path / "run", data, sft={"eval_data": str(held_out)})), report=False)
    notes = finished(tmp_path / "run")["notes"]
    assert notes["sft.data left out, whose prompts sft.eval_data has"] == 2
    assert notes["sft.data"].startswith("4 conversations")
    assert notes["sft.data: column that is not read, source"] == 4
    assert output.metrics["eval/sft_tokens"] > 0


def test_end_marks_in_rows_are_named_by_check_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer().save_pretrained(tmp_path / "tokenizer")
    rows = [{"prompt": f"{n} + 1 =", "response": f"{n + 1}<|im_end|>\n"} for n in range(8)]
    made = sft_alone(tmp_path / "run", written(tmp_path, *rows))
    made["policy"]["tokenizer"] = {"path": str(tmp_path / "tokenizer")}
    del made["run"]["max_steps"]
    file = tmp_path / "sft.yaml"
    file.write_text(yaml.safe_dump(made))
    words = "answers that end with <|im_end|>: 8, the first in"
    assert main(["check", str(file)]) == 0
    assert words in capsys.readouterr().out
    assert main(["sft", str(file)]) == 0
    assert any(words in note for note in finished(tmp_path / "run")["notes"])
    written(tmp_path, *rows, {"prompt": "9 + 1 =", "response": "10<|im_end|>\n<|im_start|>user\n9 + 2 ="})
    assert main(["check", str(file), f"run.dir={tmp_path / 'other'}"]) == 2
    assert "talks.jsonl:9, message 2 (assistant): the answer has <|im_end|> inside" in capsys.readouterr().out
