"""``rlinf convert``: a Hugging Face folder to a checkpoint and back, in one process and in several."""

from __future__ import annotations

from pathlib import Path

import learner_jobs as jobs
import pytest
import torch
from learner_cases import tiny_model
from learner_gang import Gang

pytestmark = pytest.mark.megatron


@pytest.mark.slow
@pytest.mark.parametrize(("there", "back"), [pytest.param((1, 1), (1, 1), marks=pytest.mark.slow), ((2, 1), (1, 2))])
def test_there_and_back(gang: Gang, tmp_path: Path, there: tuple[int, int], back: tuple[int, int]) -> None:
    """Layouts are (tensor parallel, pipeline parallel)."""
    from transformers import AutoModelForCausalLM

    model = tiny_model("qwen3", tied=False)
    model.save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").write_text("{}")
    for source, out, (tensor, pipeline) in (("hf", "megatron", there), ("megatron", "again", back)):
        words = [str(tmp_path / source), str(tmp_path / out), f"--tensor-parallel={tensor}"]
        codes = gang.run(jobs.convert, [*words, f"--pipeline-parallel={pipeline}"], ranks=tensor * pipeline)
        assert set(codes) == {0}
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "again").state_dict()
    wanted = model.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert (tmp_path / "again" / "tokenizer.json").read_text() == "{}"


@pytest.mark.slow
def test_experts_there_and_back(gang: Gang, tmp_path: Path) -> None:
    """Experts over two processes on the way in, over one on the way out; files name each expert."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = tiny_model("qwen3_moe", tied=False)
    model.save_pretrained(tmp_path / "hf")
    there = [str(tmp_path / "hf"), str(tmp_path / "megatron"), "--expert-parallel=2"]
    assert gang.run(jobs.convert, there, ranks=2) == [0, 0]
    assert gang.run(jobs.convert, [str(tmp_path / "megatron"), str(tmp_path / "again")], ranks=1) == [0]
    names = load_file(tmp_path / "again" / "model.safetensors").keys()
    assert names == load_file(tmp_path / "hf" / "model.safetensors").keys()
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "again").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


def test_a_folder_without_a_model_is_refused(gang: Gang, tmp_path: Path) -> None:
    assert gang.run(jobs.convert, [str(tmp_path), str(tmp_path / "out")], ranks=1) == [2]


def test_shards_have_an_index_that_transformers_reads(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from rlinf.learners.shards import SafetensorsFolder, write_shards

    model = tiny_model()
    write_shards(model.named_parameters(), tmp_path, shard_bytes=20_000)
    model.config.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    found = AutoModelForCausalLM.from_pretrained(tmp_path)
    read = SafetensorsFolder(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(found.get_parameter(name), parameter)
        assert torch.equal(read(name), parameter)
