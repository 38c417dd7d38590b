"""A learner at full size on fake tensors: what it holds, sends and does wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rlinf.config import Config, resolve
from rlinf.data.messages import PolicyOutput
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import make_tokenizer
from rlinf.planning.memory import estimate
from rlinf.train.rehearsal.rank import Phase, RankReport, rehearse_rank
from rlinf.train.rehearsal.report import rehearsal_text


@pytest.fixture(autouse=True)
def without_process_group() -> None:
    """Learners of other tests may have left theirs in this process."""
    if dist.is_initialized():
        dist.destroy_process_group()


YAML = """
run: {name: small}
env: {id: "rlinf_envs:rlinf/ReasoningGym-v0", kwargs: {task: chain_sum}}
data: {max_prompt_length: 8}
policy:
  architecture: {model_type: qwen2, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
    num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 320}
rollout: {sampler: hf, batch_size: 4, max_new_tokens: 24}
algorithm: {group_size: 4, kl_beta: 0.01}
learner: {micro_batch_tokens: 64}
cluster: {backend: local}
"""
MEDIUM = """
run: {name: medium}
env: {id: "rlinf_envs:rlinf/ReasoningGym-v0", kwargs: {task: chain_sum}}
data: {max_prompt_length: 256}
policy:
  architecture: {model_type: qwen2, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 4,
    num_attention_heads: 16, num_key_value_heads: 4, vocab_size: 32000}
rollout: {sampler: hf, batch_size: 32, max_new_tokens: 768}
algorithm: {group_size: 8}
learner: {micro_batch_tokens: 8192}
"""
PARAMETERS = 64 * 320 * 2 + 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 64 + 2 * 32 + 3 * 64 * 128 + 2 * 64)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(None, vocab_size=300, split_digits=True, texts=lambda: ["1 + 1 = 2"]).save_pretrained(str(folder))
    return str(folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(YAML)
    return path


def configured(file: Path, *changes: str) -> Config:
    return resolve(str(file), list(changes)).config


def kept(report: RankReport, phase: str = "update") -> Mapping[str, int]:
    found = report.phase(phase)
    assert found is not None
    return kept_of(found)


def kept_of(phase: Phase) -> Mapping[str, int]:
    return {part: phase.parts.get(part, 0) for part in ("weights", "gradients", "optimiser", "reference")}


@pytest.mark.slow
def test_one_rank_holds_what_the_plan_computes(file: Path, tokenizer: str) -> None:
    report = rehearse_rank(configured(file), tokenizer, rank=0)
    # In addition to weights there are the frequencies of the positions, and Adam's counters.
    assert kept(report) == {
        "weights": pytest.approx(4 * PARAMETERS, rel=0.001),
        "gradients": 4 * PARAMETERS,
        "optimiser": pytest.approx(8 * PARAMETERS, rel=0.001),
        "reference": pytest.approx(4 * PARAMETERS, rel=0.001),
    }
    assert str(report.device) == "cuda:0"
    assert not report.observed.mistakes
    assert not torch.cuda.is_available(), "what was pretended is over"


@pytest.mark.slow
def test_fsdp_ranks_hold_shares_and_report_what_they_send(file: Path, tokenizer: str) -> None:
    config = configured(
        file, "learner.backend=fsdp", "learner.num_workers=4", "algorithm.kl_beta=0", "cluster.backend=ray"
    )
    report = rehearse_rank(config, tokenizer, rank=0)
    assert kept(report)["weights"] == pytest.approx(PARAMETERS, rel=0.001)
    assert kept(report)["gradients"] == pytest.approx(PARAMETERS, rel=0.001)
    made, update = report.phase("made"), report.phase("update")
    assert made is not None
    assert update is not None
    layer = (PARAMETERS - 64 * 320 * 2 - 64) // 2
    assert made.peak < 4 * (PARAMETERS // 4 + max(layer, 2 * 64 * 320 + 64) * 2), "never the whole model"
    kinds = {kind for kind, _ in update.sent}
    assert {"allgather", "reduce_scatter"} <= kinds
    # 16-bit weights come together for the forward and the backward pass of each of two micro-batches, but the last
    # layer's and the root's, which stay in between.
    assert 2 * 2 * PARAMETERS // 4 <= update.sent["allgather", 4] <= 2 * 2 * 2 * PARAMETERS // 4 + 64
    assert update.sent["reduce_scatter", 4] == pytest.approx(2 * 4 * PARAMETERS, rel=0.01)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that mixes devices and precisions, in this file."""
    honest = CausalLMPolicy.evaluate

    def careless(self: CausalLMPolicy, inputs: Any, actions: Tensor, mask: Tensor, **options: Any) -> PolicyOutput:
        output = honest(self, inputs, actions, mask, **options)
        forgotten = torch.ones(mask.shape)
        logprobs = output.logprobs * forgotten  # planted: device
        with torch.autocast("cuda", enabled=False):
            logprobs @ logprobs.t().bfloat16()  # planted: dtype
        return PolicyOutput(logprobs, output.entropy, output.values)

    monkeypatch.setattr(CausalLMPolicy, "evaluate", careless)


