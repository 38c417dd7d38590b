"""Which transport a run takes, by its configuration and by where its workers are."""

from __future__ import annotations

from typing import Any, Literal

from rlinf.base.errors import UserError
from rlinf.cluster.api import WorkerGroup
from rlinf.cluster.errors import ClusterError
from rlinf.cluster.weights.segment import available
from rlinf.cluster.weights.sender import WeightSender
from rlinf.cluster.weights.transport import (
    LATE_S,
    Collective,
    ObjectStore,
    Restart,
    SharedMemory,
    WeightTransport,
    largest,
    outcomes,
)
from rlinf.data.messages import Metrics
from rlinf.schema.rollout import WeightTransportName


class _EngineTransfer(Collective):
    """The transport ``vllm``. A sampler that is restarted between updates gets its weights through the object store.

    A failure during an update ends the run: vLLM's engines cannot leave an update that has begun.
    """

    name = "vllm"

    def __init__(self, learner: WorkerGroup, receivers: WorkerGroup, *, device: str, keep: bool, workers: int) -> None:
        """``workers``: processes of each receiver's engine (its tensor parallelism). ``keep``: see Collective."""
        super().__init__(learner, receivers, device=device, fall_back=False, keep=keep)
        self._workers = workers
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
        options: dict[str, Any] = {"samplers": self.receivers.size, "size": size, "device": self._device}
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


def choose(
    wanted: WeightTransportName | Literal["object_store"],
    learner: WorkerGroup,
    receivers: WorkerGroup,
    *,
    cuda: bool,
    keep: bool,
    workers: int = 1,
) -> WeightTransport:
    """Choose the transport of `rollout.weight_transport`; ``auto``: shared memory on one node, else a broadcast.

    ``object_store`` is for groups within one process.

    ``cuda``: both groups compute on GPUs. ``keep``: the weights are read while the learner changes them.
    ``workers``: processes of a receiver's engine, for ``vllm``.

    :raises UserError: shared memory is requested, but sources and receivers are on several nodes or it is absent. Or
        ``vllm`` is, and the learner's weights come from several ranks.
    """
    if wanted == "object_store":
        return ObjectStore(learner, receivers)
    device = "cuda" if cuda else "cpu"
    sources = set(learner.call_one(0, "weight_sources"))
    if wanted == "vllm":
        if sources != {0}:
            why = f"it has one sender, and {len(sources)} ranks of the learner give weights"
            raise UserError(f"rollout.weight_transport: vllm is not possible: {why}. Take auto.")
        return _EngineTransfer(learner, receivers, device=device, keep=keep, workers=workers)
    of_learner = learner.nodes()
    nodes = {of_learner[source] for source in sources} | {*receivers.nodes()}
    together = len(nodes) == 1 and available()
    if wanted == "shared_memory" and not together:
        why = (
            f"the learner and the {receivers.name} group are on {len(nodes)} nodes"
            if len(nodes) > 1
            else "only Linux has it"
        )
        raise UserError(f"rollout.weight_transport: shared_memory is not possible: {why}. Take auto.")
    if wanted != "collective" and together:
        return SharedMemory(learner, receivers)
    return Collective(learner, receivers, device=device, fall_back=wanted == "auto", keep=keep)
