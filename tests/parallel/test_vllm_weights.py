"""What megatron ranks have trained arrives, part by part, in a real vLLM engine of another layout."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import learner_jobs as jobs
import pytest
import torch
from learner_cases import SAMPLING, VOCABULARY, tiny_model
from learner_gang import Gang
from torch import Tensor

from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Completion, SampleRequest, WeightUpdate
from rlinf.samplers.vllm import VllmSampler
from rlinf.schema.learner import MegatronConfig
from rlinf.schema.rollout import VllmConfig

pytestmark = [
    pytest.mark.megatron,
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
BUCKET = 16 << 10
LAYOUTS = {
    "tensor 2": MegatronConfig(tensor_parallel=2, sequence_parallel=True),
    "pipeline 2": MegatronConfig(pipeline_parallel=2),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    original().save_pretrained(path)
    return path


def original() -> Any:
    """Its heads are large enough for the engine's kernels."""
    return tiny_model("qwen3", head_dim=32)


@pytest.fixture(scope="module", params=[1, 2])
def sampler(request: pytest.FixtureRequest, folder: Path) -> Iterator[VllmSampler]:
    """Over one tensor-parallel worker, and over two."""
    config = VllmConfig(kv_cache_memory_mb=16, dtype="float32", max_num_seqs=64, tensor_parallel_size=request.param)
    made = VllmSampler(folder, config, eos_token_ids=[1], seed=7, max_model_len=64)
    yield made
    made._engine.engine_core.shutdown()


@pytest.mark.parametrize("name", LAYOUTS)
def test_sampled_logprobs_are_the_learners(gang: Gang, folder: Path, sampler: VllmSampler, name: str) -> None:
    layout = LAYOUTS[name]
    ranks = gang.run(jobs.trained_parts, layout, folder, BUCKET, ranks=2)
    # Each part comes from one rank; the update of the other is empty.
    parts = [max(updates, key=lambda update: len(update.tensors)) for updates in zip(*ranks, strict=True)]
    assert len(parts) > 3
    prompts = [
        tuple(2 + (7 * row + 3 * position) % (VOCABULARY - 2) for position in range(row + 1)) for row in range(6)
    ]
    requests = [SampleRequest(row, ids, 2, SAMPLING, (row,)) for row, ids in enumerate(prompts)]
    sampler.load(WeightUpdate(1, {key: value.detach() for key, value in original().named_parameters()}))
    stale = sampler.sample(requests)
    for part in parts:
        sampler.load(part)
    fresh = sampler.sample(requests)
    assert {version for done in fresh for version in done.policy_version} == {2}
    gaps = [
        (sampled(done) - gang.run(jobs.trained_logprobs, layout, folder, batch_of(prompts, done), ranks=2)[0]).abs()
        for done in (stale, fresh)
    ]
    assert gaps[0].max() > 0.1, "the steps must show, or this test shows nothing"
    assert gaps[1].max() < 1e-4


def batch_of(prompts: list[tuple[int, ...]], completions: list[Completion]) -> Batch:
    """The learner's view of what was sampled; prompts of 1 to 6 tokens, responses of at most 8."""
    rows = len(completions)
    ids, actions = torch.zeros(rows, 6, dtype=torch.int64), torch.zeros(rows, 8, dtype=torch.int64)
    for row, done in enumerate(completions):
        prompt = prompts[done.request_id]
        ids[row, : len(prompt)] = torch.tensor(prompt)
        actions[row, : len(done.token_ids)] = torch.tensor(done.token_ids)
    lengths = torch.tensor([len(prompts[done.request_id]) for done in completions])
    responses = torch.tensor([len(done.token_ids) for done in completions])
    return Batch(
        inputs=TextInputs(ids, lengths, responses),
        actions=actions,
        mask=torch.arange(8) < responses[:, None],
        rollout_logprobs=sampled(completions),
        rewards=torch.zeros(rows),
        group_ids=torch.tensor([done.request_id for done in completions]),
        policy_version=torch.zeros(rows, 8, dtype=torch.int32),
    )


def sampled(completions: list[Completion]) -> Tensor:
    """Log-probabilities [B, 8] as the engine tells them, 0 behind a response."""
    found = torch.zeros(len(completions), 8)
    for row, done in enumerate(completions):
        found[row, : len(done.logprobs)] = torch.tensor(done.logprobs)
    return found
