"""Fixtures: a tiny random model, and samplers of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_models import EOS, PAD, tiny_qwen2
from transformers import PreTrainedModel

from rlinf.samplers.hf import HFSampler


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Matrices this small only get slower on several threads, much slower where cores are shared."""
    torch.set_num_threads(1)


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny_qwen2()


@pytest.fixture
def make_sampler(model: PreTrainedModel) -> Callable[..., HFSampler]:
    def make(
        of: PreTrainedModel | None = None, *, batch: int = 64, max_model_len: int = 128, keep_cache: bool = False
    ) -> HFSampler:
        return HFSampler(
            of or model,
            eos_token_ids=[EOS],
            pad_token_id=PAD,
            seed=7,
            generation_batch_size=batch,
            max_model_len=max_model_len,
            keep_cache=keep_cache,
        )

    return make
