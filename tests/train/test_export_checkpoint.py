"""Folders that other programs load: of any checkpoint, with a tokenizer that splits as it did in training."""

from pathlib import Path

import pytest
import torch
from tiny_runs import config

from rlinf.base.errors import UserError
from rlinf.commands.export import main as export
from rlinf.train import run

TEXT = "State the final answer: 17 + 28 =\n#### 45 'tis\u0301 1,000"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "run"
    run(config(folder, run={"max_steps": 2}, checkpoint={"every": 1, "keep": 3}), report=False)
    return folder


@pytest.mark.parametrize("trusting", [False, True])
def test_plain_transformers_splits_the_exported_tokenizer_as_training_did(finished: Path, trusting: bool) -> None:
    """A qwen2 model, for which AutoTokenizer takes Qwen's splitting rules whatever `tokenizer.json` has."""
    from transformers import AutoTokenizer

    from rlinf.models.loading import load_tokenizer

    own = load_tokenizer(str(finished / "tokenizer"))
    read = AutoTokenizer.from_pretrained(finished / "policy", trust_remote_code=trusting)
    assert read.encode(TEXT) == own.encode(TEXT)
    assert (len(read), read.eos_token_id, read.pad_token_id) == (len(own), own.eos_token_id, own.pad_token_id)
    assert read.decode(read.encode(TEXT)) == TEXT


def test_a_model_kind_that_keeps_its_tokenizer_is_exported_without_an_addition(finished: Path, tmp_path: Path) -> None:
    from transformers import LlamaConfig

    from rlinf.models.loading import load_tokenizer
    from rlinf.models.tokenizer_export import save_tokenizer

    LlamaConfig().save_pretrained(str(tmp_path))
    save_tokenizer(load_tokenizer(str(finished / "tokenizer")), tmp_path)
    assert not list(tmp_path.glob("*.py"))


def test_an_older_checkpoint_is_exported_by_its_step(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    for step in (1, 2):
        assert export([str(finished), str(tmp_path / str(step)), "--step", str(step)]) == 0
        assert capsys.readouterr().out == f"policy of step {step} written to {tmp_path / str(step)}\n"
    one, two, last = (
        AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
        for folder in (tmp_path / "1", tmp_path / "2", finished / "policy")
    )
    assert torch.equal(two, last)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("extra", [["--onnx"], ["--layout", "lerobot"]])
def test_what_a_policy_cannot_be_written_as_leaves_no_folder(
    finished: Path, tmp_path: Path, extra: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=" is for "):
        export([str(finished), str(tmp_path / "out"), *extra])
    assert list(tmp_path.iterdir()) == []
    assert "written" not in capsys.readouterr().out


def test_a_step_without_a_checkpoint_is_refused_with_those_there_are(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are those of 0, 1, 2"):
        export([str(finished), str(tmp_path / "out"), "--step", "7"])
    with pytest.raises(UserError, match="is no run directory"):
        export([str(tmp_path), str(tmp_path / "out")])
    with pytest.raises(UserError, match="is the checkpoint of step 1"):
        export([str(finished / "checkpoints" / "step_000001"), str(tmp_path / "out"), "--step", "2"])
