"""A learner and samplers of a tiny model, for tests of the ways between them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from tiny_models import EOS, PAD, tiny_qwen2

from rlinf.cluster import RankInfo
from rlinf.data.messages import Completion, Metrics, SampleRequest, WeightUpdate
from rlinf.interfaces import Sampler
from rlinf.samplers.hf import HFSampler
from rlinf.schema.rollout import VllmConfig
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.sampler_worker import SamplerWorker


def weights_of(version: int) -> dict[str, torch.Tensor]:
    """The tiny model's weights, another set for each version."""
    generator = torch.Generator().manual_seed(version)
    model = tiny_qwen2(head_dim=32)
    return {
        name: parameter.detach() + 0.05 * torch.randn(parameter.shape, generator=generator)
        for name, parameter in model.named_parameters()
    }


def digest(tensors: Any) -> str:
    """A fingerprint of named tensors."""
    found = sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].detach().contiguous().numpy().tobytes())
    return found.hexdigest()


class Learner:
    """A rank of a learner whose weights come in three parts, which the ranks give in turn."""

    def __init__(self, info: RankInfo) -> None:
        self._rank, self._size = info.rank, info.size

    def has_adapters(self) -> bool:
        return False

    def weight_sources(self, bucket_bytes: int, *, form: str) -> list[int]:
        return [part % self._size for part in range(3)]

    def weights(self, *, version: int, part: int, bucket_bytes: int, form: str) -> WeightUpdate:
        given = part % self._size == self._rank
        return WeightUpdate(version, dict(list(weights_of(version).items())[part::3]) if given else {}, part, 3)


class WatchedEnd(SamplerWorker):
    """A sampler's end that can be looked into, and that dies (kill -9) over an update, or over its responses once the
    first of them are sent, when it finds a file that says so."""

    def __init__(self, sampler: Sampler, poison: Path) -> None:
        super().__init__(sampler)
        self._poison = poison
        self.versions: list[int] = []

    def digest(self) -> tuple[str, int]:
        assert isinstance(self._sampler, HFSampler)
        return digest(dict(self._sampler._model.named_parameters())), self._sampler._version

    def stream_portions(self, requests: Sequence[SampleRequest]) -> Iterator[list[Completion]]:
        for portion in super().stream_portions(requests):
            yield portion
            self._die("_response")

    def load(self, update: WeightUpdate) -> Metrics:
        self._die()
        return super().load(update)

    def load_segments(self, port: int, sending: int, *, timeout_s: float) -> Metrics:
        self._die()
        return super().load_segments(port, sending, timeout_s=timeout_s)

    def receive_weights(self, sources: Sequence[int]) -> Metrics | str:
        self._die()
        return super().receive_weights(sources)

    def _die(self, over: str = "") -> None:
        poison = self._poison.with_name(self._poison.name + over)
        if poison.exists():
            poison.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def build_learner(info: RankInfo) -> LearnerWorker:
    return LearnerWorker(Learner(info), rank=info.rank, bucket_bytes=1 << 20)


def build_hf(folder: Path, info: RankInfo) -> WatchedEnd:
    sampler = HFSampler(
        tiny_qwen2(head_dim=32),
        eos_token_ids=[EOS],
        pad_token_id=PAD,
        seed=7,
        generation_batch_size=64,
        max_model_len=128,
    )
    return WatchedEnd(sampler, folder / f"poison_{info.rank}")


def build_vllm(folder: Path, info: RankInfo) -> WatchedEnd:
    from rlinf.samplers.vllm import VllmSampler

    config = VllmConfig(kv_cache_memory_mb=16, dtype="float32", max_num_seqs=64)
    sampler = VllmSampler(folder / "model", config, eos_token_ids=[EOS], seed=7, max_model_len=128)
    return WatchedEnd(sampler, folder / f"poison_{info.rank}")