@pytest.mark.usefixtures("planted")
def test_planted_mistakes_are_found_with_their_lines(file: Path, tokenizer: str) -> None:
    lines = Path(__file__).read_text().splitlines()
    planted = {
        word: next(n for n, line in enumerate(lines, 1) if f"# planted: {word}" in line) for word in ("device", "dtype")
    }
    report = rehearse_rank(configured(file, "algorithm.kl_beta=0"), tokenizer, rank=0)
    found = {(mistake.kind, mistake.line) for mistake in report.observed.mistakes if not mistake.backward}
    assert found == {(f"{word} mismatch", f"{__file__}:{line}") for word, line in planted.items()}


@pytest.mark.slow
def test_layers_that_are_computed_again_keep_less(file: Path, tokenizer: str) -> None:
    """transformers ignores its own switch in layers that are not in training, as a learner's are."""
    peaks = []
    for again in ("false", "true"):
        changes = (
            "algorithm.kl_beta=0",
            "policy.architecture.num_hidden_layers=6",
        )
        config = configured(file, *changes, f"policy.gradient_checkpointing={again}", "learner.micro_batch_tokens=256")
        update = rehearse_rank(config, tokenizer, rank=0).phase("update")
        assert update is not None
        peaks.append(update.peak - sum(kept_of(update).values()))
    assert peaks[1] < 0.6 * peaks[0]


@pytest.mark.slow
@pytest.mark.parametrize("again", ["false", "true"])
@pytest.mark.parametrize("backend", ["torch", "fsdp"])
def test_the_plan_is_within_a_tenth_of_a_rehearsal(file: Path, tokenizer: str, backend: str, again: str) -> None:
    file.write_text(MEDIUM)
    ranks = 8 if backend == "fsdp" else 1
    config = configured(
        file, f"learner.backend={backend}", f"learner.num_workers={ranks}", f"policy.gradient_checkpointing={again}"
    )
    decoder = decoder_shape(config.policy)
    assert decoder is not None
    update = rehearse_rank(config, tokenizer, rank=0).phase("update")
    assert update is not None
    assert estimate(config, decoder, gpus=ranks).peak == pytest.approx(update.peak, rel=0.1)


@pytest.mark.slow
def test_the_tables_show_what_differs(file: Path, tokenizer: str) -> None:
    config = configured(file, "algorithm.kl_beta=0")
    decoder = decoder_shape(config.policy)
    assert decoder is not None
    text = rehearsal_text(rehearse_rank(config, tokenizer, rank=0), estimate(config, decoder, gpus=1), 1)
    assert "Rehearsal of rank 0 of 1, on fake cuda:0" in text
    assert "The plan is" in text
    assert "rlinf/models/packing.py:" in text, "a line at which the host waits"
    assert text.endswith("No wrong device and no wrong dtype.")


@pytest.mark.slow
def test_megatron_is_driven_on_fake_cpu_tensors(file: Path, tokenizer: str) -> None:
    pytest.importorskip("rlinf.learners.megatron.learner", exc_type=ImportError)
    config = configured(file, "learner.backend=megatron", "algorithm.kl_beta=0")
    report = rehearse_rank(config, tokenizer, rank=0)
    assert report.device.type == "cpu"
    padding = 2 * 64 * (384 - 320)  # of the embeddings, to a multiple of 128 tokens
    assert kept(report)["weights"] == pytest.approx(4 * (PARAMETERS + padding), rel=0.001)
