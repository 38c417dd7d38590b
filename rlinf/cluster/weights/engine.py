"""Weights by vLLM's own engine for their transfer: from the learner's first rank into the engines' layers."""

from __future__ import annotations

from typing import Any

from rlinf.cluster.api import Handle, WorkerGroup
from rlinf.cluster.weights.sender import WeightSender
from rlinf.cluster.weights.transport import LATE_S, Collective, Restart
from rlinf.data.messages import Metrics
from rlinf.schema.rollout import TransferBackend


class EngineTransfer(Collective):
    """The transport ``vllm``. A sampler that is restarted between updates gets its weights through the object store.

    A failure during an update ends the run: vLLM's engines cannot leave an update that has begun.
    """

    name = "vllm"

    def __init__(
        self,
        learner: WorkerGroup,
        receivers: WorkerGroup,
        *,
        backend: TransferBackend,
        device: str,
        keep: bool,
        workers: int,
    ) -> None:
        """``workers``: processes of each receiver's engine (its tensor parallelism). ``keep``: see Collective."""
        super().__init__(learner, receivers, device=device, fall_back=False, keep=keep)
        self._backend, self._workers = backend, workers
        self._orders: tuple[str, int] | None = None

    def send(self, version: int, restart: Restart) -> Metrics:
        self._version = version
        problem = None if self._formed else self._form()
        result = problem or self._broadcast(version, {})
        if isinstance(result, str):
            raise self._not_sent(version, result)
        return result

    def _begin_form(self) -> tuple[list[Handle], list[Handle]]:
        node = self.learner.nodes()[0]
        hosted = self.learner.call(WeightSender.host_orders, timeout_s=LATE_S)[0]
        assert hosted is not None, "rank 0 hosts the store"
        orders, port = hosted
        self._orders = (node, orders)
        joins = self._follow("init_weight_transfer_engine", 0)
        size = 1 + self.receivers.size * self._workers
        options: dict[str, Any] = {
            "backend": self._backend,
            "samplers": self.receivers.size,
            "size": size,
            "device": self._device,
        }
        return joins, self.learner.submit("open_engine", (node, port), **options)

    def _begin_broadcast(self, version: int) -> tuple[list[Handle], list[Handle]]:
        takes = self._follow("finish_weight_update", version)
        return takes, self.learner.submit("send_by_engine", version=version, keep=self._keep)

    def _follow(self, last: str, version: int) -> list[Handle]:
        options: dict[str, Any] = {"last": last, "version": version, "workers": self._workers, "timeout_s": LATE_S}
        return [
            self.receivers.submit_one(rank, "follow_engine", self._orders, receiver=rank, **options)
            for rank in range(self.receivers.size)
        ]
