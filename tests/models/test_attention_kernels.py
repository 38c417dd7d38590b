"""Workers that compute on GPUs take no attention that makes a plan for each length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from rlinf.train.workers.sampler_worker import SamplerWorker


@pytest.fixture
def cudnn_attention() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.usefixtures("cudnn_attention")
def test_a_sampler_turns_the_attention_of_cudnn_off() -> None:
    SamplerWorker(object())  # type: ignore[arg-type]
    assert not torch.backends.cuda.cudnn_sdp_enabled()
