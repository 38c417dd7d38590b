"""Samplers of a tiny model, for tests of the ways from a learner to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tiny_models import EOS, PAD, tiny_qwen2

from rlinf.cluster import RankInfo
from rlinf.data.messages import Completion, Metrics, SampleRequest, WeightUpdate
from rlinf.interfaces import Sampler
from rlinf.samplers.hf import HFSampler
from rlinf.schema.rollout import VllmConfig
from rlinf.train.workers.sampler_worker import SamplerWorker


def digest(tensors: Any) -> str:
    """A fingerprint of named tensors."""
    found = sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].detach().contiguous().numpy().tobytes())
    return found.hexdigest()


class WatchedEnd(SamplerWorker):
    """A sampler's end that can be inspected, and that dies (kill -9) over an update, or over its responses once the
    first of them are sent, when it finds the file ``poison``."""

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
