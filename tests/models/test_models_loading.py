"""Checkpoints as others leave them: whole ones load exactly, and no tensor is drawn at random in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from language_models import tiny
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf.data.messages import SamplingParams
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.checkpoint_files import without_weights
from rlinf.models.loading import PolicyError, load_causal_lm, load_tokenizer

Tensors = dict[str, Tensor]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
TOKENS = torch.arange(2, 12)[None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied model of two layers."""
    folder = tmp_path_factory.mktemp("saved")
    tiny("qwen2").save_pretrained(folder)
    return folder


def changed(saved: Path, folder: Path, change: Callable[[Tensors], Tensors]) -> str:
    """Copy a checkpoint with other tensors in it."""
    shutil.copytree(saved, folder)
    tensors = {name: value.contiguous() for name, value in change(load_file(saved / "model.safetensors")).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda tensors: {f"module.{name}": value for name, value in tensors.items()},
            r"lacks .* and \d+ more of its model's tensors; it has module\.model\.embed_tokens\.weight instead",
        ),
        (lambda tensors: {"a": torch.zeros(1)}, r"it has a instead, which the model does not have"),
        (
            lambda tensors: {name: value for name, value in tensors.items() if "layers.1.mlp.up_proj" not in name},
            r"lacks model\.layers\.1\.mlp\.up_proj\.weight of its model's tensors\. Save it again",
        ),
    ],
)
def test_a_checkpoint_without_some_of_its_tensors_is_refused(
    saved: Path, tmp_path: Path, change: Callable[[Tensors], Tensors], words: str
) -> None:
    with pytest.raises(PolicyError, match=words):
        load_causal_lm(changed(saved, tmp_path / "model", change))


def test_a_head_that_is_not_tied_and_not_there_is_refused(saved: Path, tmp_path: Path) -> None:
    path = Path(changed(saved, tmp_path / "model", dict))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(PolicyError, match=r"lacks lm_head\.weight of its model's tensors.*tie_word_embeddings"):
        load_causal_lm(str(path))


def test_further_tensors_do_no_harm(saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path / "model", lambda tensors: {**tensors, "v_head.weight": torch.zeros(1, 32)})
    assert torch.equal(load_causal_lm(path)(TOKENS).logits, load_causal_lm(str(saved))(TOKENS).logits)


def test_pointers_of_git_lfs_are_named(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    (path / "model.safetensors").write_bytes(POINTER)
    sentence = f"{path} holds pointers of Git LFS in the place of model.safetensors: run `git lfs pull` there"
    assert without_weights(str(path)) == sentence
    with pytest.raises(PolicyError, match=r"no causal language model .*git lfs pull"):
        load_causal_lm(str(path))
    (path / "tokenizer.json").write_bytes(POINTER)
    with pytest.raises(PolicyError, match=r"no tokenizer .* in the place of model\.safetensors and 1 more files"):
        load_tokenizer(str(path))


def test_a_folder_below_the_home_folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(saved, tmp_path / "model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert torch.equal(load_causal_lm("~/model")(TOKENS).logits, load_causal_lm(str(saved))(TOKENS).logits)


def test_a_temperature_without_sampling_does_not_stop_the_export(saved: Path, tmp_path: Path) -> None:
    """transformers reads such a generation_config.json, and refuses to write it: after a whole run."""
    shutil.copytree(saved, tmp_path / "model")
    own = {"temperature": 0.9, "top_p": 0.6, "eos_token_id": [1, 7], "bos_token_id": 3}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(own))
    policy = CausalLMPolicy(load_causal_lm(str(tmp_path / "model")), sampling=SamplingParams(max_new_tokens=4))
    policy.save_pretrained(str(tmp_path / "export"))
    written = json.loads((tmp_path / "export" / "generation_config.json").read_text())
    assert (written["eos_token_id"], written["bos_token_id"]) == ([1, 7], 3)
    assert "temperature" not in written
