"""A folder that a key names as a model is one whose weights are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from config_cases import QUICKSTART, mistakes

from rlinf.config import load

SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


def folder_with(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    for file in files:
        (folder / file).write_text("{}")
    return folder


def recipe(folder: Path, **sections: object) -> Path:
    """The quickstart with these sections changed."""
    file = folder / "run.yaml"
    file.write_text(json.dumps({"extends": str(QUICKSTART), **sections}, indent=1))
    return file


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("policy.path", {"policy": {"architecture": None, "path": "model"}}),
        ("teacher.path", {"teacher": {"path": "model"}, "algorithm": {"adv_type": "opd"}}),
        ("reward_model.path", {"reward_model": {"path": "model", "supervision": "outcome"}}),
    ],
)
def test_a_folder_without_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, sections: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder_with(tmp_path / "model", "training_args.bin", "tokenizer.json")
    message = mistakes(recipe(tmp_path, **sections))
    assert f"{key}: model holds no weights: model.safetensors (or pytorch_model.bin) is missing." in message
    assert "run.yaml:" in message
    assert ("policy.architecture" in message) == (key == "policy.path")


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (SHARDS[:2], f"model holds only a part of its weights: {SHARDS[2]} is missing."),
        (SHARDS[1:2], f"model holds only a part of its weights: {SHARDS[0]} and 1 more are missing."),
        (SHARDS, None),
    ],
)
def test_every_file_that_an_index_names_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], words: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    model = folder_with(tmp_path / "model", *there)
    index = {"weight_map": {f"layer.{number}": name for number, name in enumerate(SHARDS)}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    file = recipe(tmp_path, policy={"architecture": None, "path": "model"})
    if words is None:
        assert load(file).policy.path == "model"
    else:
        assert words in mistakes(file)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"])
def test_weights_go_by_several_names(tmp_path: Path, file: str) -> None:
    model = folder_with(tmp_path / "model", file)
    assert load(recipe(tmp_path, policy={"architecture": None, "path": str(model)})).policy.path == str(model)


def test_a_run_instead_of_what_it_exported_is_named(tmp_path: Path) -> None:
    run = folder_with(tmp_path / "run")
    folder_with(run / "policy", "model.safetensors")
    message = mistakes(recipe(tmp_path, policy={"architecture": None, "path": str(run)}))
    assert f"Did you mean {run / 'policy'}?" in message


def test_shards_without_their_index_are_refused(tmp_path: Path) -> None:
    model = folder_with(tmp_path / "model", *SHARDS)
    message = mistakes(recipe(tmp_path, policy={"architecture": None, "path": str(model)}))
    assert "holds only a part of its weights: model.safetensors.index.json is missing." in message


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model.", ""])
def test_tensors_named_by_a_wrapper_are_refused(tmp_path: Path, prefix: str) -> None:
    model = folder_with(tmp_path / "model")
    header = json.dumps({f"{prefix}model.norm.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    file = recipe(tmp_path, policy={"architecture": None, "path": str(model)})
    if prefix:
        assert f"the names of all tensors of {model} begin with {prefix!r}." in mistakes(file)
    else:
        assert load(file).policy.path == str(model)


@pytest.mark.parametrize(
    ("kind", "architecture", "words"),
    [
        ("llama", "LlamaForSequenceClassification", "scores texts .* reward_model.path"),
        ("qwen2", "Qwen2ForTokenClassification", "scores texts .* reward_model.path"),
        ("bert", "BertModel", "BertModel is an encoder"),
        ("roberta", "RobertaForMaskedLM", "RobertaForMaskedLM is an encoder"),
        ("t5", "T5ForConditionalGeneration", "is an encoder with a decoder"),
        ("qwen2", "Qwen2ForQuestionAnswering", "another output layer"),
        ("qwen2", "Qwen2ForProcessRewardModel", "another output layer"),
        ("bert", "BertLMHeadModel", None),
        ("gpt2", "GPT2LMHeadModel", None),
    ],
)
def test_a_model_that_predicts_no_tokens_is_refused(
    tmp_path: Path, kind: str, architecture: str, words: str | None
) -> None:
    model = folder_with(tmp_path / "model", "model.safetensors")
    more = {"is_encoder_decoder": kind == "t5", "is_decoder": architecture.endswith("LMHeadModel")}
    (model / "config.json").write_text(json.dumps({"model_type": kind, "architectures": [architecture], **more}))
    policy = recipe(tmp_path, policy={"architecture": None, "path": str(model)})
    if words is None:
        load(policy)
        return
    assert re.search(rf"policy\.path: .*{words}", mistakes(policy))
    teacher = recipe(tmp_path, teacher={"path": str(model)}, algorithm={"adv_type": "opd"})
    assert re.search(rf"teacher\.path: .*{words}", mistakes(teacher))


@pytest.mark.parametrize("key", ["policy.path", "policy.tokenizer.path", "env.kwargs.path", "sft.data"])
def test_an_empty_path_is_no_path(tmp_path: Path, key: str) -> None:
    first, *inner = key.split(".")
    value: object = ""
    for name in reversed(inner):
        value = {name: value}
    assert f"{key} is empty. Name a file or a folder" in mistakes(recipe(tmp_path, **{first: value}))
