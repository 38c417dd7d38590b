"""Weights by vLLM's own engine for their transfer: from the learner's first rank into the engines' layers."""

from __future__ import annotations

from typing import Any

from rlinf.cluster.api import WorkerGroup
from rlinf.cluster.errors import ClusterError
from rlinf.cluster.weights.sender import WeightSender
from rlinf.cluster.weights.transport import LATE_S, Collective, Restart, largest, outcomes
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
        dead: dict[int, Exception] = {}
        problem = None if self._formed else self._form()
        if problem is None:
            problems, numbers = self._broadcast(version, dead)
            if not problems and not dead:
                self._travelling.arrived()
                return numbers
            problem = "\n".join([*problems, *map(str, dead.values())])
        raise ClusterError(f"weights {version} did not reach the {self.receivers.name} group: {problem}")

    def _form(self) -> str | None:
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
        opens = self.learner.submit("open_engine", (node, port), **options)
        problems = [
            text for text in (*self.receivers.gather(joins), *self.learner.gather(opens)) if isinstance(text, str)
        ]
        self._formed = not problems
        return "\n".join(problems) or None

    def _broadcast(self, version: int, dead: dict[int, Exception]) -> tuple[list[str], Metrics]:
        takes = self._follow("finish_weight_update", version)
        sends = self.learner.submit("send_by_engine", version=version, keep=self._keep)
        numbers = outcomes(takes, dead)
        problems = [text for text in (*self.learner.gather(sends), *numbers) if isinstance(text, str)]
        return problems, {} if dead or problems else largest(numbers)

    def _follow(self, last: str, version: int) -> list[Any]:
        options: dict[str, Any] = {"last": last, "version": version, "workers": self._workers, "timeout_s": LATE_S}
        return [
            self.receivers.submit_one(rank, "follow_engine", self._orders, place=rank, **options)
            for rank in range(self.receivers.size)
        ]
